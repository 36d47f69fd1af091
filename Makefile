# One word for each chore. `make demo` and `make test` start from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
PACKAGE := $(VENV)/.package
DEV := $(VENV)/.dev
BENCH := $(VENV)/.bench

# One thread a process: tests run in parallel processes, and small tensors gain nothing from more.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test setup fix check slow bench clean

demo: $(PACKAGE)
	$(BIN)/tailbatch demo

test: $(DEV) check
	$(BIN)/python -m pytest -n 2

setup: $(DEV)
	$(BIN)/pre-commit install

fix: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: $(DEV)
	$(BIN)/python -m pytest -m slow

bench: $(BENCH)
	$(BIN)/python -m benchmarks $(ONLY)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist

$(PACKAGE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "tailbatch needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(DEV): $(PACKAGE)
	$(PIP) --editable ".[dev]"
	touch $@

$(BENCH): $(DEV)
	$(PIP) --editable ".[dev,bench]"
	touch $@
