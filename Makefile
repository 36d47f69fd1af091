# One word for each chore. `make demo` and `make test` start from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
PACKAGE := $(VENV)/.package
DEV := $(VENV)/.dev
BENCH := $(VENV)/.bench
FUZZ := $(VENV)/.fuzz
DOCS := $(VENV)/.docs
QUALITY := $(VENV)/.quality

# One thread a process: tests run in parallel processes, and small tensors gain nothing from more.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test setup fix check slow bench reproduction clean docs screenshots
.PHONY: coverage mutation audit package minimal fuzz paper

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

# Processor minutes for each target; ONLY="arff xml" names some of them.
MINUTES ?= 10
fuzz: $(FUZZ)
	$(BIN)/python -m fuzzing --minutes $(MINUTES) $(ONLY)

# Branch coverage of the core rooms. Interpreters that the tests start are counted, killed ones are not.
CORE_TESTS := src $(addprefix tests/,data models paper selection study training integrations/test_distributed.py) $(addprefix tests/,analysis ground metrics package results)
coverage: $(QUALITY)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 $(CORE_TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/python scripts/coverage_by_room.py

mutation: $(QUALITY)
	nice -n 10 $(BIN)/python scripts/mutation.py --sample $(or $(SAMPLE),250)

# Needs the network: pip-audit asks the advisory service of the Python Package Index. Exit code 1: some
# packages have a known weakness. 2: the check could not be made, which is not the same as none found.
audit: $(QUALITY)
	$(BIN)/python scripts/audit.py

# Into dist/: wheel, sdist, and the bill of materials (CycloneDX) of what installing them installs.
package: $(DEV)
	$(BIN)/python scripts/package.py

minimal: $(DEV)
	$(BIN)/python scripts/versions.py --oldest

# Rebuilds docs/reproduction.md, most of docs/reproduction/ and their numbers elsewhere; with
# STORE=folder, collects the records of the first. Those of the others: python -m reproduction.few_epochs
# collect FOLDER and python -m reproduction.finetune FOLDER
reproduction: $(DEV)
	$(BIN)/python -m reproduction $(STORE)
	$(BIN)/python -m reproduction.few_epochs
	$(BIN)/python -m reproduction.finetune

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(DOCS)
	$(BIN)/mkdocs build --strict
	TAILBATCH_SITE=site $(BIN)/python -m pytest tests/pages/test_site.py

# Into build/: the short paper of the replication, as PDF.
paper: $(DOCS)
	$(BIN)/python scripts/print_paper.py

screenshots: $(DOCS)
	$(BIN)/python scripts/screenshots.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist site

$(PACKAGE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "tailbatch needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[cli]"
	touch $@

$(DEV): $(PACKAGE)
	$(PIP) --editable ".[dev]"
	touch $@

$(QUALITY): $(DEV)
	$(PIP) --editable ".[quality]"
	touch $@

$(FUZZ): $(DEV)
	$(PIP) --editable ".[dev,fuzz]"
	touch $@

$(BENCH): $(DEV)
	$(PIP) --editable ".[dev,bench]"
	touch $@

$(DOCS): $(DEV)
	$(PIP) --editable ".[dev,docs]"
	touch $@
