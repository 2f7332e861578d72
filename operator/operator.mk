.PHONY: generated generated-check

generated: ## Make the CRD, the reference page and the operator's golden files anew
	$(BIN)/python -m flatwake_operator.generated
	$(BIN)/python tests/operator/golden.py

generated-check: ## Fail when a generated file is stale
	$(BIN)/python -m flatwake_operator.generated --check
