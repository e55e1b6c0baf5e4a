# hostprep: `make demo` shows it, `make test` tests it; both set themselves up.
# All paths are relative, so that a checkout below a folder with a space in its name works.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PY := .venv/bin/python
# What has been installed: hostprep itself for users, and the development tools on top of it.
BASE := .venv/.base
DEV := .venv/.dev

.PHONY: help setup demo test test-vm test-gpu lint bench clean

help:  ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

setup: $(DEV)  ## Make the virtual environment and install what is missing

$(BASE): pyproject.toml scripts/setup.sh
	@scripts/setup.sh --base
	@touch $@

$(DEV): $(BASE)
	@scripts/setup.sh --dev
	@touch $@

demo: $(BASE)  ## Stage a sample data set into RAM and compare; takes everything away again
	@scripts/setup.sh --demo-tools
	@$(PY) scripts/demo.py

lint: $(DEV)  ## ruff, mypy --strict, the layer check and ansible-lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
# They run only where there is a GPU: until then a name that is gone shows here.
	$(PY) -m mypy tests/gpu
	$(PY) -c "from importlinter.cli import lint_imports_command as run; run()"
	ANSIBLE_CONFIG=playbooks/ansible.cfg $(PY) -m ansiblelint -q playbooks

test: $(DEV)  ## Everything: linters, unit, command line and integration tests
	@scripts/setup.sh --system-tools
	@$(MAKE) --no-print-directory lint
	@scripts/test.sh

test-vm: $(DEV)  ## Whole machines with a kernel of their own, emulated: limits, disks, reboots (takes long)
	@scripts/setup.sh --vm-tools
	$(PY) -m pytest tests/vm

# With another torch than pip's: `make test-gpu PY=python3 DEV=`; it says what is missing there.
test-gpu: $(DEV)  ## The prefetcher and `hostprep verify` on a real GPU; writes a transcript
	@$(PY) scripts/test_gpu.py

bench: $(DEV)  ## Compare staging with its peers; writes benchmarks/README.md (takes long)
	@scripts/setup.sh --bench-tools
	$(PY) -m benchmarks.stage

clean:  ## Remove the virtual environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
