# The HIP kernels: emulated on the CPU, gated for AMD, measured through nvcc.
GPU_BUILD := build/gpu

.PHONY: emulation
emulation: ## Build the HIP kernels for the CPU alone (`make test` does too)
	$(BIN)/cmake -S kernels -B $(GPU_BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DFLATWAKE_EMULATION=on > /dev/null
	$(BIN)/cmake --build $(GPU_BUILD) --target flatwake_emulation
	mkdir -p kernels/flatwake_kernels/native
	cp $(GPU_BUILD)/emulation/libflatwake_emulation.so kernels/flatwake_kernels/native/

SANITIZED_EMULATION := build/sanitized-emulation
.PHONY: emulation-sanitized
emulation-sanitized: ## Run the emulated kernels under the address and undefined-behaviour sanitizers
	$(BIN)/cmake -S kernels -B $(SANITIZED_EMULATION) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DFLATWAKE_SANITIZE=ON -DFLATWAKE_EMULATION=on -DFLATWAKE_HIP=off > /dev/null
	$(BIN)/cmake --build $(SANITIZED_EMULATION) --target flatwake_emulation
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	  FLATWAKE_LIBRARY_DIR=$(abspath $(SANITIZED_EMULATION))/emulation \
	  $(BIN)/python -m pytest tests/kernels/emulation -q -p no:cacheprovider --deselect tests/kernels/emulation/test_planted.py

# nvcc comes from PyPI, into a folder of its own: it is a stand-in's compiler, not the project's.
CUDA_WHEELS := nvidia-cuda-nvcc==13.5.37 nvidia-nvvm==13.5.37 nvidia-cuda-crt==13.5.37 nvidia-cuda-runtime==13.5.37
CUDA_SITE := build/cuda/site
GPU_BUNDLE := build/gpu-bundle

.PHONY: cuda-compiler
cuda-compiler: ## Get nvcc from PyPI into build/cuda
	$(BIN)/uv pip install --no-deps --target $(CUDA_SITE) $(CUDA_WHEELS)

.PHONY: amd-isa
amd-isa: ## Run the compiled AMD code on an instruction emulator (TINYGRAD=a checkout; docs/amd-isa.md)
	TINYGRAD_CHECKOUT=$(abspath $(TINYGRAD)) $(BIN)/python tests/kernels/isa/check_isa.py --write

# What a GPU machine's Python lacks, at the versions that are locked.
GPU_WHEELS := build/wheels
GPU_PYTHON ?= 3.12
GPU_PACKAGES := annotated-doc annotated-types anyio certifi click fastapi gguf h11 httpcore httptools httpx \
  idna jinja2 markdown-it-py markupsafe mdurl msgspec opentelemetry-api \
  prometheus-client pydantic pydantic-core pygments pyyaml rich safetensors shellingham starlette \
  tokenizers typer typing-extensions typing-inspection uvicorn uvloop
.PHONY: gpu-wheels
gpu-wheels: ## Get the wheels that `make gpu` takes along (GPU_PYTHON=3.12)
	$(BIN)/python -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
	  --python-version $(GPU_PYTHON) $(foreach p,2_28 2_17 2_5,--platform manylinux_$(p)_x86_64) \
	  --platform manylinux2014_x86_64 -d $(GPU_WHEELS) \
	  $(foreach p,$(GPU_PACKAGES),$(shell grep -oE "^$(p)==[^ ]+" $(LOCKS)/service.txt))

.PHONY: gpu
gpu: ## Build the stand-in library by nvcc, with its tests and bench, into build/gpu-bundle
	test -e $(CUDA_SITE) || command -v nvcc > /dev/null || $(MAKE) cuda-compiler
	$(BIN)/cmake -S kernels -B $(GPU_BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DFLATWAKE_CUDA=on > /dev/null
	$(BIN)/cmake --build $(GPU_BUILD) --target flatwake_cuda
	rm -rf $(GPU_BUNDLE)
	mkdir -p $(GPU_BUNDLE)/kernels/flatwake_kernels/native $(GPU_BUNDLE)/tests/kernels
	cp -r kernels/flatwake_kernels/*.py kernels/flatwake_kernels/reference $(GPU_BUNDLE)/kernels/flatwake_kernels/
	cp $(GPU_BUILD)/hip/libflatwake_cuda.so $(GPU_BUNDLE)/kernels/flatwake_kernels/native/
	cp -r tests/kernels/support tests/kernels/hip $(GPU_BUNDLE)/tests/kernels/
	mkdir -p $(GPU_BUNDLE)/kernels/tools && cp kernels/tools/device_bench.py $(GPU_BUNDLE)/kernels/tools/
	cp -r service tests/gpu $(GPU_BUNDLE)/ && mv $(GPU_BUNDLE)/gpu $(GPU_BUNDLE)/tests/
	mkdir -p $(GPU_BUNDLE)/tests/fixtures $(GPU_BUNDLE)/tests/service/verify/goldens $(GPU_BUNDLE)/site
	cp -r tests/fixtures/hybrid $(GPU_BUNDLE)/tests/fixtures/
	cp tests/service/verify/goldens/hybrid.npz tests/service/verify/goldens/random-0.8B.npz \
	  $(GPU_BUNDLE)/tests/service/verify/goldens/
	cp -r $(VENV)/lib/python3*/site-packages/flatwake-*.dist-info $(GPU_BUNDLE)/site/
	test -e $(GPU_WHEELS) || $(MAKE) gpu-wheels
	cp -r $(GPU_WHEELS) $(GPU_BUNDLE)/wheels
	find $(GPU_BUNDLE) -name __pycache__ -prune -exec rm -r {} +
	du -sh $(GPU_BUNDLE)

.PHONY: amd
amd: ## Compile all kernels for every AMD target; fail on spills, LDS or lost occupancy
	$(BIN)/python kernels/tools/amd_gate.py

.PHONY: amd-table
amd-table: ## Renew docs/amd.md, and the floors of kernels that are new or became better
	$(BIN)/python kernels/tools/amd_gate.py --update --write
