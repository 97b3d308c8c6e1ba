.DEFAULT_GOAL := help
.PHONY: docs help run first-contact agent package package-test image-test test fuzz lint lint-deploy sbom fmt bench evaluate clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

run: ## Build Tracewise and run the service with a simulated cluster
	@scripts/build
	@target/release/tracewise demo

first-contact: ## Time `make run` from the first build to the first event
	scripts/first-contact

agent: ## Build the node agent: target/agent/tracewise-agent
	TRACEWISE_VERSION="$$(scripts/version)" cargo build --profile agent --package agent --bin tracewise-agent

package: ## Build .deb, .rpm and a static archive of the agent: target/packages
	scripts/package

package-test: ## Install, upgrade and remove the packages in a Debian that is booted in a directory; needs root
	scripts/package-test

image-test: ## Assemble the images and run them read-only, as containers do; needs root
	scripts/image-test

test: ## Install the servers that tests use, run all tests and print a summary
	scripts/test

fuzz: ## Fuzz every reader of input for one minute
	scripts/fuzz 60

docs: ## Build the documentation as a site with a search: target/book/html
	scripts/docs

lint: ## Check formatting, lints, and licences and sources of dependencies
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features cli/manual -- --deny warnings
	scripts/deny

lint-deploy: ## Check shell scripts, definitions of CI, containers, Kubernetes and Ansible
	scripts/lint-deploy

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
