# The HIP kernels: emulated on the CPU, gated for AMD, measured through nvcc.
GPU_BUILD := build/gpu

.PHONY: emulation
emulation: ## Build the HIP kernels for the CPU alone (`make build` does too)
	$(BIN)/cmake -S kernels -B $(GPU_BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja > /dev/null
	$(BIN)/cmake --build $(GPU_BUILD) --target flatwake_emulation
	mkdir -p kernels/flatwake_kernels/native
	cp $(GPU_BUILD)/emulation/libflatwake_emulation.so kernels/flatwake_kernels/native/
