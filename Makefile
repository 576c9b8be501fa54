# `make lab` opens the course; `make test` checks all of it. Each sets up what it needs.

# The first of these that is Python 3.11 or later; `make PYTHON=/path/to/python3.12` takes yours.
PYTHON ?= python3.13 python3.12 python3.11 python3
FITS := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
find_python = for python in $(PYTHON); do "$$python" -c "$(FITS)" 2>/dev/null && break; python=; done
VENV := .venv
PY := $(VENV)/bin/python
FIRST = $(firstword $(sort $(wildcard notebooks/[0-9]*.ipynb)))

# JupyterLab keeps its files in this folder: your own settings are neither read nor changed.
JUPYTER := .jupyter
NEWS := $(JUPYTER)/settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings
export JUPYTER_CONFIG_DIR := $(CURDIR)/$(JUPYTER)/config
export JUPYTER_DATA_DIR := $(CURDIR)/$(JUPYTER)/data
export JUPYTERLAB_SETTINGS_DIR := $(CURDIR)/$(JUPYTER)/settings
export JUPYTERLAB_WORKSPACES_DIR := $(CURDIR)/$(JUPYTER)/workspaces
export IPYTHONDIR := $(CURDIR)/$(JUPYTER)/ipython

# As in kvviz/threads.py, also for a kernel that loads torch first; a value of your own is kept.
ifndef OMP_WAIT_POLICY
export GOMP_SPINCOUNT ?= 1000
export KMP_BLOCKTIME ?= 1
endif

AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: lab test lint refresh bench pictures site handout model python clean

lab: $(VENV)/installed $(NEWS) model # LAB_ARGS="--no-browser --port=8899"
	$(if $(FIRST),,$(error There is no notebook in notebooks/))
	$(PY) -m nbformat.sign notebooks/*.ipynb >/dev/null # trusted, so stored pictures show at once
	$(PY) -m jupyterlab $(FIRST) --config=tools/lab_config.py --ServerApp.root_dir="$(CURDIR)" $(AS_ROOT) $(LAB_ARGS)

test: $(VENV)/installed-test model # TEST_ARGS="tests/test_setup.py"
	$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(TEST_ARGS)

lint: $(VENV)/installed-test
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m tools.hygiene

refresh: $(VENV)/installed-test model # NB=notebooks/01-one-row-is-enough.ipynb
	$(PY) -m tools.notebooks $(NB)

bench: $(VENV)/installed-test model
	$(PY) -m benchmarks

pictures: $(VENV)/installed-test model
	$(PY) -m tools.readme
	$(PY) -m tools.pictures

site: $(VENV)/installed model # build/site/index.html
	$(PY) -m tools.site

handout: $(VENV)/installed # build/handout and build/handout.zip
	$(PY) -m tools.handout

model: $(VENV)/installed
	$(PY) -c "from kvviz import models; models.kept_folder() or models.load_model()"

clean:
	rm -rf $(VENV) $(JUPYTER) .pytest_cache .ruff_cache build kvviz.egg-info

python: # which Python is taken
	@$(find_python); [ -n "$$python" ] && command -v "$$python"

$(PY):
	@$(find_python); [ -n "$$python" ] || { echo "No Python 3.11 or later that can make a virtual \
	environment was found among: $(PYTHON). Install one (Debian and Ubuntu: python3-venv, too), \
	or name yours: make PYTHON=/path/to/python3.12 ..."; exit 1; }; \
	exec "$$python" -m venv $(VENV)

$(VENV)/installed: pyproject.toml constraints.txt | $(PY)
	$(PY) -m pip install -c constraints.txt -e .
	touch $@

$(VENV)/installed-test: pyproject.toml constraints.txt | $(PY)
	$(PY) -m pip install -c constraints.txt -e '.[test]'
	touch $@ $(VENV)/installed

$(NEWS): # no news pop-up, no check for updates
	mkdir -p "$(@D)"
	echo '{"fetchNews": "false", "checkForUpdates": false}' > "$@"
