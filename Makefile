# `make demo` and `make test` do everything on a fresh Linux machine with Python 3.11+, a C compiler and make.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.done
# One more than there are cores in CI: some tests wait, for a session to expire or a client to give up.
TEST_WORKERS ?= 3
# Neighbours share brokers and Spark sessions: a worker takes a run of them, and gives away what it has not begun.
SHARED := -n $(TEST_WORKERS) --dist worksteal

# Images for containers often forbid Python to keep what it has compiled. Here hundreds of processes of one program start,
# and each would compile it anew: it was two thirds of collecting the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-long test-peers test-oxia quick check bench sim suites wheels lock format clean

setup: $(SETUP)

# Told before anything is made; the same text as in setup.py.
OLD := dray needs Python 3.11 or newer, and this is
CHECK_PYTHON = -c 'import sys; sys.version_info >= (3, 11) or sys.exit("$(OLD) %s: %s" % (sys.version.split()[0], sys.executable))'
# At a terminal uv shows what it is doing.
QUIET := $(shell test -t 2 || echo --quiet)

KERNELS := src/dray/records src/dray/machine src/dray/machine/heaps

# A stale extension would hide a failed build: it goes before the build.
$(SETUP): requirements/uv.lock requirements/dev.lock requirements/spark.lock pyproject.toml setup.py $(wildcard $(KERNELS:=/*.c) $(KERNELS:=/*.h))
	@test -x $(BIN)/python || $(PYTHON) $(CHECK_PYTHON)
	@test ! -x $(BIN)/python || $(BIN)/python $(CHECK_PYTHON)
	@echo "1/4 a Python environment in .venv"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "2/4 uv, which installs the rest"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.lock
	@echo "3/4 libraries, tools and PySpark, with a Java: about 1.2 GB, a minute or a few"
	@$(BIN)/uv pip sync $(QUIET) --python $(BIN)/python --require-hashes requirements/dev.lock requirements/spark.lock requirements/uv.lock
	@echo "4/4 dray itself, with its C kernels"
	@rm -rf build && rm -f $(KERNELS:=/*.so)
	@$(BIN)/uv pip install $(QUIET) --python $(BIN)/python --no-build-isolation --no-deps -e .
	@touch $@

lock:
	$(BIN)/uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-annotate --custom-compile-command 'make lock' -o requirements/uv.lock requirements/uv.in
	$(BIN)/uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-annotate --custom-compile-command 'make lock' -o requirements/dev.lock pyproject.toml requirements/dev.in
	$(BIN)/uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-annotate --custom-compile-command 'make lock' --constraint requirements/dev.lock -o requirements/spark.lock requirements/spark.in
	$(BIN)/uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-annotate --custom-compile-command 'make lock' -o requirements/bench-peers.lock requirements/bench-peers.in

demo: $(SETUP)
	@directory=$$(mktemp -d) && trap 'rm -rf "$$directory"' EXIT && \
	$(BIN)/python examples/first_steps.py "$$directory/dray-data" && echo && \
	echo "The same topic in SQL, while records come in" && \
	$(BIN)/python examples/orders_in_sql.py "$$directory/dray-data" && echo && \
	echo "Queues: a pool of workers, one of which is killed" && \
	$(BIN)/python examples/worker_pool.py "$$directory/queues" && echo && \
	echo "Files of the topic's table and its log, in one DataFrame" && \
	$(BIN)/python examples/one_dataframe.py "$$directory/dray-data"

test: $(SETUP)
	$(BIN)/python -m pytest $(SHARED) -m "not peers and not long"

# Histories of minutes and many seeds: what CI runs in a short form.
test-long: $(SETUP)
	$(BIN)/python -m pytest -m long

# Properties with a fifth of their examples.
quick: $(SETUP)
	$(BIN)/python -m pytest $(SHARED) -m "not peers and not slow and not long" --hypothesis-profile quick -q

check: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tools bench/harness.py bench/_machine.py bench/__main__.py
	$(BIN)/lint-imports
	$(BIN)/python -m tools.check_tree
	$(BIN)/python -m tools.check_names
	$(BIN)/python -m tools.check_doubles
	$(BIN)/python -m tools.check_dead
	$(BIN)/python -m tools.check_invariants
	$(BIN)/python -m tools.check_requirements
	$(BIN)/python -m tools.generate_kafka --check
	$(BIN)/python -m tools.generate_api --check
	$(BIN)/python -m tools.generate_kafka_support --check
	$(BIN)/python -m tools.generate_configuration --check
	$(BIN)/python -m tools.generate_metrics --check
	$(BIN)/python -m tools.check_extension
	$(BIN)/python -m tools.fuzz_kernel
	$(BIN)/python -m tools.sanitize_kernels

# The files that name the mark: nobody need import the others.
PEERS = $(shell grep -rl --include='test_*.py' 'mark\.peers' tests)

test-peers: $(SETUP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "peers and not long" $(PEERS)

# The log in Oxia: on our double of it, or, with OXIA_ADDRESS=HOST:PORT, on the server there.
test-oxia: $(SETUP)
	$(BIN)/python -m pytest tests/log/test_oxia.py $(if $(OXIA_ADDRESS),,tests/log/test_oxia_double.py)

# What other clients' own integration tests find, into docs/compat.md.
suites: $(SETUP)
	$(BIN)/python -m tools.suites

# For each Python that can be got here, into dist/: built, tagged, installed where nothing else is, and tried.
wheels: $(SETUP)
	$(BIN)/python -m tools.wheels

bench: $(SETUP)
	$(BIN)/python -m bench

sim: $(SETUP)
	$(BIN)/python -m dray.sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),500) --first $(or $(FIRST),1) --jobs 2) $(if $(SCENARIO),--scenario $(SCENARIO))

format: $(SETUP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build $(KERNELS:=/*.so) .mypy_cache .ruff_cache .pytest_cache .hypothesis
