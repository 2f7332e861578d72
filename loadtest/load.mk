# Waves of users against a server of this checkout; `flatwake load --help` has every option.
LOAD_OUT ?= build/load
LOAD ?=

.PHONY: load load-short load-hour load-figures test-load soak-load

load: ## Put the manifest's server under the whole load suite, about 35 minutes (LOAD="--peer URL")
	$(BIN)/flatwake load $(MANIFEST) --out $(LOAD_OUT) $(LOAD)

load-short: ## The load suite's short form, a check of its promises
	$(BIN)/flatwake load loadtest/short.yaml --short --out $(LOAD_OUT) $(LOAD)

load-hour: ## An hour and 5,000 requests: is memory flat?
	$(BIN)/flatwake load $(MANIFEST) --waves endurance --requests 5000 --minutes 60 --runs 1 --out $(LOAD_OUT) $(LOAD)

load-figures: ## Put the last run's figures into docs/benchmarks/load.json
	$(BIN)/python -m flatwake_loadtest.benchmark $(LOAD_OUT)/report.json docs/benchmarks/load.json

test-load: ## Test the load suite itself, against servers that are wrong on purpose
	$(BIN)/python -m pytest tests/loadtest -m "not slow" -q

soak-load: ## Find seeded leaks live, and call a clean server flat
	$(BIN)/python -m pytest tests/loadtest -m slow -q
