.PHONY: bench-engine
bench-engine: ## Print what a token costs in engine and API process outside the device
	$(BIN)/python tests/service/engine/bench_client.py
