# Every command of the project; `make help` lists them. Parts have their own: kernels/*.mk and so on.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
MANIFEST ?= examples/smollm2.yaml
PYTHON ?= $(firstword $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $$p; done))
LOCKS := .ci/lock
VERIFY := .venv-verify
SMOLLM2 := $(shell sed -n 's/^ *source: //p' examples/smollm2.yaml)

include $(wildcard kernels/*.mk tests/*.mk loadtest/*.mk operator/*.mk)

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sort | \
		awk -F':.*## ' '{printf "  \033[1m%-18s\033[0m %s\n", $$1, $$2}'

.PHONY: up
up: $(VENV)/.service build ## Serve SmolLM2 on this machine (PORT=…, MANIFEST=…)
	@exec $(BIN)/flatwake up $(MANIFEST) $(if $(PORT),--port $(PORT))

.PHONY: setup
setup: $(VENV)/.dev build ## Make the development environment

.PHONY: test
test: check test-amd test-python ## Run everything that this machine can: style, types, tests

# CI misses nothing: what a stranger's machine may lack is an error there.
.PHONY: test-amd
test-amd: $(VENV)/.dev
	@if command -v clang++-19 ld.lld-19 llvm-readelf-19 > /dev/null; then \
		$(MAKE) --no-print-directory amd; \
	else \
		echo "The AMD gate needs a compiler: apt-get install clang-19 lld-19 llvm-19" >&2; \
		test -z "$$CI"; \
	fi

# Tests look at AMD's library too, wherever a compiler for it is installed.
test-python: HIP = auto
test-python: EMULATION = on
.PHONY: test-python
test-python: $(VENV)/.dev build
	$(BIN)/python -m pytest -m "not slow and not gpu" $(PYTEST)

.PHONY: check
check: $(VENV)/.dev ## Check style, types and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory generate GENERATE=--check

.PHONY: generate
generate: $(VENV)/.dev ## Renew generated files (ABI header, CRD, reference pages)
	$(BIN)/python -m flatwake_kernels.header kernels/include/flatwake/ops.h $(GENERATE)
	$(BIN)/python -m flatwake_operator.generated $(GENERATE)

.PHONY: format
format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: goldens
goldens: $(VERIFY)/.verify build ## Renew the golden traces with torch and transformers (5.6 GB once)
	$(VERIFY)/bin/python tests/service/verify/make_goldens.py --smollm2 $(SMOLLM2)

.PHONY: verify
verify: $(VERIFY)/.verify build ## Compare SmolLM2's tokens with transformers' live (MODEL=…)
	$(VERIFY)/bin/flatwake verify $(or $(MODEL),$(SMOLLM2))

.PHONY: lock
lock: $(VENV)/.dev ## Renew the lock files from pyproject.toml
	for profile in service dev verify; do \
		extras="--extra $$profile --extra native"; \
		test $$profile != verify || extras="$$extras --extra service"; \
		$(BIN)/uv pip compile pyproject.toml $$extras --universal --python-version 3.11 --upgrade \
			--generate-hashes --no-emit-index-url --no-annotate --no-header --quiet \
			-o $(LOCKS)/$$profile.txt; \
	done
	for extra in service operator loadtest; do \
		$(BIN)/uv pip compile pyproject.toml --extra $$extra --universal --python-version 3.11 \
			--constraint $(LOCKS)/dev.txt --generate-hashes --no-emit-index-url --no-annotate \
			--no-header --quiet -o $(LOCKS)/images/$$extra.txt; \
	done

.PHONY: clean
clean: ## Remove what was built (the environment stays)
	rm -rf build dist kernels/flatwake_kernels/native

$(BIN)/python:
	@test "$$(uname -s)" = Linux || { echo "Flatwake runs on Linux (x86-64 or aarch64), not on $$(uname -s): use a Linux machine or container." >&2; exit 1; }
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed: install python3.11 (Debian: apt-get install python3 python3-venv)." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv)." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Whatever was installed first brought the build's tools along.
$(BIN)/cmake:
	@$(MAKE) --no-print-directory $(VENV)/.service
build: | $(BIN)/cmake

# torch is an oracle, never a part of what is served: it has an environment of its own.
$(VERIFY)/bin/python: | $(BIN)/python
	$(BIN)/python -m venv $(VERIFY)

define install
	@echo "Installing into $(@D)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
endef

$(VENV)/.%: $(LOCKS)/%.txt pyproject.toml | $(BIN)/python
	$(install)

$(VERIFY)/.verify: $(LOCKS)/verify.txt pyproject.toml | $(VERIFY)/bin/python
	$(install)
