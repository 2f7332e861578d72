# The native kernel libraries, built into the package's own folder.
BUILD_NATIVE := build/native
BUILD_JOBS ?= 2

.PHONY: build
build: ## Build the native kernel libraries into the package
	$(BIN)/cmake -S kernels -B $(BUILD_NATIVE) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja $(CMAKE_OPTIONS)
	$(BIN)/cmake --build $(BUILD_NATIVE) --parallel $(BUILD_JOBS)
	$(BIN)/cmake --install $(BUILD_NATIVE) --prefix kernels > /dev/null
