PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

check:
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
