# Every command of the project. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MANIFEST ?= examples/smollm2.yaml
NATIVE := kernels/flatwake_kernels/native

include $(wildcard kernels/*.mk tests/*.mk loadtest/*.mk operator/*.mk)

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'
