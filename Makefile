# Everything a reader needs: `make help` lists it.
# `make all` and `make test` need nothing but make and one of the Pythons below: they set up .venv themselves.

SHELL         := /bin/bash
.DEFAULT_GOAL := help

PROFILE ?= quick
DEVICE  ?= auto
ENGINE  ?= local
ADDRESS ?=
VENV    ?= .venv
FRESH   ?=
N       ?= 5
JOBS    ?=
MINUTES ?= 20
SEED    ?=
LAB     ?=
# Those that were tried come first.
PYTHON  ?= $(shell for p in python3.11 python3.13 python3.12 python3 python; do \
             $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)

# One thread a process, and as many processes as cores: on small graphs a second thread slows both down.
export OMP_NUM_THREADS := 1

ifneq ($(ADDRESS),)
export FEDREPRO_ADDRESS := $(ADDRESS)
endif
ifneq ($(filter-out 0,$(FRESH)),)
export FEDREPRO_STORE   := $(CURDIR)/build/fresh/results
export FEDREPRO_FIGURES := $(CURDIR)/build/fresh/figures
endif

ifeq ($(VENV),none)
ENVIRONMENT := found-python
SITE        := found-site
PY           = $(PYTHON)
else
ENVIRONMENT := $(VENV)/.installed
SITE        := $(VENV)/.site
PY          := $(VENV)/bin/python
endif
FEDREPRO = $(PY) -m fedrepro
AT_ONCE  = $(if $(JOBS),--jobs $(JOBS))
RUN      = $(FEDREPRO) run --profile $(PROFILE) --device $(DEVICE) --engine $(ENGINE) $(AT_ONCE)
PAPERS  := $(notdir $(patsubst %/,%,$(wildcard notebooks/*/)))

.PHONY: help found-python found-site environment all $(PAPERS) site site-test smoke gpu-report test faults check lab \
        verify bench report clean

help:  ## this list
	@echo "usage: make TARGET [PROFILE=quick] [DEVICE=auto] [ENGINE=local] [VENV=.venv] [FRESH=1]"; echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r t d; do printf '  %-12s %s\n' "$$t" "$$d"; done
	@for p in $(PAPERS); do printf '  %-12s %s\n' $$p "the notebooks of notebooks/$$p"; done
	@echo
	@echo "  PROFILE=smoke|quick|paper   how much is computed; what the store holds is never computed again"
	@echo "  DEVICE=auto|cpu|cuda        where"
	@echo "  ENGINE=local|dask|slurm     on what (dask: ADDRESS=tcp://host:port)"
	@echo "  FRESH=1                     leave the store aside: results and figures go to build/fresh, and go on from there"
	@echo "  VENV=none                   the current interpreter instead of .venv;  PYTHON=... another one"
	@echo "  JOBS=4                      notebooks run at once, by default one more than cores;  N=5 runs that verify recomputes"
	@echo "  LAB='--ip 0.0.0.0 --no-browser'   options of JupyterLab"
	@echo "  MINUTES=20                  how long faults goes on;  SEED=7 what it draws, else a new seed, which is printed"

all: $(ENVIRONMENT)  ## environment, every notebook on all cores, report, site
	@$(RUN) all; status=$$?; $(FEDREPRO) report || status=1; \
	if $(MAKE) --no-print-directory $(SITE) >/dev/null 2>&1; then $(FEDREPRO) site || status=1; \
	else echo "The site is not built, since its packages cannot be installed; make site says why."; fi; exit $$status

$(PAPERS): $(ENVIRONMENT)
	$(RUN) $@

site: $(SITE)  ## the notebooks with their outputs, the answers, the explorer: build/site
	$(FEDREPRO) site --profile $(PROFILE)

site-test: $(SITE)  ## open the site in a browser and check pages, links, mathematics and the explorer
	$(if $(filter none,$(VENV)),,$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[browser]" || true)
	$(FEDREPRO) site --profile $(PROFILE)
	FEDREPRO_SITE=$(if $(filter smoke,$(PROFILE)),build/smoke/site,build/site) $(PY) -m pytest tests/reporting/site/test_browser.py

smoke: $(ENVIRONMENT)  ## every notebook, two rounds a run, offline, from an empty throw-away store (DEVICE=cuda too)
	$(FEDREPRO) run all --profile smoke --device $(if $(filter auto,$(DEVICE)),cpu,$(DEVICE)) $(AT_ONCE)

gpu-report: $(ENVIRONMENT)  ## try a GPU for ten minutes: notebooks, every method against the CPU, speed, memory
	$(PY) -m fedrepro.papers.engine.gpu

test: $(ENVIRONMENT)  ## the test suite, on two processes
	$(PY) -m pytest -n 2

faults: export PYTHONPATH := $(CURDIR):$(CURDIR)/tests
faults: $(ENVIRONMENT)  ## kill sweeps, share, damage and overfill stores for MINUTES; `make test` has a short form
	$(PY) -m faults.campaign --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

check: $(ENVIRONMENT)  ## linter, type checker and the rules of prose
	$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy && $(PY) -m pytest -q tests/test_prose.py

lab: $(ENVIRONMENT)  ## open the repository in JupyterLab; what is saved in notebooks/ has no outputs
	$(PY) -m jupyter lab --config fedrepro/reporting/lab.py $(if $(filter 0,$(shell id -u)),--allow-root) \
	  --ServerApp.root_dir="$(CURDIR)" $(LAB)

verify: $(ENVIRONMENT)  ## recompute N stored runs and compare, stale ones first; says first how long they took
	$(FEDREPRO) verify -n $(N)

bench: $(ENVIRONMENT)  ## the speed tables of engine/4-speed (FRESH=1 measures this machine)
	$(FEDREPRO) run engine/4-speed --profile paper --device $(DEVICE)

report: $(ENVIRONMENT)  ## rewrite the gallery and the state of every exhibit
	$(FEDREPRO) report

# In build also lies what nobody could build again: results of one's own, notebooks that were edited, and FRESH=1.
clean:  ## remove what was built; results, figures, your runs and edited notebooks, downloads and .venv stay
	rm -rf $(filter-out build/fresh build/mine build/edit,$(wildcard build/*)) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find fedrepro tests notebooks -name __pycache__ -o -name .ipynb_checkpoints 2>/dev/null | xargs rm -rf

environment: $(ENVIRONMENT)  ## set up .venv (done by the others when needed)

found-python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 to 3.13 found. Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }

found-site: found-python
	@$(PY) -c "import myst_nb, pydata_sphinx_theme, sphinx"

$(VENV)/.site: $(VENV)/.installed
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[site]"
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | found-python
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev,dask,slurm]"
	@touch $@
