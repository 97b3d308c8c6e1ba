.DEFAULT_GOAL := help
.PHONY: docs help run agent test fuzz lint sbom fmt bench evaluate clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

run: ## Build Tracewise and run the service with a simulated cluster
	@scripts/build
	@target/release/tracewise demo

agent: ## Build the node agent: target/agent/tracewise-agent
	cargo build --profile agent --package agent --bin tracewise-agent

test: ## Install the servers that tests use, run all tests and print a summary
	scripts/test

fuzz: ## Fuzz every reader of input for one minute
	scripts/fuzz 60

docs: ## Build the documentation as a site with a search: target/book/html
	scripts/docs

lint: ## Check formatting, lints, and licences and sources of dependencies
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	scripts/deny

sbom: ## List every package in the programs: target/sbom.cdx.json
	scripts/sbom

fmt: ## Format the code
	cargo fmt --all

bench: ## Measure speed and size against other programs; writes docs/results
	bench/run

evaluate: ## Measure accuracy of models and of the simulator; writes docs/results
	evaluate/run

clean: ## Remove build products
	cargo clean
