# hostprep: `make demo` shows it, `make test` tests it; both set themselves up.
# All paths are relative, so that a checkout below a folder with a space in its name works.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PY := .venv/bin/python
STAMP := .venv/.ready

.PHONY: help setup demo test lint unit integration bench clean

help:  ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

setup: $(STAMP)  ## Make the virtual environment and install what is missing

$(STAMP): pyproject.toml scripts/setup.sh
	@scripts/setup.sh
	@touch $(STAMP)

lint: $(STAMP)  ## ruff, mypy --strict and the layer check
	$(PY) -m ruff check hostprep tests benchmarks scripts
	$(PY) -m ruff format --check hostprep tests benchmarks scripts
	$(PY) -m mypy
	$(PY) -c "from importlinter.cli import lint_imports_command as run; run()"

test: $(STAMP)  ## Everything: linters, unit, command line and integration tests
	@scripts/setup.sh --system-tools
	@$(MAKE) --no-print-directory lint
	$(PY) -m pytest

clean:  ## Remove the virtual environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
