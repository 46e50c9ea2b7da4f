# gradsweep: `make sweep` and `make test` set everything up; `make help` lists the rest.

PYTHON  ?= python3
VENV    ?= .venv
EXTRAS  ?= jax,exact,report,dumps
WORKERS ?= 2
ARGS    ?=

# One process per core is the parallelism here; threads inside BLAS would only fight over the cores.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install sweep test lint lint-tools bench clean distclean

comma := ,
space := $(subst ,, )
extras := $(subst $(space),,$(EXTRAS))
words := $(subst $(comma), ,$(extras))

# A stamp for each set of extras: another set installs, a set already installed does nothing.
stamp := $(VENV)/.installed-$(subst $(comma),+,$(or $(extras),core))
dev_stamp := $(if $(filter all dev,$(words)),$(stamp),$(VENV)/.installed-dev)

help: ## show this list
	@echo "usage: make TARGET [VENV=$(VENV)] [PYTHON=$(PYTHON)] [EXTRAS=$(EXTRAS)] [WORKERS=$(WORKERS)] [ARGS=...]"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14
	@echo "EXTRAS=all installs every optional package (PyTorch among them); ARGS is passed on to the command."

install: $(stamp) ## create VENV if absent and install gradsweep with EXTRAS into it
	@echo "install: $(VENV) holds gradsweep[$(extras)]"

sweep: $(stamp) ## run the op sweep on WORKERS processes and write the report
	@echo "sweep: every op, every sample, every surface, on $(WORKERS) workers"
	@$(VENV)/bin/gradsweep sweep --workers $(WORKERS) $(ARGS)

test: $(stamp) ## run the test suite on WORKERS processes
	@echo "test: pytest on $(WORKERS) workers"
	@$(VENV)/bin/python -m pytest -n $(WORKERS) --dist=worksteal $(ARGS)

# A VENV that was named is used as it is; into .venv go the tools that are missing.
lint: $(if $(filter file,$(origin VENV)),$(dev_stamp),lint-tools) ## ruff check, ruff format --check, mypy
	@echo "lint: ruff check"
	@$(VENV)/bin/python -m ruff check .
	@echo "lint: ruff format --check"
	@$(VENV)/bin/python -m ruff format --check .
	@echo "lint: mypy"
	@$(VENV)/bin/python -m mypy

lint-tools:
	@for tool in ruff mypy; do \
	  $(VENV)/bin/python -m $$tool --version >/dev/null 2>&1 || missing="$$missing $$tool"; done; \
	  test -z "$$missing" || { echo "lint: $(VENV) lacks$$missing; nothing was installed into it:" \
	  "make install VENV=$(VENV) EXTRAS=dev" >&2; exit 1; }

bench: $(stamp) $(dev_stamp) ## run the benchmarks (they report, they never fail on a time)
	@echo "bench: python -m benchmarks"
	@$(VENV)/bin/python -m benchmarks $(ARGS)

clean: ## remove what was built and every cache; VENV stays
	@echo "clean: build/ dist/ caches"
	@rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage
	@find $(wildcard autodiff catalogue checks benchmarks tests) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv
	@echo "distclean: .venv"
	@rm -rf .venv

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gradsweep needs Python 3.11 or newer; $(PYTHON) is absent or older: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "install: creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -f $@; echo "creating $(VENV) failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

# pip never removes what an earlier set of extras brought, so stamps of other sets stay true
# until pyproject.toml or constraints.txt changes.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "install: gradsweep[$(subst +,$(comma),$*)] into $(VENV) (some minutes the first time)"
	@$(VENV)/bin/python -m pip install -c constraints.txt -e '.$(if $(filter core,$*),,[$(subst +,$(comma),$*)])'
	@touch $@
