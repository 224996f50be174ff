# Each target builds .venv from the constraints file if needed. See README.md for the two to start with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The vision extra stands apart, where only its tests look: a torchvision without the operators that go with
# this build of torch cannot be imported, and everything that imports it if it finds it (Lightning) fails too.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
BENCH_READY := $(VENV)/.bench-ready
TRAINER_READY := $(VENV)/.trainer-ready
PEERS_READY := $(VENV)/.peers-ready
TRACKERS_READY := $(VENV)/.trackers-ready
# one process for each core, of one thread each: threads would mostly wait for each other
# each of which takes a half of the tests in their order, so that what a file builds is built once
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

.PHONY: demo test check lint types docs slow wheel release shapes bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[dev]'
	$(INSTALL) --no-deps --upgrade --target $(VENV)/vision timm torchvision
	touch $@

# the peers that the benchmark compares with; without their dependencies, which are here already
$(BENCH_READY): $(READY)
	$(INSTALL) --no-deps pytopk difftopk diffsort entmax torchcp rapidfuzz
	touch $@

# the Trainer of Hugging Face for the test of its example, apart: Lightning and others change with what they find
$(TRAINER_READY): $(READY)
	$(INSTALL) --no-deps --no-compile --upgrade --target $(VENV)/trainer \
		transformers accelerate tokenizers regex psutil
	touch $@

# what tests compare with and take rows of; without dependencies, which are here already
$(PEERS_READY): $(READY)
	$(INSTALL) --no-deps --no-compile --upgrade --target $(VENV)/peers mapie torchcp datasets dill multiprocess xxhash
	touch $@

# what runs are logged with, apart for the same reason; with what they need and is not here
$(TRACKERS_READY): $(READY)
	$(INSTALL) --no-deps --no-compile --upgrade --target $(VENV)/trackers mlflow-skinny wandb cachetools \
		databricks-sdk google-auth pyasn1 pyasn1-modules gitpython gitdb smmap sqlparse xxhash
	touch $@

demo: $(READY)  ## train on the embedded glyphs, calibrate, show short lists: half a minute
	$(BIN)/shortlist demo

test: $(READY)  ## the default test suite
	$(PYTEST) -m "not slow"

slow: $(READY) $(TRAINER_READY) $(PEERS_READY) $(TRACKERS_READY)  ## the long tests
	$(PYTEST) -m slow

wheel: $(READY)  ## the wheel, built, installed and tried in another place
	$(BIN)/python -m pytest -m slow tests/test_wheel.py

release: $(READY)  ## dist/: the package, checked, installed with its dependencies in a clean environment and tried
	rm -rf dist build/release
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		"$$(echo dist/*.whl)[train,report,serve]"
	cd build/release && bin/shortlist --version && bin/shortlist demo --out demo

# a whole number may stand where a float is annotated (PEP 484), which beartype allows only if told so
BEARTYPE := beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))
shapes: $(READY)  ## the tests of values again, with every annotated shape checked at run time
	$(PYTEST) --jaxtyping-packages='shortlist,$(BEARTYPE)' \
		-m "not slow and not errors and not compiled" tests/losses tests/ops \
		tests/test_losses_common.py tests/scores tests/datasets/test_sampling.py \
		tests/predictors tests/metrics tests/models

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/pyright

docs: $(READY)  ## the documentation site, into site/; a link or a name that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# README's test command is last: its closing line ends the output of CI
check: lint types docs shapes slow test  ## what CI runs, and the long tests

bench: $(BENCH_READY)  ## speed beside cross-entropy and beside peers
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/predictors.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/head.py --rows 96
	$(BIN)/python benchmarks/model.py
	$(BIN)/python benchmarks/index.py --rows 100000
	$(BIN)/python benchmarks/growth.py --rows 1000 --spreads 3
	$(BIN)/python benchmarks/votes.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/places.py
	$(BIN)/python benchmarks/names.py
	$(BIN)/python benchmarks/score.py --ray
	$(BIN)/python benchmarks/sizing.py
	$(BIN)/python benchmarks/embed.py
	$(BIN)/python benchmarks/photo_to_list.py --number 200 --large 20
	$(BIN)/python benchmarks/large_runs.py --rows 5000 --classes 5000

clean:
	rm -rf $(VENV) site build dist .pytest_cache .ruff_cache .hypothesis
