.DEFAULT_GOAL := help
.PHONY: help run agent test fuzz lint fmt bench evaluate clean

help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

run: ## Build Tracewise, simulate a cluster, learn what is normal there, watch it live; nothing else is needed
	cargo build --release --quiet --bin tracewise
	scripts/run

agent: ## Build the agent for a node: target/agent/tracewise-agent
	cargo build --profile agent --package agent --bin tracewise-agent

test: ## Install what tests need, run every test, sum up
	scripts/test

fuzz: ## Look for inputs that break a parser, a minute each
	scripts/fuzz 60

lint: ## Check formatting and lints, as CI does
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings

fmt: ## Format the code
	cargo fmt --all

bench: ## Measure speed and size beside peers; results go to docs/results
	bench/run

evaluate: ## Judge what was learnt and simulated; results go to docs/results
	evaluate/run

clean: ## Remove what was built
	cargo clean
