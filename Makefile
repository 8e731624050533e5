# Everything builds its own environment in .venv; both targets can be repeated at any time.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint benchmarks clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   environment + every protocol on the bundled models and questions"
	@echo "make test   environment + all tests"
	@echo "make lint   environment + ruff and mypy"
	@echo "make benchmarks  both environments + the harness against ours (minutes)"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[hf,serve,dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/choicewise demo --out demo-run

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

.venv-peers: benchmarks/peers-constraints.txt constraints.txt pyproject.toml
	PYTHON=$(PYTHON) benchmarks/environments.sh
	touch $@

benchmarks: $(STAMP) .venv-peers
	$(BIN)/python benchmarks/harness.py --workload mmlu-letters --workload hellaswag-100 --workload arc-easy
	$(BIN)/python benchmarks/page.py

clean:
	rm -rf $(VENV) demo-run
