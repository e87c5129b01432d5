# `make demo` and `make test` also create .venv/ if it does not exist.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint setup campaign audit clean docs docs-serve ruff types imports

demo: .venv/.ready
	$(BIN)/tdvae run oscillator --preset demo

# Every test uses one thread; two workers share the tests, so two cores are used throughout.
test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: .venv/.ready
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target ruff types imports

ruff:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports

# Kills, damaged files, fuzzed calls and wrong command lines; takes about a quarter of an hour.
campaign: .venv/.ready
	$(BIN)/python -m tests.campaign --out results

# Known vulnerabilities of the pinned versions; needs the network.
audit: .venv/.ready
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

# The documentation as a site, in site/; needs no network. A broken link or an unknown name is an error. The gallery of the
# explorer, which its page shows, is computed anew.
docs: .venv/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/tdvae explore --export site/gallery
	@echo "open site/index.html; the search needs make docs-serve"

# The same on this machine's loopback address, built again when a page changes.
docs-serve: .venv/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

setup: .venv/.ready

# .ready is written last, so an interrupted set-up is repeated.
.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache .hypothesis
