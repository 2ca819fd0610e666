# Escher for Kubernetes: everything there is to run. `make` alone lists it.
#
# Needs Python 3.11 or newer, make and a package index; `e2e`, `chaos`, `faults`, `policies`, `recovery` and `bench` need
# Go as well, for they build a Kubernetes control plane from source (minutes the first time, kept in the user's cache).
# So do `demo` with DEMO_ARGS=--real, and `loadtest` with REAL=1 or REFERENCE=1.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Where the environment forbids bytecode, every test process and every cluster would compile all of this anew: most of
# what it takes to collect the tests.
unexport PYTHONDONTWRITEBYTECODE

# The first of these that is new enough; or say PYTHON=/path/to/python3.12.
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$each; break; }; done)
VENV ?= .venv
VENV_LOAD := .venv-load
VENV_MUTANTS := .venv-mutants
VENV_AUDIT ?= .venv-audit
BIN := $(VENV)/bin
# A lock lists everything that there is, so nothing is resolved: `--no-deps`. Else pip looks for the newest version of what is
# asked for with an extra, and refuses it where that is newer than the one that is locked.
INSTALL := -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps
REQUIREMENTS := requirements

# Processes for the tests that need no control plane, twice as many as a small machine has cores, for many of them wait;
# PYTEST_ARGS is appended to every pytest.
WORKERS ?= 4
# Processes for those that need one: each has control planes of its own, and waits more than it works.
E2E_WORKERS ?= 2
PYTEST_ARGS ?=
# Such as --real, --nodes 200, --node-trace FILE.
DEMO_ARGS ?=
# Real cluster traces for the end-to-end tests, where they lie beside the checkout; without them those tests are skipped.
TRACES := $(abspath $(or $(ESCHER_TRACES),$(wildcard ../shared/traces)))
# The older one of the minor versions of Kubernetes that there is a Go module of.
OLDER ?= 1.35
CHAOS_ARGS ?= --target all --kills 100
FAULTS_ARGS ?= --runs 1000
# Which mutants: "extender.core.gangs.queue.queue.*", or names as the survivors are listed; all that have no result yet, if empty.
MUTANTS_ARGS ?=
SOAK_ARGS ?= --minutes 30
LIFE_ARGS ?= --seeds 1000 --weeks 2
CLIENT_ARGS ?= --minutes 10
# --real, --pods 3000, --action policy gang
NEIGHBOUR_ARGS ?=
# --mutants: put bugs in on purpose, and say which are found. --replay FILE, --seed 31: one run, told in full.
FAULT_SIMULATION_ARGS ?= --seeds 10000
MONTH_ARGS ?= --seeds 1 --days 30
POLICIES_ARGS ?= --changes 1000 --real
RECOVERY_ARGS ?= --nodes 5000 --pods 20000 --kills 5
BENCH_ARGS ?= --nodes 100 --nodes 5000 --size 8 --size 64 --rounds 11
# Large gangs, and a rate of small ones; what is set to nothing is left out.
BENCH_LARGE_ARGS ?= --nodes 5000 --size 500 --size 2000 --rounds 6 --approach ungrouped --approach extender
BENCH_RATE_ARGS ?= --nodes 5000 --workload burst --gangs 3000 --size 3 --rounds 6 --approach ungrouped --approach extender
BENCH_FOLDER := results/bench-$(shell date -u +%Y%m%d-%H%M%S)
GOALS_ARGS ?=
# Such as --required: fail where no vulnerability service can be asked. --ignore-vuln ID: known, and accepted.
AUDIT_ARGS ?=
# Where the bill of materials is written.
SBOM ?= results/sbom.cdx.json

##@ Start here

.PHONY: demo
demo: setup ## Watch the main job on the embedded cluster, in under a minute; DEMO_ARGS=--real: on a real control plane (Go)
	@$(BIN)/escher demo $(DEMO_ARGS)

.PHONY: test
test: setup ## Run the default tests (some minutes; no Go, no cluster)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: longer
longer: setup $(VENV_AUDIT)/.ready ## Run the tests of ten seconds and more, which the default ones leave out (three minutes; no Go, no cluster)
	$(BIN)/python -m pytest -m "longer and not e2e" --timeout=600 -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: slow
slow: setup ## Run the tests that try many times as much as the default ones (an hour; no Go, no cluster)
	$(BIN)/python -m pytest -m "slow and not e2e" -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: life
life: setup ## Live two weeks of 1,000 clusters in virtual time; look for harm, hoards, crashes and neglect (hours; no Go)
	$(BIN)/python -m loadtests.life $(LIFE_ARGS)

.PHONY: month
month: setup ## Live a month of ephemeral resources in virtual time; look whether all agree, and count API writes (minutes; no Go)
	$(BIN)/python -m loadtests.month $(MONTH_ARGS)

.PHONY: fault-simulation
fault-simulation: setup ## Run the service under 10,000 drawn plans of faults in virtual time; what fails is made smaller (hours; no Go)
	$(BIN)/python -m loadtests.fault_simulation $(FAULT_SIMULATION_ARGS)

.PHONY: neighbour
neighbour: setup ## Measure how long filter calls of one namespace take while another's tenant edits without end (four minutes; no Go)
	$(BIN)/python -m loadtests.neighbour $(NEIGHBOUR_ARGS)

.PHONY: client
client: setup ## Ask the embedded cluster for anything, right or wrong, for ten minutes; look for 500s and for growth (no Go)
	$(BIN)/python -m loadtests.client $(CLIENT_ARGS)

# What each of these says: $(BIN)/python -m loadtests.load --help
.PHONY: loadtest
loadtest: setup $(if $(REAL),cluster) $(VENV_LOAD)/.ready ## Load the service with Locust, and check invariants; SHAPE, TIME, USERS, RATE, WHO, NODES, REAL=1, HOST, REFERENCE=1, PAGE=1
	@$(BIN)/python -m loadtests.load --locust $(VENV_LOAD)/bin/locust $(if $(REAL),--real) $(if $(PAGE),--page) \
		--shape "$(SHAPE)" --time "$(TIME)" --users "$(USERS)" --rate "$(RATE)" --nodes "$(NODES)" --who $(WHO) \
		--host "$(HOST)" --reference "$(REFERENCE)"

.PHONY: soak
soak: setup $(VENV_LOAD)/.ready ## Load the service for half an hour at 200 verbs a second; fail if anything grows, with a plot (no Go)
	@$(BIN)/python -m loadtests.load --locust $(VENV_LOAD)/bin/locust --shape soak --rate 200 --users 20 \
		--who pods Scheduler Sampling Scorer Preemptor $(SOAK_ARGS)

.PHONY: setup
setup: $(VENV)/.ready ## Make .venv and install everything from hashed requirements (what demo and test do first)
	@:

##@ On a real control plane (Go)

.PHONY: cluster
cluster: setup ## Build etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok into the user's cache
	@$(BIN)/escher cluster build

.PHONY: e2e
e2e: cluster ## Run the end-to-end tests
	$(if $(TRACES),ESCHER_TRACES="$(TRACES)") $(BIN)/python -m pytest -m "e2e and not slow" -n $(E2E_WORKERS) --dist loadgroup $(PYTEST_ARGS)

.PHONY: older
older: setup ## Run a part of them on the minor version of Kubernetes before the newest
	@$(BIN)/escher cluster build --kubernetes $(OLDER)
	ESCHER_KUBERNETES=$(OLDER) $(BIN)/python -m pytest -m "older and e2e" -k "not embedded" -n $(E2E_WORKERS) --dist loadgroup $(PYTEST_ARGS)

.PHONY: chaos
chaos: cluster ## Kill service, scheduler and API server 100 times each, pause etcd, and look for anything lost (half an hour)
	$(BIN)/python -m loadtests.chaos $(CHAOS_ARGS)

.PHONY: faults
faults: cluster ## Delay, lose, repeat and cut what passes between service and API server, 1000 times; look for losses (an hour)
	$(BIN)/python -m loadtests.faults $(FAULTS_ARGS)

.PHONY: policies
policies: cluster ## Change policies 1000 times under load, and look for wrong decisions and missed wakes (three minutes)
	$(BIN)/python -m loadtests.policy_changes $(POLICIES_ARGS)

.PHONY: recovery
recovery: cluster ## Kill the service at 5000 nodes and measure how soon it is of use again (ten minutes)
	$(BIN)/python -m loadtests.recovery $(RECOVERY_ARGS)

.PHONY: bench
bench: cluster ## Measure the figures that are to be reached: a table goal / must / now, and its history (an hour and a half)
	@code=0; folders=; \
		compare() { \
			[ -n "$$2" ] || return 0; \
			made=0; $(BIN)/escher compare $$2 --out $(BENCH_FOLDER)/$$1 || made=$$?; \
			[ $$made -le 1 ] || exit $$made; \
			[ $$made -eq 0 ] || code=1; \
			folders="$$folders $(BENCH_FOLDER)/$$1"; \
		}; \
		compare usual "$(BENCH_ARGS)"; compare large "$(BENCH_LARGE_ARGS)"; compare rate "$(BENCH_RATE_ARGS)"; \
		$(BIN)/python -m loadtests.goals --compare $$folders --only compare http core scale resources $(GOALS_ARGS) \
			&& exit $$code

.PHONY: speed
speed: setup ## Measure what a call costs the extender, in process and over loopback (a minute; no Go, no cluster)
	$(BIN)/python -m pytest -m bench -s $(PYTEST_ARGS)

##@ Quality

.PHONY: lint
lint: setup $(VENV)/.ready-lint ## ruff (rules and format), mypy, import-linter, yamllint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/yamllint --strict .

.PHONY: format
format: $(VENV)/.ready-lint ## Put every file into the one form that lint accepts
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Counting makes tests slower by half and more: so not all are counted, and not those of thousands of steps.
COUNTED := tests/core tests/filters tests/app tests/availability $(wildcard tests/kubesim/test_asked_*.py) \
	tests/kubesim/test_policies_api.py tests/esl/test_domain_of_hosted_policies.py
NOT_COUNTED := $(wildcard tests/core/test_*_machine.py) tests/core/test_gang_orders.py tests/core/test_gang_identity.py \
	tests/app/test_crashes.py tests/app/test_transaction_crashes.py

.PHONY: coverage
coverage: setup ## Fail if the tests of core, filters and app come by less than 95 % of the branches there (four minutes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report= $(COUNTED) $(NOT_COUNTED:%=--ignore=%) $(PYTEST_ARGS)
	@for room in core filters app; do \
		echo "extender/$$room, branches counted:"; \
		$(BIN)/python -m coverage report --include="extender/$$room/*" --fail-under=95 --precision=1; \
	done

.PHONY: mutants
mutants: $(VENV_MUTANTS)/.ready ## Change core, filters, esl and app thousands of times, and count the changes no test notices (hours)
	ulimit -v 8000000; export HYPOTHESIS_PROFILE=mutants PATH="$(abspath $(VENV_MUTANTS))/bin:$$PATH"; \
		mutmut run --max-children $(WORKERS) $(MUTANTS_ARGS)
	@$(VENV_MUTANTS)/bin/python .ci/mutants.py

.PHONY: audit
audit: setup $(VENV_AUDIT)/.ready ## List what the image contains in SBOM (CycloneDX), and ask whether anything locked is known to be vulnerable
	$(VENV_AUDIT)/bin/python .ci/sbom.py $(REQUIREMENTS)/runtime.txt --out $(SBOM) \
		--installed "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	$(VENV_AUDIT)/bin/python .ci/audit.py $(REQUIREMENTS)/*.txt $(AUDIT_ARGS)

.PHONY: docs
docs: setup ## Check that every link in README.md and docs/ leads somewhere
	$(BIN)/python -m pytest -q tests/test_frame_docs.py

.PHONY: recording
recording: setup ## Record the demo's terminal anew as docs/demo.svg, the picture in the README
	$(BIN)/python -m lab.demo.recording --out docs/demo.svg --title "escher demo, on the embedded cluster" -- escher demo

.PHONY: compare
compare: cluster ## Compare the ways to place a gang on a real control plane, with a report (half an hour; QUICK=1: minutes)
	$(BIN)/escher compare $(if $(QUICK),--quick) $(COMPARE_ARGS)

##@ Housekeeping

.PHONY: lock
lock: | $(VENV)/bin/python ## Pin the newest versions anew in requirements/*.txt, with hashes and without addresses
	@[ -x $(BIN)/uv ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@for name in runtime build test lint load mutants audit; do \
		case $$name in \
			runtime) from="pyproject.toml --extra otel" ;; \
			test) from="pyproject.toml --all-extras --group build --group test" ;; \
			lint) from="pyproject.toml --all-extras --group build --group test --group lint" ;; \
			mutants) from="pyproject.toml --all-extras --group build --group test --group lint --group mutants" ;; \
			*) from="--group $$name" ;; \
		esac; \
		echo "requirements/$$name.txt"; \
		$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
			--no-emit-index-url --no-annotate --custom-compile-command "make lock" \
			$$( [ $$name = runtime ] || [ $$name = load ] || echo --constraint $(REQUIREMENTS)/runtime.txt ) \
			$$from --output-file $(REQUIREMENTS)/$$name.txt >/dev/null; \
	done

.PHONY: manifests
manifests: setup ## Write anew what stands twice in deploy/: the chart's copies, and deploy/kustomize from the chart (Go)
	$(BIN)/python -m tests.deploy.rendering

.PHONY: clean
clean: ## Remove what tests and tools leave behind; the virtual environments and the binaries' cache stay
	rm -rf .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist mutants results
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

.PHONY: help
help: ## Show this
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# -- virtual environments: a stamp is as new as the requirements that were installed

$(VENV)/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "no Python 3.11 or newer was found; install one, or say where: make PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: $(REQUIREMENTS)/test.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing into $(VENV) (a minute the first time)"
	@$(BIN)/python $(INSTALL) --requirement $(REQUIREMENTS)/test.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(VENV)/.ready-lint: $(REQUIREMENTS)/lint.txt | $(VENV)/bin/python
	@echo "installing the linters into $(VENV)"
	@$(BIN)/python $(INSTALL) --requirement $(REQUIREMENTS)/lint.txt
	@touch $@

# mutmut runs the tests and mypy itself, on a copy of the code, and brings much for its own screens.
$(VENV_MUTANTS)/.ready: $(REQUIREMENTS)/mutants.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing mutmut, the tests' requirements and mypy into $(VENV_MUTANTS)"
	@$(BIN)/python -m venv $(VENV_MUTANTS)
	@$(VENV_MUTANTS)/bin/python $(INSTALL) --requirement $(REQUIREMENTS)/mutants.txt
	@touch $@

# What audits dependencies has dependencies that nothing else should come to use, pip itself among them.
$(VENV_AUDIT)/.ready: $(REQUIREMENTS)/audit.txt | $(VENV)/bin/python
	@echo "installing pip-audit and CycloneDX into $(VENV_AUDIT)"
	@$(BIN)/python -m venv $(VENV_AUDIT)
	@$(VENV_AUDIT)/bin/python $(INSTALL) --requirement $(REQUIREMENTS)/audit.txt
	@touch $@

# Locust brings gevent and much else: an environment of its own, so that nothing else can come to depend on them.
$(VENV_LOAD)/.ready: $(REQUIREMENTS)/load.txt | $(VENV)/bin/python
	@echo "installing Locust into $(VENV_LOAD)"
	@$(BIN)/python -m venv $(VENV_LOAD)
	@$(VENV_LOAD)/bin/python $(INSTALL) --requirement $(REQUIREMENTS)/load.txt
	@touch $@
