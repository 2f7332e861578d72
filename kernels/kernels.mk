# The native kernel libraries, built into the package's own folder.
BUILD_NATIVE := build/native
BUILD_JOBS ?= 2

# AMD's library takes minutes for nine architectures: a checkout asks for it, a `pip install` on a
# machine with a compiler for it does not have to.
HIP ?= off
EMULATION ?= off

.PHONY: build
build: ## Build the native kernel libraries into the package (HIP=on: AMD's; EMULATION=on)
	@$(BIN)/cmake -S kernels -B $(BUILD_NATIVE) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DFLATWAKE_HIP=$(HIP) -DFLATWAKE_EMULATION=$(EMULATION) $(CMAKE_OPTIONS) > /dev/null
	@$(BIN)/cmake --build $(BUILD_NATIVE) --parallel $(BUILD_JOBS)
	$(BIN)/cmake --install $(BUILD_NATIVE) --prefix kernels > /dev/null

SANITIZED := build/sanitized
SANITIZERS := address,undefined

.PHONY: sanitize
sanitize: ## Run the CPU kernels' tests under the address and undefined-behaviour sanitizers
	$(BIN)/cmake -S kernels -B $(SANITIZED) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DFLATWAKE_KERNEL_OPTIMISATION=-O1 -DCMAKE_CXX_FLAGS="-fsanitize=$(SANITIZERS) -fno-sanitize-recover=all -g1"
	$(BIN)/cmake --build $(SANITIZED) --parallel $(BUILD_JOBS) --target flatwake_cpu
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 FLATWAKE_LIBRARY_DIR=$(SANITIZED)/cpu \
	  $(BIN)/python -m pytest -q -p no:cacheprovider tests/kernels/test_ops.py tests/kernels/test_rows.py tests/kernels/test_sample.py tests/kernels/test_attention.py

AARCH64 := build/aarch64
.PHONY: aarch64
aarch64: ## Cross-compile the CPU library for aarch64, its plain path (g++-aarch64-linux-gnu), and run a plan (qemu-user-static)
	$(BIN)/cmake -S kernels -B $(AARCH64) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DFLATWAKE_HIP=off \
	  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
	$(BIN)/cmake --build $(AARCH64) --parallel $(BUILD_JOBS) --target flatwake_cpu graph_leak
	qemu-aarch64-static -L /usr/aarch64-linux-gnu $(AARCH64)/tools/graph_leak $(abspath $(AARCH64))/cpu/libflatwake_cpu.so 50 100
