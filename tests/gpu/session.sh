#!/bin/bash
# Everything that only a GPU can tell, in one call: `bash session.sh tune|all [SECONDS]`, in the
# folder that `make gpu` filled. Results go to $OUT as they come; a step that hangs is ended by its
# own limit, and all of them together take at most SECONDS (540).
#
# tune: correctness, and two sizes' decode and prefill. all: every figure.
what=${1:-all}
most=${2:-540}
cd "$(dirname "$0")/../.." || exit 2
export OUT=${OUT:-$PWD/out} PYTHONUNBUFFERED=1
mkdir -p "$OUT"
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
  --target /tmp/site wheels/*.whl || exit 1
export PYTHONPATH=$PWD/kernels:$PWD/service:$PWD/site:/tmp/site
models=/tmp/models
results=/tmp/results
mkdir -p $results
log=$OUT/session.txt
began=$SECONDS

# step LIMIT NAME COMMAND…: run, keep what it prints, say how long it took.
step() {
  local limit=$1 name=$2 start=$SECONDS left=$((most - SECONDS + began))
  shift 2
  if ((left < 5)); then
    echo "== $name: no time left" | tee -a "$log"
    return 1
  fi
  echo "== $name" | tee -a "$log"
  timeout -k 5 $((limit < left ? limit : left)) "$@" 2>&1 | tee -a "$log"
  local code=${PIPESTATUS[0]}
  echo "== $name: $code, $((SECONDS - start)) s of $((SECONDS - began))" | tee -a "$log"
  python3 tests/gpu/merge.py $results "$OUT/results.json"
  return "$code"
}
bench=tests/gpu/bench_models.py
ops=kernels/tools/device_bench.py
layers="python3 -m flatwake_service.cli.main bench layers"

sizes="4B 0.8B"
[ "$what" = tune ] || sizes="4B 9B 0.8B"
# The files are written while ops are checked: the device is idle then anyway.
(for size in $sizes; do python3 tests/gpu/random_qwen3_5.py $size $models/$size; done) &
writer=$!
step 60 golden python3 tests/gpu/check_golden.py --random $models/random-0.8B

if [ "$what" = tune ]; then
  step 100 check python3 tests/kernels/hip/check_device.py --backend cuda
  wait $writer
  step 60 bench-4B python3 $bench 4B --json $results/4B.json
  step 40 bench-0.8B python3 $bench 0.8B --json $results/0.8B.json
  exit 0
fi

wait $writer
step 100 check python3 tests/kernels/hip/check_device.py --backend cuda
step 150 bench python3 $bench 4B 9B 0.8B --json $results/models.json
step 45 deep python3 $bench 4B --deep --quick --no-cublas --json $results/deep.json
step 50 layers-4B $layers $models/4B --backend cuda --tokens 160 --graphs on \
  --output $results/layers-4B.json
step 30 graphs-off python3 $bench 4B --graphs off --quick --no-cublas --json $results/graphs-off.json
step 80 engine python3 tests/gpu/engine_checks.py $models/0.8B --json $results/engine.json
step 60 layers-9B $layers $models/9B --backend cuda --tokens 160 --graphs on \
  --output $results/layers-9B.json
step 40 layers-4B-off $layers $models/4B --backend cuda --rounds 2 --tokens 96 --graphs off \
  --output $results/layers-4B-off.json
step 30 layers-0.8B $layers $models/0.8B --backend cuda --rounds 2 --tokens 160 --graphs on \
  --output $results/layers-0.8B.json
step 60 ops python3 $ops --backend cuda --json $results/ops.json
