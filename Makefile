# `make run` shows everything, `make test` checks everything. Both do all set-up themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA_DIR ?= ./data
LISTEN ?= 127.0.0.1:9092
SOURCES := src tests bench
# More workers than cores, because most tests wait for something. tests/conftest.py makes the groups.
SIDE_BY_SIDE := --numprocesses 4 --dist loadgroup --no-loadscope-reorder
# The commands find the default address by themselves.
ASK := $(if $(filter 127.0.0.1:9092,$(LISTEN)),, -b $(LISTEN))

.PHONY: run node test lint format unit bench site soak clean help

help:
	@echo "make run           a node on $(LISTEN), its console, traffic and the pipeline; ARGS='--for 60' ends"
	@echo "make node          start a node alone, with its data in $(DATA_DIR)"
	@echo "make test          lint, types, import contracts and all tests"
	@echo "make unit          only the quick tests; ARGS=tests/storage for those of one package"
	@echo "make lint          ruff, mypy and the import contracts"
	@echo "make format        let ruff format the code"
	@echo "make bench         beside Apache Kafka, 45 minutes; ARGS=--quick for 8, ARGS=NAME for a part"
	@echo "make site          build the documentation into build/site"
	@echo "make soak NAME=x   one long fault test; without NAME it lists them"

run: $(VENV)/installed
	@PYTHON=$(PYTHON) sh scripts/run_all.sh $(BIN) $(DATA_DIR) $(LISTEN) $(ARGS)

node: $(VENV)/installed
	@echo "Millstream on $(LISTEN), data in $(DATA_DIR). In another terminal, try:"
	@echo "  $(BIN)/millstream topic create hello$(ASK)"
	@echo "  echo 'my first record' | $(BIN)/millstream produce hello$(ASK)"
	@echo "  $(BIN)/millstream consume hello -o beginning -n 1$(ASK)"
	@exec $(BIN)/millstream broker --data-dir $(DATA_DIR) --listen $(LISTEN)

test: lint
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)

unit: $(VENV)/installed-dev
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow" $(ARGS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: $(VENV)/installed-bench
	@$(BIN)/python -m bench $(ARGS)

site: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

soak: $(VENV)/installed-dev
	$(BIN)/python -m tests.faults.soak $(NAME)

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# The stamps make a second run quick: they are redone when a dependency, or what is compiled,
# may have changed.
COMPILED := setup.py $(wildcard src/millstream/*/*.h src/millstream/*/*.pyx src/millstream/*/*.pxd src/millstream/*/*/*.pyx src/millstream/*/*/*.pxd)
$(VENV)/installed: pyproject.toml constraints.txt $(COMPILED)
	@PYTHON=$(PYTHON) sh scripts/prepare_machine.sh run
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Millstream into $(VENV), once: about 20 MB to download."
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[console]'
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt $(COMPILED)
	@PYTHON=$(PYTHON) sh scripts/prepare_machine.sh test
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(VENV)/installed $@

$(VENV)/installed-bench: $(VENV)/installed-dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@
