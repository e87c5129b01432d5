# `make demo` and `make test` also create .venv/ if it does not exist.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint setup clean

demo: .venv/.ready
	$(BIN)/tdvae run oscillator --preset demo

test: .venv/.ready lint
	$(BIN)/python -m pytest

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: .venv/.ready

# .ready is written last, so an interrupted set-up is repeated.
.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
