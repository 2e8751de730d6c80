# Every target sets up what it needs in .venv from Python alone: `make demo` and `make test` work on a bare checkout.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
READY := $(VENV)/.ready
SERVE := $(VENV)/.serve
FUZZ := $(VENV)/.fuzz
unexport PYTHONDONTWRITEBYTECODE  # the processes that tests start then load compiled modules

# Installs the package with its extras. pip prints nothing while it works, so a line says so every eight seconds.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
define INSTALL
@echo "Installing $(1) in $(VENV), once"
@(while sleep 8; do echo "  still installing"; done) & ticker=$$!; \
	$(PIP) --editable '$(1)'; \
	status=$$?; kill $$ticker; exit $$status
endef

.PHONY: demo lab test test-cluster check format docs bench clean torture fuzz

demo: $(CORE)  ## simulate three weeks of clicks, fit, predict, and say where everything was written
	$(BIN)/reclick demo --to demo

lab: $(SERVE)  ## the ad lab in a browser, on the model of the demo
	test -d demo/model || $(BIN)/reclick demo --to demo
	$(BIN)/reclick serve demo/model --port 8080

test: $(READY)  ## the whole test suite
	$(BIN)/python -m pytest --numprocesses 2

test-cluster: $(READY)  ## Spark on a cluster of two workers, Spark Connect, killed processes, and Ray: ten minutes
	$(PIP) 'pyspark[connect]' ray
	$(BIN)/python -m pytest -q tests_cluster tests/engines/test_ray.py

check: $(READY)  ## ruff, mypy strict, and the contracts of layers and names
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/contracts

format: $(READY)  ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the site of the documentation; every warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs build/docs
	@echo "Documentation: build/docs/index.html"

bench: $(READY)  ## speed, memory and accuracy, each with its limit beside it
	$(BIN)/python -m bench

SEED ?= 0
MINUTES ?= 20

torture: $(READY)  ## damaged inputs, kills, full disks, forged folders, rivals: SEED=0 MINUTES=20
	$(BIN)/python -W ignore -m torture --seed $(SEED) --minutes $(MINUTES)

fuzz: $(FUZZ)  ## coverage-guided fuzzing of the readers: FORMAT=ubi MINUTES=20
	$(BIN)/python -W ignore -m torture.fuzz --minutes $(MINUTES) $(if $(FORMAT),--format $(FORMAT))

clean:
	rm -rf $(VENV) demo build dist .mypy_cache .pytest_cache .ruff_cache

# The pip that comes with Python 3.11 takes twice as long for the rest.
$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@$(PIP) pip
	$(call INSTALL,.)
	touch $(CORE)

$(READY): $(CORE)
	$(call INSTALL,.[dev])
	touch $(READY)

$(SERVE): $(CORE)
	$(call INSTALL,.[serve])
	touch $(SERVE)

$(FUZZ): $(READY)
	$(call INSTALL,.[fuzz])
	touch $(FUZZ)
