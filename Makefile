# Both `make demo` and `make test` do all the set-up themselves: a virtual environment in .venv, once.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint docs bench clean

demo: .venv/installed
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/quickstart.sh

test: .venv/installed
	$(BIN)/pytest -n 2 --dist loadfile

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in site/: open site/index.html. Needs no network once its tools are installed.
docs: .venv/installed-docs
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo site/index.html

bench: .venv/installed
	$(BIN)/python benchmarks/run.py

# Without PYTHONWARNINGS setuptools shows a banner about editable installations, whatever --quiet says.
.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group docs
	touch $@

clean:
	rm -rf .venv build dist site *.egg-info
