# The one menu. `make` lists it; every target installs what it needs, once, under build/.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
ENV = $(if $(PYTHON),,$(error Python 3.11 or later is needed: apt install python3, or make PYTHON=...))$(PYTHON) .ci/env.py
# Arguments for pytest, as in: make test-core ARGS="tests/codec -x"
ARGS ?=
# How many processes run tests beside each other in `make test`: one more than the two cores that
# continuous integration has, as a third of a test's time is waiting for disks and other processes.
JOBS ?= 3
# What a draw of the tests starts from: `make test SEED=...` draws the same again
ifndef SEED
SEED := $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
endif
export SEED
# How a stage runs its tests: `make test-full` sets FULL, and then there is no draw
STAGE = python -m tests.stages --jobs $(JOBS) $(if $(FULL),,--draw $(SEED))
export LOGSTORE_STAGES = $(CURDIR)/build/stages
# Spark, of 460 MB, for the benchmarks that need it alone: those, and all where none is named
BENCH_SPARK = $(if $(filter-out --%,$(ARGS)),$(if $(filter spark planning transfer --docs,$(ARGS)),spark),spark)
# How many times as long as it has to `make torture` runs
TIMES ?= 1

.DEFAULT_GOAL := help
.PHONY: test-asan help demo test test-full everything computing older pure-alone pure-beside test-alone test-beside test-quick test-for test-core test-pure lint types docs manual format bench instructions torture mutation release env jar clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the main job on real input: load, kill, resume, delete, compact, ask Spark
	@$(ENV) demo -- python -m tests.demo

test: everything ## every check, and of the tests a draw that takes a quarter of an hour; prints its seed
test-full: everything ## every check and every test, of the pure twins too; a table of it
test-full: export FULL = 1

everything:
	@echo "SEED=$(SEED)"
	@rm -rf "$(LOGSTORE_STAGES)"
	@$(ENV) lint test demo docs
	@$(MAKE) --no-print-directory lint
	@if command -v javac >/dev/null; then $(MAKE) --no-print-directory jar; \
		else echo "There is no javac: tests of Spark's reader in the JVM are skipped."; fi
	@code=0; \
		$(MAKE) --no-print-directory -k -j 2 --output-sync=target computing test-alone || code=1; \
		$(MAKE) --no-print-directory -k test-beside test-pure || code=1; \
		$(if $(FULL),$(ENV) test -- python -m tests.stages --table || code=1;) \
		echo "SEED=$(SEED)"; exit $$code

computing: # what one core does while the tests marked `alone` sleep: types, the site, an older Spark
	@$(MAKE) --no-print-directory -k types docs older
older:
	@$(ENV) demo older -- true

test-alone:
	@$(ENV) lint test demo -- $(STAGE) alone -- $(ARGS)

test-beside:
	@$(ENV) lint test demo -- $(STAGE) beside -- $(ARGS)

test-pure: pure-alone pure-beside ## a draw of the tests without compiled code, by its twins in Python; FULL=1: all

pure-alone:
	@$(ENV) test -- $(STAGE) pure-alone -- $(ARGS)

pure-beside:
	@$(ENV) test -- $(STAGE) pure -- $(ARGS)

test-quick: ## something of every room, below a minute
	@$(ENV) test -- sh -c 'pytest -q -n $(JOBS) --dist loadfile $(ARGS) $$(python -m tests.rooms --quick)'

test-for: ## the tests of what changed: PATHS="a.py b.py", or what differs from main
	@$(ENV) test -- sh -ec 'tests=$$(python -m tests.rooms $(PATHS)); \
		if [ "$$tests" ]; then exec pytest -q $(ARGS) $$tests; else echo "No test is of that."; fi'

test-core: ## the tests that need neither Spark nor Java
	@$(ENV) test -- pytest -m "not spark" --ignore=tests/spark $(ARGS)

lint: ## ruff, the format, and the direction of imports
	@$(ENV) lint -- ruff check .
	@$(ENV) lint -- ruff format --check .
	@$(ENV) lint -- lint-imports --no-logo --cache-dir build/imports

types: ## mypy and pyright, both strict
	@$(ENV) lint -- mypy
	@$(ENV) lint -- pyright

docs: ## the documentation as a site, under build/site; fails at a link that leads nowhere
	@$(ENV) docs lint -- env NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

manual: ## the page of the manual, docs/logstore.1, from what the commands say
	@$(ENV) test -- python -m tests.tools.manual

format: ## let ruff repair and format what it can
	@$(ENV) lint -- ruff check --fix .
	@$(ENV) lint -- ruff format .

bench: ## the benchmarks, as ratios against a peer in the same run
	@$(if $(BENCH_SPARK),$(MAKE) --no-print-directory jar >&2)
	@$(ENV) bench $(BENCH_SPARK) -- python -m benchmarks $(ARGS)

instructions: ## what an operation takes, counted; fails over 10 % above the committed figures
	@$(ENV) test -- python -m benchmarks.instructions --check $(ARGS)

test-asan: ## tests of the compiled modules, built so that they watch each byte they touch; ARGS="tests/codec"
	@$(ENV) test -- python -m tests.sanitized $(ARGS)

torture: ## the long tests, other runs each time; one table. Over an hour; TIMES=2: twice that
	@$(ENV) test -- python -m tests.torture --times $(TIMES) $(ARGS)

mutation: ## break the product at one place at a time: do the tests notice? It goes on where it was
	@$(ENV) test -- python -m tests.mutation $(ARGS)

release: ## build twice, compare, try, list what is in it: dist/, for a person to upload
	@$(ENV) release -- python .ci/release.py

env: ## make the environment without Spark, and print where it is
	@$(ENV) lint test

jar: ## Spark's reader in the JVM, spark_io/jvm/logstore-spark.jar; needs a JDK (javac)
	@$(ENV) older -- python .ci/spark_jar.py

clean: ## remove the environment and everything else that was made
	rm -rf build dist *.egg-info .coverage htmlcov .hypothesis .pytest_cache .mypy_cache .ruff_cache
	rm -f $(foreach folder,logstore/codec logstore/engine/lane logstore/engine/reading,$(folder)/native.c $(folder)/*.so)
	rm -f spark_io/jvm/logstore-spark.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
