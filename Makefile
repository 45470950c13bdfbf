# Both `make demo` and `make test` do all the set-up themselves: a virtual environment in .venv, once.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench clean

demo: .venv/installed
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/quickstart.sh

test: .venv/installed
	$(BIN)/pytest -n 2 --dist loadfile

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed
	$(BIN)/python benchmarks/run.py

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
