# make demo   answer a word problem with the model that ships, without and with speculation, and compare
# make test   ruff, mypy and all tests
# make test-kernels   the GPU kernels alone: all tests in Triton's interpreter, and every configuration compiled
# make test-docs  the commands in README.md and docs/, run as they are written: half an hour
# make lint   ruff and mypy
# make results   measure the shipped model again, on a quiet machine: half an hour, into benchmarks/results
# make clean  remove the virtual environment and everything that was generated
#
# Uses a virtual environment in .venv. PyTorch is installed there only if $(PYTHON) has no supported one of its own.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# held out from training: its sentences, some of its words, and its numbers
DEMO_PROMPT ?= Lars jogs 33 blocks each morning for 8 mornings. Petra jogs 57 blocks more than Lars. \
How many blocks do the two jog in all?

.PHONY: help demo test test-kernels test-docs lint results clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# make/make/p' Makefile

demo: $(VENV)/.installed
	$(BIN)/outrider generate --chat --compare "$(DEMO_PROMPT)"

test: lint
	$(BIN)/python -m pytest -m "not slow"

test-kernels: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/ops/triton tests/ops/test_kv_rows.py

test-docs: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/test_documented_commands.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(wildcard src tests training benchmarks tools)

$(VENV)/.installed: pyproject.toml tools/environment.py
	$(PYTHON) tools/environment.py $(VENV)
	$(PIP) install --quiet --editable '.[cpu]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --quiet --editable '.[cpu,server,bench,dev]'
	@touch $@

RESULTS := benchmarks/results
results: $(VENV)/.installed-dev
	$(BIN)/outrider bench latency --dataset arithmetic --batch-size 1,2,4,8 --arms off,fixed:2,fixed:3,auto -o $(RESULTS)/latency_cpu.json
	$(BIN)/outrider bench serve --arms off,fixed:2,auto --concurrency 1,2,4,8 -o $(RESULTS)/serve_cpu.json
	$(BIN)/outrider bench plot $(RESULTS)/latency_cpu.json
	$(BIN)/outrider bench plot $(RESULTS)/serve_cpu.json
	$(BIN)/outrider eval --arms off,auto -o $(RESULTS)/eval_arithmetic.json
	$(BIN)/outrider eval --quantisation --limit 20 -o $(RESULTS)/quantisation.json
	$(BIN)/python benchmarks/client_crosscheck.py --json $(RESULTS)/client_crosscheck.json

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
