# make demo, make quick, make test, make test-gpu, make lint: from a fresh clone, with nothing installed but Python, pip
# and a C compiler.
#   TORCH='torch==2.15.0'   another torch (any requirement, or options, that pip takes)
#   PYTHON=python3.12       another interpreter; give it a VENV of its own
#   WORKERS=4               processes that tests run in, 0 for none but pytest's own
#   ARGS='-k guards -x'     arguments for pytest, or for the benchmarks; BENCHMARKS='kernels' runs some of them
#   PROGRAMS=20000 SEED=2   how many random programs, and which (SEED=1000: with loops that data end), make attack
#                           compares with plain Python; on JOBS=16 processes; MINUTES=30 of make soak, fuzz, sanitize
#                           ARGS='--device cuda' has programs make their tensors on a GPU

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==$(shell $(PYTHON) -c 'import sys; print("2.13.0" if sys.version_info < (3, 14) else "2.15.0")')
ARGS ?=
PROGRAMS ?= 1000
SEED ?= 1
JOBS ?= $(shell nproc)
# one more than cores: tests wait for processes and clocks
WORKERS ?= $(shell expr $$(nproc) + 1)
MINUTES ?= 30

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
BENCHMARKS := overhead capture kernels small_graphs models training cold_start explain_cost operators zoo
# what of framejit/ is no product of a build
ROOMS := $(filter-out %.so framejit/__pycache__,$(wildcard framejit/*))
SOURCES := pyproject.toml setup.py $(wildcard framejit/native/*.[ch] framejit/native/*/*.[ch])

# the tests of a file stay together, in their order; each process does one file after another. Where a test ends its
# process the run ends: pytest-xdist would begin the file again, and wait for ever where it ends there once more
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0

.PHONY: demo test quick test-gpu lint bench canary cpython attack gradients soak fuzz sanitize clean

demo: $(VENV)/demo.stamp
	@for example in examples/*.py; do echo; echo "== $$example"; $(BIN)/python $$example || exit 1; done

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(SPREAD) $(ARGS)

# a few tests of every file, in two minutes
quick: $(VENV)/test.stamp
	$(BIN)/python -m pytest -q --quick $(SPREAD) $(ARGS)

# what needs a GPU, from `optimize` to the results of its kernels; fails where there is none
test-gpu: $(VENV)/test.stamp
	@$(BIN)/python -c 'import torch; exit(not torch.cuda.is_available())' \
		|| { echo 'make test-gpu: torch finds no GPU here'; exit 1; }
	$(BIN)/python -m pytest -m gpu $(ARGS)

# mypy and import-linter cannot follow the mapping of folders to subpackages in setup.py, so that they are shown a tree
# as installed; to import-linter the C core is a file of Python like the others
lint: $(VENV)/lint.stamp
	$(BIN)/ruff check .
	@rm -rf .lint && mkdir -p .lint/framejit && ln -s $(addprefix ../../,$(ROOMS) guards backends) .lint/framejit/
	cd .lint && ../$(BIN)/mypy --config-file ../pyproject.toml --python-executable ../$(BIN)/python -p framejit
	@ln -s ../../framejit/_native.pyi .lint/framejit/_native.py
	cd .lint && ../$(BIN)/lint-imports --config ../pyproject.toml

bench: $(VENV)/test.stamp
	@for benchmark in $(BENCHMARKS); do echo; echo "== $$benchmark"; \
		$(BIN)/python benchmarks/$$benchmark.py $(ARGS) || exit 1; done

# which way the native core found into this torch and this Python; fails where a part fell back
canary: $(VENV)/demo.stamp
	$(BIN)/python tests/canary.py

# random programs against plain Python; goes on where an interrupted run ended (in build/attack)
attack: $(VENV)/test.stamp
	$(BIN)/python -m tests.attack run --programs $(PROGRAMS) --seed $(SEED) --jobs $(JOBS) $(ARGS)

# gradients of all operators and modules of torch's test database, compiled, against eager's and against differences;
# ARGS='--device cuda' on a GPU
gradients: $(VENV)/test.stamp
	$(BIN)/python tests/training/walls/gradient_wall.py $(ARGS)
	$(BIN)/python tests/training/walls/module_wall.py $(ARGS)

# CPython's own tests with every test method optimized, module by module beside plain Python: an hour or more;
# ARGS='test_re test_enum -v' runs some
cpython: $(VENV)/test.stamp
	$(BIN)/python tests/soundness/optimized.py $(ARGS)

# sixteen threads that compile, call, reset and drop at once
soak: $(VENV)/test.stamp
	$(BIN)/python -X faulthandler -m tests.attack soak --minutes $(MINUTES) $(ARGS)

# random guard trees, and plans called with inputs they were not made for
fuzz: $(VENV)/test.stamp
	$(BIN)/python -X faulthandler -m tests.attack fuzz --minutes $(MINUTES) --seed $(SEED) $(ARGS)

# the C core under AddressSanitizer, with Python's own checks of memory: its tests, the fuzz and some programs
SANITIZED := build/sanitized
sanitize: $(VENV)/test.stamp
	@rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)/framejit
	CFLAGS='-fsanitize=address -fno-omit-frame-pointer -g -O1' LDFLAGS='-fsanitize=address' \
		$(BIN)/python setup.py -q build_ext --build-temp $(SANITIZED)/temp --build-lib $(SANITIZED)
	@ln -s $(addprefix ../../../,$(ROOMS) guards backends) $(SANITIZED)/framejit/
	$(SANITIZE) $(BIN)/python -m pytest -q tests/native $(ARGS)
	$(SANITIZE) $(BIN)/python -m tests.attack fuzz --minutes $(MINUTES) --seed $(SEED)
	$(SANITIZE) $(BIN)/python -m tests.attack run --programs $(PROGRAMS) --seed $(SEED) --jobs $(JOBS) \
		--folder $(SANITIZED)/attack --seconds 600

SANITIZE = PYTHONSAFEPATH=1 PYTHONPATH=$(SANITIZED):. PYTHONMALLOC=debug \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so.6)" \
	ASAN_OPTIONS=detect_leaks=0:handle_segv=0:allocator_may_return_null=1

# ---- the environment, each step once ----
# a TORCH that was asked for takes the place of the one that is there
ifneq ($(origin TORCH),file)
ifneq ($(shell cat $(VENV)/torch.stamp 2>/dev/null),$(TORCH))
.PHONY: $(VENV)/torch.stamp
endif
endif

$(VENV)/torch.stamp:
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	@echo "$(TORCH)" >$@

$(VENV)/framejit.stamp: $(VENV)/torch.stamp $(SOURCES)
	$(PIP) --editable .
	@touch $@

$(VENV)/demo.stamp: $(VENV)/framejit.stamp
	$(PIP) --editable '.[demo]'
	@touch $@

# timm and torchvision ask for a torch of their own choice. The tests need only their Python code, and find it through
# tests/torchvision_shim.py; where everybody finds it, transformers would import a torchvision that does not fit.
$(VENV)/test.stamp: $(VENV)/framejit.stamp
	$(PIP) --editable '.[test]'
	$(PIP) --no-deps --upgrade --target $(VENV)/vision timm torchvision
	@touch $@

$(VENV)/lint.stamp: $(VENV)/framejit.stamp
	$(PIP) --editable '.[lint]'
	@touch $@

clean:
	rm -rf .venv* .lint build dist *.egg-info framejit/*.so
