# gpudoctor: everything runs in .venv with pip; `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS ?=
PYTEST_ARGS ?=
JOBS ?= 2
GPU_CHECK_ARGS ?=
DEMO := samples/loader-stall/train.py

PIP_INSTALL = $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt $(PIP_FLAGS)

.DEFAULT_GOAL := help
.PHONY: help demo venv browser test check gpu-check format docs screenshot clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## diagnose a sample script; the report's path is the last line printed
	@$(BIN)/gpudoctor check $(DEMO)

venv: $(VENV)/.dev ## .venv with gpudoctor and the development tools

test: $(VENV)/.dev browser ## the whole test suite (PYTEST_ARGS="-k name" narrows it)
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(PYTEST_ARGS)

check: $(VENV)/.dev ## linters, types, rule examples, generated docs up to date
	@echo "ruff check";              $(BIN)/ruff check .
	@echo "ruff format --check";     $(BIN)/ruff format --check .
	@echo "mypy";                    $(BIN)/mypy
	@echo "gpudoctor rules test";    $(BIN)/gpudoctor rules test
	@echo "docs/rules.md";           $(BIN)/gpudoctor rules docs --check
	@echo "diagnosis.schema.json";   $(BIN)/python scripts/diagnosis_schema.py --check

gpu-check: $(VENV)/.installed ## on a machine with a GPU: every sample and its twin (GPU_CHECK_ARGS="--only host-sync")
	@$(BIN)/python scripts/gpu_check.py $(GPU_CHECK_ARGS)

format: $(VENV)/.dev ## format the code and fix what the linter can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.dev ## regenerate docs/rules.md, docs/diagnosis.schema.json and docs/gallery
	@$(BIN)/gpudoctor rules docs
	@$(BIN)/python scripts/diagnosis_schema.py
	@$(BIN)/python scripts/gallery.py

screenshot: $(VENV)/.dev browser ## docs/report.png from a fresh report on a sample
	@report=$$($(BIN)/gpudoctor check $(DEMO) | tail -n 1) && $(BIN)/python scripts/screenshot.py "$$report" docs/report.png

clean: ## remove .venv, recordings, caches and build output
	rm -rf $(VENV) .gpudoctor gpu-check build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

browser:
	@sh scripts/ensure_browser.sh

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "gpudoctor needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo not there). Try: make PYTHON=python3.12" >&2; exit 2; }
	@echo "creating $(VENV) and installing gpudoctor and torch into it (minutes when nothing is cached) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo "installing the development tools into $(VENV) ..."
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@
