# make demo   answer a word problem with the model that ships, without and with speculation, and compare
# make test   ruff, mypy and all tests
# make lint   ruff and mypy
# make clean  remove the virtual environment and everything that was generated
#
# Uses a virtual environment in .venv. PyTorch is installed there only if $(PYTHON) has no supported one of its own.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# a problem from the held-out split of outrider.evaluation.arithmetic: neither its story nor its numbers were trained on
DEMO_PROMPT ?= A florist sells 7 roses for 32 dollars each and 8 tulips for 31 dollars each. \
How much do the flowers cost altogether?

.PHONY: help demo test lint clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# make/make/p' Makefile

demo: $(VENV)/.installed
	$(BIN)/outrider generate --chat --compare "$(DEMO_PROMPT)"

test: lint
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(wildcard src tests training benchmarks tools)

$(VENV)/.installed: pyproject.toml tools/environment.py
	$(PYTHON) tools/environment.py $(VENV)
	$(PIP) install --quiet --editable '.[cpu]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --quiet --editable '.[cpu,dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
