# One command each. On a bare machine they need Python 3.11 and make. What else of the system is
# missing the demo and the tests install, after saying so, as root on Debian and Ubuntu; elsewhere they
# name the command before they begin. The rest they fetch, and keep in the user's cache folder.
VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.installed
SOURCES := operator tools tests examples bench
# Some containers forbid Python to keep what it compiled. The tests start Python hundreds of times,
# and compiling the same again would take half of their time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help doctor demo test test-full mutants check generate verify bench format lock clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(READY): requirements-dev.lock pyproject.toml
	@sh tools/python.sh
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

doctor: $(READY) ## What this machine lacks for the rest, and how to get it.
	$(VENV)/bin/queue-operator dev doctor $(ARGS)

demo: $(READY) ## A real cluster, the operator, workers, and jobs of every fate.
	PYTHONPATH=tools $(PYTHON) -m demo

test: $(READY) ## All tests, on a real cluster, Postgres, gRPC and Spark.
	PYTHONPATH=. $(PYTHON) tools/parts.py $(ARGS)

test-full: $(READY) ## The same with long property runs and races, and all mutants.
	HYPOTHESIS_PROFILE=full QUEUE_OPERATOR_TEST_FULL=1 PYTHONPATH=. $(PYTHON) tools/parts.py $(ARGS)

mutants: $(READY) ## Small mistakes in the stores: do the tests notice? ARGS='--help' tells the options.
	PYTHONPATH=tools $(PYTHON) -m mutants $(ARGS)

check: $(READY) ## Format, lint, types, import contracts, generated files.
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(MAKE) --no-print-directory verify

generate: $(READY) ## Write every generated file.
	$(PYTHON) tools/generate.py

verify: $(READY) ## Fail if a generated file is stale.
	$(PYTHON) tools/generate.py --check

bench: $(READY) ## Measure, other queues beside us; ARGS='--help' tells the options.
	$(PYTHON) -m bench $(ARGS)

format: $(READY) ## Format the sources.
	$(VENV)/bin/ruff check --fix $(SOURCES)
	$(VENV)/bin/ruff format $(SOURCES)

lock: $(READY) ## Resolve the dependencies anew.
	$(PYTHON) tools/lock.py

clean: ## Remove the virtual environment and what the tools left in the tree.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
