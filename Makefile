# CI runs the same commands. Each command installs its missing dependencies once.
#
#   make test RABBITMQ=4.3             another RabbitMQ than the installed one (4.0, 4.3; as root)
#   make test PYTEST_ARGS='-k ladder'  a selection of the tests
#   make test WORKERS=0                one process, for a debugger

.DEFAULT_GOAL := help
.PHONY: help demo test test-unit coverage test-slow test-faults test-lowest lint lock bench clean

PYTHON := .venv/bin/python
PYTEST_ARGS ?=
# Tests mostly wait for a broker, so four processes are useful even on two cores.
WORKERS ?= 4
# Without a broker they mostly wait for a time to pass.
UNIT_WORKERS ?= 12

# Tests start hundreds of Python processes: without bytecode each compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

ifdef RABBITMQ
RABBITDELAY_RABBITMQ_ROOT ?= $(CURDIR)/.cache/rabbitmq-$(RABBITMQ)
export RABBITDELAY_RABBITMQ_ROOT
endif

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## watch delayed jobs arrive on time, on a private RabbitMQ
	@scripts/bootstrap --with-broker
	@.venv/bin/rabbitdelay demo

test: ## run every test that takes less than a minute
	@scripts/bootstrap --with-test-broker
	@$(PYTHON) -m pytest -m "not slow" -n $(WORKERS) $(PYTEST_ARGS)

test-unit: ## run every test that needs no RabbitMQ, in less than a minute
	@scripts/bootstrap
	@$(PYTHON) -m pytest --no-rabbitmq -m "not slow" -n $(UNIT_WORKERS) $(PYTEST_ARGS) tests/unit tests/conformance

coverage: ## measure which branches of core and engine those tests cover
	@scripts/bootstrap
	@scripts/coverage -n $(UNIT_WORKERS) $(PYTEST_ARGS)

test-slow: ## run the cluster and soak tests
	@scripts/bootstrap --with-test-broker
	@$(PYTHON) -m pytest -m slow $(PYTEST_ARGS)

test-faults: ## run a load under random faults: MINUTES=30 SEED=1 NODES=3
	@scripts/bootstrap --with-fault-tools
	@$(PYTHON) -m tests.faults.run --minutes $(or $(MINUTES),30) --nodes $(or $(NODES),1) $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))

test-lowest: ## run unit and conformance tests with the lowest allowed dependencies
	@scripts/bootstrap --with-test-broker
	@scripts/lowest
	@.venv-lowest/bin/python -m pytest tests/unit tests/conformance -n $(WORKERS) $(PYTEST_ARGS)

lint: ## check style and types
	@scripts/bootstrap
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m mypy

lock: ## pin the newest versions of all packages in constraints.txt
	@scripts/bootstrap --lock

bench: ## run every benchmark: one JSON line and a sentence each
	@scripts/bootstrap --with-broker
	@set -e; for benchmark in benchmarks/bench_*.py; do $(PYTHON) "$$benchmark"; done

clean: ## remove everything these commands created
	rm -rf .venv .venv-lowest .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
