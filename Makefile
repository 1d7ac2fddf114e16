# The same names that CI uses. Each target makes its own virtual environment in the checkout.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# The demonstration needs the base install alone: a tenth of the developers' tools.
DEMO := .venv-demo
# The lowest versions that pyproject.toml allows, and what needs them most.
LOWEST := .venv-lowest
LOWEST_TESTS := tests/apiserver/http tests/apiserver/access/authentication tests/apiserver/storage/test_etcd.py tests/values \
  tests/cel tests/contracts tests/cli/test_start.py tests/cli/test_completion.py tests/allocation
# Tests start hundreds of processes. Where Python is told to write no bytecode, as in many images,
# each of them would compile the package anew, for a second.
COMPILE := $(BIN)/python -m compileall -q -j 2 src
# A worker of pytest per core, up to four: each collects all tests anew.
WORKERS := -n auto --maxprocesses 4
MARKS := not conformance and not thorough

.DEFAULT_GOAL := help
.PHONY: help demo test lowest thorough again check types style format bench docs rules conformance nightly release mutants generate surface ui clean

help: ## show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --editable '.[etcd,grpc,optimal,parquet,picture,simkube,training,zeromq]' --group dev
	@touch $(READY)

$(DEMO)/.ready: pyproject.toml
	@test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	@$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $(DEMO)/.ready

demo: $(DEMO)/.ready ## a first pod that gets its device
	@$(DEMO)/bin/dralab demo

test: $(READY) ## the test suite, without what takes a test more than a second
	@$(COMPILE)
	$(BIN)/python -m pytest $(WORKERS) -q --timeout 300 -m '$(MARKS)'

lowest: ## tests of the server, CEL and the command line with the lowest versions of all dependencies
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(LOWEST)/bin/python tools/lowest.py etcd grpc > $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python -m pip install --quiet --constraint $(LOWEST)/lowest.txt --editable '.[etcd,grpc]' --group test
	$(LOWEST)/bin/python -m pytest -q --timeout 300 -m 'not conformance and not thorough' $(LOWEST_TESTS)

thorough: $(READY) ## the rest of the test suite: searches at length, whole traces, many processes
	@$(COMPILE)
	$(BIN)/python -m pytest $(WORKERS) -q --timeout 300 -m 'thorough and not conformance'

again: $(READY) ## run what failed in `make test` or `make thorough` once more, alone; refused for more than five
	@$(BIN)/python -c 'import json; n = len(json.load(open(".pytest_cache/v/cache/lastfailed"))); \
	exit(n > 5 and f"{n} tests failed: too many for chance")'
	$(BIN)/python -m pytest -q --timeout 300 -m 'not conformance' --last-failed --last-failed-no-failures none

check: types style ## style, types, architecture, spelling; `make -j 2 -O check` is faster

types: $(READY)
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell src tests docs examples README.md AGENTS.md CHANGELOG.md changes

format: $(READY) ## mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## measure; each benchmark prints a ratio to something named; build/bench.html has them over commits
	$(BIN)/python -m benchmarks

docs: $(READY) ## make the generated pages anew, check links, build the site into docs/_build
	$(BIN)/python tools/docs.py
	@$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python -m sphinx -q -W --keep-going -c docs/_site docs docs/_build
	@echo "the site: docs/_build/README.html"

rules: $(READY) ## record which rules of objects the tests reach, write docs/reference/rules.md
	$(BIN)/python tools/rules.py --record

conformance: $(READY) ## slow suites and real clients; ONLY="tests/cel" for a part
	@$(COMPILE)
	$(BIN)/python -m pytest -q --timeout 3600 -m conformance $(ONLY)

nightly: $(READY) ## attack for hours: 200,000 requests, histories, kills, watchers, seeds of faults and orders, new examples of properties, rights beside a real server
	@$(COMPILE)
	DRALAB_REQUESTS=200000 DRALAB_OPERATIONS=67000 DST_SEEDS=500 DST_FIRST=$(or $(FIRST),0) \
	  $(BIN)/python -m pytest -q -s --timeout 7200 -m conformance tests/reliability tests/testing/test_own_parts.py \
	  tests/apiserver/test_interleavings.py tests/conformance/test_permission_matrix.py
	DRALAB_EXPLORE=1 $(BIN)/python -m pytest -q --timeout 7200 -m 'not conformance' \
	  tests/allocation tests/api tests/apiserver/managed_fields tests/apiserver/storage tests/cel tests/values

release: $(READY) ## build wheel, source archive, checksums and SBOM into dist/, the same bytes twice
	@$(BIN)/python -m pip install --quiet --group release
	$(BIN)/python tools/release.py

mutants: $(READY) ## break the code in 200 small ways, list what no test notices; an hour or more
	$(BIN)/python tools/mutants.py --count 29 $(ONLY)

generate: $(READY) ## make the generated data anew; VERSION=1.38 adds a release of Kubernetes
	$(BIN)/python tools/generate.py $(if $(VERSION),VERSION=$(VERSION))

surface: $(READY) ## write down anew what is public: docs/reference/api-surface.txt
	$(BIN)/python tools/api_surface.py

ui: ## build the page of `dralab ui` from its sources (needs Node and npm)
	cd ui && npm ci --ignore-scripts --no-audit --no-fund --silent && npx tsc --noEmit && node build.mjs

clean: ## forget the virtual environment and the caches
	rm -rf .venv $(DEMO) $(LOWEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
