# Every target a person or CI uses. `make` alone lists them.

SEEDS ?= 200
JOBS ?= 2
FUZZ_SECONDS ?= 120
PY := .venv/bin/python
STAMP := .venv/.installed
SERVICE := .venv/.installed-service

# PYTHON was given, and .venv has another version: it is made anew.
ifdef PYTHON
ifneq ($(shell $(PYTHON) --version 2>&1 || :),$(shell $(PY) --version 2>&1 || :))
$(STAMP): anew
endif
endif

.DEFAULT_GOAL := help
.PHONY: help install anew up check format test bench simulate soak demo-vms diagram reference picture lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## set up .venv; PYTHON=python3.13 for another Python

$(STAMP): requirements-dev.lock pyproject.toml scripts/install
	@scripts/install
	@touch $@

# Only what the service needs; whoever has the development environment has that already.
$(SERVICE): requirements-up.lock pyproject.toml scripts/install
	@if test -e $(STAMP); then $(MAKE) --silent --no-print-directory install; \
	else scripts/install requirements-up.lock; fi
	@touch $@

anew:

up: $(SERVICE) ## run the service with a sample fleet; Ctrl-C ends it
	@.venv/bin/fairnotice up $(UP)

check: install ## format, lint, types, floors, house rules
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -c 'from importlinter.cli import lint_imports_command as lint; lint()' --no-logo
	$(PY) -m pytest -q tests/test_house.py

format: install ## let ruff write the format and the sure fixes
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

test: check ## check, then every test and every branch of the law (17 min)
	@scripts/test-tools
	$(PY) -m pytest -n $(JOBS) --cov --cov-report=term-missing

bench: install ## print the numbers of SPECIFICATION.md (25 min)
	$(PY) -m bench

simulate: install ## random fleets under the law; SEEDS=200, or one: SEED=17
	$(PY) -m fairnotice.testing.simulate $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

soak: install ## the long repeats: ten times the seeds, fresh chance, 700 kills
	@scripts/test-tools
	$(PY) -m fairnotice.testing.simulate --seeds $$(($(SEEDS) * 10))
	$(PY) -m pytest -n $(JOBS) --hypothesis-profile=soak tests/simulation/test_state_machine.py tests/metadata/test_pieces.py
	CONDUCTED_SEEDS=50 $(PY) -m pytest -n $(JOBS) tests/simulation/test_conducted.py
	TAKEOVER_ROUNDS=10 TAKEOVER_SEED=$$(date +%s) $(PY) -m pytest tests/acceptance/test_many_control_planes.py
	KILLS_SQLITE=500 KILLS_POSTGRES=200 $(PY) -m pytest -n $(JOBS) tests/conductor/test_killing.py
	ENDPOINTS_SECONDS=120 ENDPOINTS_SEED=$$$$ $(PY) -m pytest tests/acceptance/test_ten_endpoints.py
	$(PY) -m tests.load --seconds 300
	API_EXAMPLES=150 $(PY) -m pytest tests/control/test_openapi.py
	$(PY) -m tests.metadata.fuzz_requests -max_total_time=$(FUZZ_SECONDS)

demo-vms: ## a real VM through every impact, by libvirt; as root (1 min)
	@test "$$(id -u)" = 0 || { echo "VMs need root here: sudo make demo-vms" >&2; exit 1; }
	@$(MAKE) --silent --no-print-directory install
	@scripts/vm-tools
	@chown -R --reference=Makefile .venv # with sudo, it is still that of whoever has the clone
	@PYTHONDONTWRITEBYTECODE=1 $(PY) -m tests.vms

diagram: install ## draw docs/reference/states.md from engine/transitions.py
	$(PY) scripts/diagram.py

reference: install ## write the generated pages of docs/reference/ from the code
	$(PY) scripts/reference.py

picture: install ## draw docs/pictures/ from a real service
	$(PY) scripts/picture.py
	$(PY) scripts/portal_pictures.py

lock: ## pin the newest versions into the lock files
	scripts/lock

clean: ## remove .venv and all that the tools left behind
	rm -rf .venv .venv-clients .venv-azure .venv-sdks tests/portal/node_modules tests/arm/node_modules .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
