# Everything a contributor runs. CI runs `make test`.

GO ?= go
GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)

# Bounds of the long targets: make torture TORTURE=1h, make fuzz FUZZTIME=5m.
TORTURE ?= 10m
FUZZTIME ?= 30s
BENCH ?= .
PKG ?= ./...

# What is downloaded comes while lint is built.
MAKEFLAGS += -j3

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/mcp-idem-server
	$(GO) build -trimpath -o bin/mcp-idem-server ./cmd/mcp-idem-server

.PHONY: servers
servers: ## Install the npm servers that the end-to-end tests guard
	@testdata/servers/install

.PHONY: postgres
postgres: ## Install the PostgreSQL that tests start (as root, on Debian)
	@testdata/postgres/install

.PHONY: test
# Processes of race builds else sleep for a second when they end.
test: export GORACE = atexit_sleep_ms=0
test: lint servers postgres ## Lint, then run every test with the race detector
	$(GO) test -race -count=1 -timeout 12m ./...

.PHONY: short
short: ## Run the tests that need nothing but Go, without the race detector
	$(GO) test -short ./...

.PHONY: lint
lint: $(GOLANGCI) ## Check formatting, go vet and golangci-lint
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt -w these files:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags idemcrash ./...
	$(GOLANGCI) run ./...
	cd store/pgstore/bench && $(GO) vet ./... && $(CURDIR)/$(GOLANGCI) run ./...

# Built here rather than fetched: no binary of anybody's is run, and the version
# is the same for all.
$(GOLANGCI):
	GOBIN="$(CURDIR)/bin" $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@

.PHONY: bench
bench: ## Run the benchmarks (BENCH=pattern PKG=packages)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count 3 -timeout 0 $(PKG)

.PHONY: bench-postgres
bench-postgres: ## Run the Postgres store beside a plain table and DBOS (BENCH=pattern)
	cd store/pgstore/bench && $(GO) test -run '^$$' -bench '$(BENCH)' -benchtime 20x -timeout 0 .

.PHONY: torture
torture: ## Run the randomised tests and crash tests for TORTURE (10m) a package
	IDEM_TORTURE=$(TORTURE) $(GO) test -race -count 1 -timeout 0 -run 'Torture|Random|Crash|Hosts' -v $(PKG)

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (30s)
	@set -e; for pkg in $$($(GO) list $(PKG)); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done
