# The one-command set-ups of the README. PYTHON is any Python >= 3.11 with venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TASK ?= move-standup

.PHONY: demo test lint

# A whole episode, no Docker needed. TASK may be a task file of your own.
demo: $(VENV)/.installed
	$(BIN)/gymctl doctor local
	$(BIN)/gymctl run agent-environment --runner local --task $(TASK) --agent oracle --rm
	$(BIN)/gymctl ps

test: $(VENV)/.test
	@LONG=$(LONG) NO_SKIP=$(NO_SKIP) $(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	MYPYPATH=images $(BIN)/mypy gymctl tests/*.py tests/bench tests/runners tests/vm
	MYPYPATH=images/agent-environment:images $(BIN)/mypy images/_server images/_verify images/agent-environment/server tests/images/agent_environment tests/images/*.py
	MYPYPATH=images:images/linux-desktop $(BIN)/mypy images/_guest images/linux-desktop tests/images/guest
	MYPYPATH=images/calendr:images $(BIN)/mypy images/_web images/calendr/server tests/images/web tests/images/calendr

$(VENV)/.installed: pyproject.toml
	@echo '$$ $(PYTHON) -m venv $(VENV) && $(BIN)/pip install -e .'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'desktop-env==1.0.2' # OSWorld's client alone: with what it names it is 7 GB
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,lint]'
	@touch $@
