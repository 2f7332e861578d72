# The test cluster and the images. tests/cluster/cluster does the work; docs/development/cluster.md
# is the manual.
CLUSTER := tests/cluster/cluster
IMAGES ?= operator cpu

.PHONY: cluster-build cluster cluster-down cluster-status cluster-check images push test-cluster test-cluster-slow test-cluster-ipv6 soak

cluster-build: ## Compile Kubernetes for the test cluster (once; 6 to 15 minutes)
	$(CLUSTER) build

cluster: ## Start a Kubernetes on this machine and leave it running
	$(CLUSTER) up

cluster-down: ## Stop it; nothing stays
	$(CLUSTER) down

cluster-status: ## Its components, their memory, start-up times
	$(CLUSTER) status

cluster-check: ## Prove that the running cluster is a real one (34 checks)
	tests/cluster/check

images: ## Build the images (IMAGES="operator cpu hip load", BASE=image from a registry)
	$(CLUSTER) images $(IMAGES) $(if $(BASE),--base $(BASE))

push: ## Build the images and push them to REGISTRY; prints the helm line
	@test -n "$(REGISTRY)" || { echo "usage: make push REGISTRY=registry.example.com/team" >&2; exit 2; }
	$(CLUSTER) images $(IMAGES) $(if $(BASE),--base $(BASE)) --push $(REGISTRY)

test-cluster: ## Run the cluster suite (root, Go, containerd; see docs/development/cluster.md)
	$(BIN)/python -m pytest tests/cluster -m "not slow" -q

test-cluster-slow: ## Its tests that take over a minute each
	$(BIN)/python -m pytest tests/cluster tests/operator -m slow -q --ignore=tests/cluster/test_soak.py

test-cluster-ipv6: ## Its first test on a cluster without any IPv4 address
	CLUSTER_FAMILY=ipv6 $(BIN)/python -m pytest tests/cluster/test_serving.py -q

soak: ## 100 servers, half an hour of changes, five quiet minutes (docs/benchmarks/cluster.json)
	$(BIN)/python -m pytest tests/cluster/test_soak.py -q -s
