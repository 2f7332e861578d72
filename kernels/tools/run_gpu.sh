#!/bin/bash
# On a GPU machine, in the folder that `make gpu` filled: every op against the reference, then bytes
# a second. Needs python3 with numpy; compares with torch where there is one.
cd "$(dirname "$0")" || exit 2
export PYTHONPATH=$PWD/kernels PYTHONUNBUFFERED=1
torch=$(python3 -c 'import torch; print("--torch" if torch.cuda.is_available() else "")' 2>/dev/null)
python3 tests/kernels/hip/check_device.py --backend cuda 2>&1 | tee "${OUT:-.}/check.txt"
checked=${PIPESTATUS[0]}
python3 kernels/tools/device_bench.py --backend cuda $torch --json "${OUT:-.}/ops.json" 2>&1 \
  | tee "${OUT:-.}/bench.txt"
exit "$((checked + PIPESTATUS[0]))"
