# make demo   prepare sample_data and evaluate its model
# make test   everything that is checked
# make test-all   the same, and the tests that take minutes: every step killed, long fuzzing
# make bench  times against other tools; results in benchmarks/results, tables by benchmarks/harness.py
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := work/demo
BENCHMARKS := $(filter-out harness,$(basename $(notdir $(wildcard benchmarks/*.py))))

.PHONY: demo test test-all bench format lint types imports spelling tests clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev,fast,report,sentences,text,dask,s3,zh]'
	touch $@

demo: $(READY)
	$(BIN)/clozeline run sample_data/corpus $(DEMO) --config sample_data/demo.toml --force
	$(BIN)/clozeline verify $(DEMO)/masked
	$(BIN)/clozeline show $(DEMO)/masked --rows 1
	$(BIN)/clozeline evaluate $(DEMO)/masked --model sample_data/model

test: lint types imports spelling tests

bench: $(READY)
	for subject in $(BENCHMARKS); do $(BIN)/python benchmarks/$$subject.py || exit 1; done
	$(BIN)/python benchmarks/harness.py benchmarks/results/*.json

test-all: lint types imports spelling $(READY)
	$(BIN)/python -m pytest -m 'slow or not slow'

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy --config-file setup.cfg

imports: $(READY)
	$(BIN)/lint-imports --config setup.cfg

spelling: $(READY)
	$(BIN)/codespell

tests: $(READY)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

clean:
	rm -rf $(VENV) work build .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
