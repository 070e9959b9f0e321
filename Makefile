# Every target sets up what it needs in a virtual environment of its own. `make run` and `make test` are the two to start with.

PYTHON ?= python3
VENV := .venv
TF_VENV := .venv-tf
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin
TF_BIN := $(TF_VENV)/bin
BENCH_BIN := $(BENCH_VENV)/bin
# Packages that `make bench` shows beside Penstock and TensorFlow; one that cannot be installed leaves its column out.
PEERS ?= torch==2.13.0 openvino onnxruntime onnx
WORKERS ?= auto

.PHONY: help run test tiny check lint types layers conformance bench agree fuzz soak protos docs clean

help:
	@echo "make run          train a small network on two devices and look at every stage of a step"
	@echo "make test         run the tests"
	@echo "make tiny         run the quickest tests only (seconds)"
	@echo "make check        lint, types, import layers"
	@echo "make conformance  compare with real TensorFlow (installs tensorflow-cpu into $(TF_VENV))"
	@echo "make bench        time the same programs on Penstock, TensorFlow and peers, write docs/performance.md (ten minutes; BENCH='--quick')"
	@echo "make agree        run 10,000 random programs plainly and in the quick ways and compare"
	@echo "make fuzz, soak   the long versions of the robustness tests"
	@echo "make docs         write the tables in docs/ and the stub files anew"

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@

$(TF_VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(TF_VENV)
	$(TF_BIN)/python -m pip install --quiet --upgrade pip
	$(TF_BIN)/python -m pip install --quiet 'tensorflow-cpu==2.21.0' -e '.[dev]'
	touch $@

run: $(VENV)/ready
	$(BIN)/python -m penstock.tools.cli demo --out out

test: $(VENV)/ready
	$(BIN)/python -m pytest -n $(WORKERS) tests

tiny: $(VENV)/ready
	$(BIN)/python -m pytest tests/test_tiny.py

check: lint types layers

lint: $(VENV)/ready
	$(BIN)/ruff check .

types: $(VENV)/ready
	$(BIN)/pyright --pythonpath $(BIN)/python

layers: $(VENV)/ready
	$(BIN)/lint-imports

conformance: $(TF_VENV)/ready
	TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0 $(TF_BIN)/python -m pytest -n $(WORKERS) conformance

$(BENCH_VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_BIN)/python -m pip install --quiet --upgrade pip
	$(BENCH_BIN)/python -m pip install --quiet 'tensorflow-cpu==2.21.0' -e '.[xla]'
	for peer in $(PEERS); do $(BENCH_BIN)/python -m pip install --quiet $$peer || echo "no $$peer: its column stays empty"; done
	touch $@

bench: $(BENCH_VENV)/ready
	$(BENCH_BIN)/python -m benchmarks $(or $(BENCH),--write docs/performance.md)

agree: $(VENV)/ready
	$(BIN)/python -m tests.engines.agree --graphs 10000 --seed 0 --modes regions --coverage

fuzz: $(VENV)/ready
	PENSTOCK_FUZZ_SECONDS=600 $(BIN)/python -m pytest tests/robustness -k fuzz

soak: $(VENV)/ready
	PENSTOCK_SOAK_RUNS=200000 $(BIN)/python -m pytest tests/robustness -k soak

docs: $(VENV)/ready
	$(BIN)/penstock ops --markdown > docs/ops.md
	$(BIN)/python -m penstock.tools.apitable > docs/api.md
	$(BIN)/python scripts/gen_stubs.py

protos: $(VENV)/ready
	$(BIN)/python -m pip install --quiet -e '.[protos]'
	$(BIN)/python scripts/gen_protos.py

clean:
	rm -rf $(VENV) $(TF_VENV) $(BENCH_VENV) out build dist *.egg-info
