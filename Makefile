# Every target a person or CI uses. `make` alone lists them.

SEEDS ?= 200
JOBS ?= 2
PY := .venv/bin/python
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help install check format test bench simulate soak diagram lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## set up .venv with the pinned versions of everything

$(STAMP): requirements-dev.lock pyproject.toml scripts/install
	@scripts/install
	@touch $@

check: install ## format, lint, types, floors, house rules
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -c 'from importlinter.cli import lint_imports_command as lint; lint()' --no-logo
	$(PY) -m pytest -q tests/test_house.py

format: install ## let ruff write the format and the fixes it is sure of
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

test: check ## set up, check, then pass every test; every branch of the law is covered
	$(PY) -m pytest -n $(JOBS) --cov --cov-report=term-missing

bench: install ## print the numbers that SPECIFICATION.md claims
	$(PY) -m bench

simulate: install ## drive random fleets through the law: make simulate SEEDS=200
	$(PY) -m fairnotice.testing.simulate --seeds $(SEEDS)

soak: install ## the long repeats: ten times the seeds, and Hypothesis with fresh chance
	$(PY) -m fairnotice.testing.simulate --seeds $$(($(SEEDS) * 10))
	$(PY) -m pytest -n $(JOBS) --hypothesis-profile=soak tests/engine

diagram: install ## write the state diagram in docs/ anew from engine/transitions.py
	$(PY) scripts/diagram.py

lock: ## pin the newest versions that pyproject.toml allows into requirements-dev.lock
	scripts/lock

clean: ## remove .venv and everything the tools left behind
	rm -rf .venv .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
