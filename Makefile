# Everything happens in this checkout: .venv (Python), .cache (Maven), edge_jobs/*/target (jars).

PY := .venv/bin/python
# two modules at a time: tests with brokers and engines mostly wait
MVN := mvn -q -B -ntp -T 2 -f edge_jobs/pom.xml -Dmaven.repo.local=$(CURDIR)/.cache/m2
# Maven runs for a minute: what the second compiler does of javac's code takes longer than it saves
export MAVEN_OPTS ?= -XX:+UseSerialGC -XX:TieredStopAtLevel=1
# tests with servers and threads mostly wait: five processes keep two cores busy
# (groups: tests/conftest.py)
SIDE_BY_SIDE := -n 5
# the tests that the time of a run goes by
SLOWEST := --durations=30 --durations-min=3
# Maven's tests run beside pytest's. `test` packages nothing: the jars that pytest uses stay as
# they are.
BESIDE_MAVEN := tools/beside.sh .cache/mvn-test.log $(MVN) test
JAVA_SOURCES := $(shell find edge_jobs -path '*/target' -prune -o -type f \
	\( -name pom.xml -o -path '*/src/*' -o -path '*/speck_spark/*.py' \) -print)
VENV_STAMP := .venv/.installed
JARS_STAMP := edge_jobs/target/.packaged
KAFKA_STAMP := .cache/kafka/.copied
PROGRAMS := edge_jobs/python/target/speck-programs.pyz

.DEFAULT_GOAL := help
# one thing after another, but what `setup` has to install and build
ifndef SET_UP
.NOTPARALLEL:
endif
.PHONY: help setup what-is-needed jars programs kafka other-brokers spark-s3 check check-and-compile collect check-bench format test test-long demo clean clean-all mosquitto \
	results house $(shell sed -n 's/^\(bench[a-z0-9-]*\):.*/\1/p' $(MAKEFILE_LIST))

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | \
		while IFS="$$(printf '\t')" read -r name what; do printf '  %-16s %s\n' "$$name" "$$what"; done

setup: ## install what is needed: Python packages, edge jobs, Mosquitto
	@$(MAKE) --no-print-directory -j 3 SET_UP=1 what-is-needed

what-is-needed: mosquitto $(VENV_STAMP) $(JARS_STAMP) $(KAFKA_STAMP) $(PROGRAMS)
	@:

mosquitto:
	@tools/need.sh mosquitto mosquitto "is the sites' message broker"

$(VENV_STAMP): setup.cfg pyproject.toml constraints.txt
	@tools/venv.sh
	@touch $@

kafka: $(KAFKA_STAMP) ## Kafka's broker into .cache/kafka (43 MB), for tests and speck fog up --cloud-broker kafka

$(KAFKA_STAMP): tools/kafka/pom.xml
	@tools/need.sh mvn maven "downloads Kafka's broker"
	@mvn -q -B -ntp -f $< -Dmaven.repo.local=$(CURDIR)/.cache/m2 \
		-Djars=$(CURDIR)/$(@D) dependency:copy-dependencies
	@touch $@

other-brokers: ## HiveMQ CE and ActiveMQ Artemis into .cache (140 MB), for `make test-long`
	@tools/need.sh mvn maven "downloads other brokers"
	@for kind in hivemq artemis; do mvn -q -B -ntp -f tools/$$kind/pom.xml \
		-Dmaven.repo.local=$(CURDIR)/.cache/m2 -Djars=$(CURDIR)/.cache/$$kind \
		dependency:copy-dependencies || exit 1; done

spark-s3: ## Spark's connector to S3 into .cache/spark-s3 (13 MB), for SPECK_SPARK_JARS
	@tools/need.sh mvn maven "downloads Spark's connector to S3"
	@mvn -q -B -ntp -f tools/spark-s3/pom.xml -Dmaven.repo.local=$(CURDIR)/.cache/m2 \
		-Djars=$(CURDIR)/.cache/spark-s3 dependency:copy-dependencies

jars: $(JARS_STAMP) ## build the edge jobs' jars

programs: $(PROGRAMS) ## build the archive of the jobs that are Python programs

$(PROGRAMS): $(VENV_STAMP) $(wildcard edge_jobs/python/*.py edge_jobs/python/*/*.py edge_jobs/python/*/*/*.py)
	@$(PY) edge_jobs/python/build.py >&2

define need-java
@tools/need.sh javac default-jdk-headless "builds the edge jobs (Java 17 or later)" 17
@tools/need.sh mvn maven "builds the edge jobs"
endef

$(JARS_STAMP): $(JAVA_SOURCES)
	$(need-java)
	@echo "building the edge jobs with Maven (a few minutes at first)" >&2
	@$(MVN) -DskipTests package >&2
	@mkdir -p $(@D) && touch $@

check: $(VENV_STAMP) ## formatter, linter, types, layers, lengths of modules and classes
	@.venv/bin/ruff format --check --quiet . || \
		{ echo "cannot accept the formatting: run 'make format'" >&2; exit 1; }
	@.venv/bin/ruff check --quiet .
	@.venv/bin/mypy --no-error-summary
	@mkdir -p .cache
	@.venv/bin/lint-imports --no-logo >.cache/lint-imports.log 2>&1 || \
		{ cat .cache/lint-imports.log >&2; exit 1; }
	@$(PY) tools/house.py check
	@echo "format, lint, types, layers and lengths are fine" >&2

format: $(VENV_STAMP) ## put the Python code into shape
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

# CPython 3.11 cannot parse in two threads at once (gh-106905), and it parses for the marks below
# a line of a traceback: without these a thread that logs an error lets no test fail.
test test-long check-bench: export PYTHONNODEBUGRANGES = 1

# Hundreds of processes are started by tests, and each would compile speck for itself.
unexport PYTHONDONTWRITEBYTECODE

# pytest's processes collect at the same moment: without this each would compile all tests.
check-and-compile: setup
	@tools/beside.sh .cache/archive.log $(PY) -m tests.class_archive -- \
		tools/beside.sh .cache/collect.log $(MAKE) --no-print-directory collect -- \
		$(MAKE) --no-print-directory check

collect:
	@$(PY) -m pytest --quiet --collect-only

test: check-and-compile ## set up, check, and run the quick tests
	$(need-java)
	@$(BESIDE_MAVEN) -- $(PY) -m pytest $(SIDE_BY_SIDE) $(SLOWEST) -m "not long"

# nearly each of its rows keeps a fog of its own busy: more processes than cores make starts time out
test-long: check-and-compile other-brokers ## the tests that take long, too; unit tests and demo with every Python here, the demo with every Java
	$(need-java)
	@$(MVN) test -Plong
	@$(PY) -m pytest -n 2 -m "(long or not bench) and not alone" --hypothesis-profile=thorough
	@$(PY) -m pytest -m "alone"
	@tools/every_runtime.sh

check-bench: setup ## the tests of the benchmarks and of their page
	@$(PY) -m pytest $(SIDE_BY_SIDE) -m "not long" tests/unit/bench

demo: setup ## the traffic application on a fog of four sites, with real data; TLS=1: every leg encrypted; SPARK=1: on three engines and two brokers
	@$(PY) -m traffic.demo $(if $(TLS),--tls) $(if $(SPARK),--spark)

bench: setup ## all experiments that this code lacks, one after another; QUICK=1: short, to see that they work
	@$(PY) -m bench.everything

bench-link-batching: setup ## records/s, bytes and latency of a link, one by one and in batches
	@$(PY) -m bench.link_batching

bench-fig6: setup ## figure 6: deploy, modify and delete chains of 1..100 jobs (root, Linux)
	@$(PY) -m bench.fig6

bench-fig8: setup ## figure 8: local statistics at the edge and in the cloud (root, Linux)
	@$(PY) -m bench.fig8

bench-traffic: setup ## figures 7, 9, 10: the traffic application in the fog and in the cloud (root, Linux)
	@$(PY) -m bench.traffic

bench-edge-server: setup ## a filter at the edge and at the server, across a WAN (root, Linux)
	@$(PY) -m bench.edge_server

bench-in-action: setup ## the traffic application moved out of the cloud while data flows (root, Linux)
	@$(PY) -m bench.in_action

bench-policies: setup ## placement policies compared for real: measured beside predicted (root, Linux)
	@$(PY) -m bench.policies

bench-ramp: setup ## a ramp that fills an uplink, moved with and without a forecast (root, Linux)
	@$(PY) -m bench.ramp

bench-engines: setup ## the same jobs on Flink, Spark and as a process, over Mosquitto and Kafka
	@$(PY) -m bench.engines $(if $(ENGINE),--engine $(ENGINE)) $(if $(BROKER),--broker $(BROKER)) $(if $(JOB),--job $(JOB)) $(if $(PART),--part $(PART))

bench-connector: setup ## messages through source, map and sink
	@$(PY) -m bench.connector

bench-tls: setup ## what TLS with client certificates costs: deploying 100 jobs, messages/s
	@$(PY) -m bench.tls

bench-exactly-once: setup ## what exactly_once costs against at_least_once
	@$(PY) -m bench.exactly_once

bench-state: setup ## state of a 1000-job composition on disk
	@$(PY) -m bench.state

bench-moves: setup ## 50 moves and updates in each mode, under load: what is lost, how long it is silent; BROKER=kafka: the cloud with Kafka; ENGINE=process or spark: beside Flink; MOVES=n: a trial
	@$(PY) -m bench.moves $(if $(BROKER),--broker $(BROKER)) $(if $(ENGINE),--engine $(ENGINE)) $(if $(MOVES),--moves $(MOVES))

bench-moves-kafka: setup ## the same as bench-moves BROKER=kafka
	@$(PY) -m bench.moves_kafka

bench-moves-process: setup ## the same as bench-moves ENGINE=process
	@$(PY) -m bench.moves_process

bench-moves-spark: setup ## the same as bench-moves ENGINE=spark
	@$(PY) -m bench.moves_spark

bench-rewire: setup ## 200 rewirings under load in each delivery mode, 100 with kills: what is lost or sent twice
	@$(PY) -m bench.rewire

bench-faults: setup ## the fault suite, its results and the table in docs/guarantees.md
	@$(PY) -m bench.faults

bench-crash: setup ## the service dies at every crash point: what its next life makes of it
	@$(PY) -m bench.crash

bench-analyzer: setup ## 8.64 million samples through the analyzer, and through DuckDB beside it
	@$(PY) -m bench.analyzer

bench-placement: setup ## placement: published numbers, brute force, times of the exact policy
	@$(PY) -m bench.placement

bench-truth: setup ## what is measured against what is set, on a fog with a slow site (root, Linux)
	@$(PY) -m bench.truth

bench-collector: setup ## what measuring 100 jobs on 6 sites costs
	@$(PY) -m bench.collector

bench-scale: setup ## the control plane with up to 1000 simulated sites and 10 000 jobs
	@$(PY) -m bench.scale

bench-store: setup ## kill -9 of a process that writes: what is lost
	@$(PY) -m bench.store

bench-overload: setup ## the service under slow, silent and hostile clients: health, memory, recovery
	@$(PY) -m bench.overload

house: $(VENV_STAMP) ## figures of the code: modules, layers, longest parts, keys outside the store
	@$(PY) tools/house.py

results: $(VENV_STAMP) ## docs/results, its pages and plots, made of bench/results/*.json
	@$(PY) -m bench.results_page

clean: ## delete what was built
	rm -rf edge_jobs/target edge_jobs/*/target build .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .import_linter_cache
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

clean-all: clean ## delete also what was downloaded
	rm -rf .venv .cache *.egg-info
