# Flatwake beside llama-server. The peer is compiled once, into the user's cache.
.PHONY: bench
bench: $(VENV)/.dev build ## Compare with llama-server on this CPU, in turn (BENCH="--rounds 3", --help)
	$(BIN)/python tests/bench/compare.py $(BENCH)
