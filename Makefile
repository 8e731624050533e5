# Everything builds its own environments: .venv for us, .venv-peers for us beside other tools, .venv-ours as a user has us,
# .venv-vllm and .venv-llama for two servers.
# Every target can be repeated at any time.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers/bin
STAMP := $(VENV)/.installed
INSTALL := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

# Every process of a test compiles the sources anew where nothing may be written.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-cluster test-servers lint docs package benchmarks clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   environment + every protocol on the bundled models and questions"
	@echo "make test   both environments + all tests, then those beside other tools"
	@echo "make test-cluster  environment + the tests on a Ray cluster of three nodes on this machine"
	@echo "make test-servers  environments of two servers (one is compiled: minutes) + the tests beside them"
	@echo "make lint   environment + ruff and mypy"
	@echo "make docs   environment + the site of docs/, in site/; a warning is an error"
	@echo "make package  wheel and sdist: what they hold, and that they work with the oldest and newest dependencies"
	@echo "make benchmarks  environments + the harness, the harness on our engine, and our own command (ten minutes)"

$(STAMP): EXTRAS := hf,serve,dev
.venv-peers/.installed: EXTRAS := peers
.venv-ours/.installed: EXTRAS := hf,server
%/.installed: pyproject.toml constraints.txt
	test -x $*/bin/python || $(PYTHON) -m venv $*
	$*/bin/python $(INSTALL) '.[$(EXTRAS)]'
	touch $@

# Their requirements are complete and installed as they are: what vLLM needs for GPUs, pictures and sound is left out.
SERVER_INSTALL = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --requirement

.venv-vllm/.installed: tests/servers/vllm.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(SERVER_INSTALL) $<
	touch $@

.venv-llama/.installed: export CMAKE_ARGS = -DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF \
  -DGGML_CPU_REPACK=OFF -DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
  -DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/tests/servers/llama.cmake
.venv-llama/.installed: tests/servers/llama.txt tests/servers/llama.cmake
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(SERVER_INSTALL) $<
	touch $@

demo: $(STAMP)
	$(BIN)/choicewise demo --out demo-run

test: $(STAMP) .venv-peers/.installed
	$(BIN)/python -m pytest -n auto --dist worksteal
	$(PEERS)/python -m pytest -n auto --dist worksteal tests/peers

test-cluster: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/cluster

test-servers: $(STAMP) .venv-vllm/.installed .venv-llama/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/servers

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

docs: $(STAMP)
	$(BIN)/python docs/generate.py --check
	$(BIN)/zensical build --clean --strict

package: $(STAMP)
	PYTHON=$(PYTHON) .ci/package

benchmarks: $(STAMP) .venv-peers/.installed .venv-ours/.installed
	$(BIN)/python benchmarks/side_by_side.py
	$(BIN)/python benchmarks/page.py

clean:
	rm -rf $(VENV) .venv-peers .venv-ours .venv-vllm .venv-llama demo-run site
