# make demo, make test: from a fresh clone, with nothing installed but Python, pip and a C compiler.
#   TORCH='torch==2.15.0'   another torch (any requirement, or options, that pip takes)
#   PYTHON=python3.12       another interpreter; give it a VENV of its own
#   ARGS='-k guards -x'     arguments for pytest, or for the benchmarks; BENCHMARKS='kernels' runs some of them

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
BENCHMARKS := overhead capture kernels small_graphs models cold_start explain_cost
SOURCES := pyproject.toml setup.py $(wildcard framejit/native/*.[ch])

.PHONY: demo test lint bench clean

demo: $(VENV)/demo.stamp
	@for example in examples/*.py; do echo; echo "== $$example"; $(BIN)/python $$example || exit 1; done

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(ARGS)

# mypy cannot follow the mapping of folders to subpackages in pyproject.toml, so that it is shown a tree as installed
lint: $(VENV)/lint.stamp
	$(BIN)/ruff check .
	@rm -rf .lint && mkdir -p .lint/framejit && ln -s $(addprefix ../../,$(filter-out %.so framejit/__pycache__,$(wildcard framejit/*))) .lint/framejit/
	@ln -s ../../guards ../../backends .lint/framejit/
	cd .lint && ../$(BIN)/mypy --config-file ../pyproject.toml --python-executable ../$(BIN)/python -p framejit

bench: $(VENV)/test.stamp
	@for benchmark in $(BENCHMARKS); do echo; echo "== $$benchmark"; $(BIN)/python benchmarks/$$benchmark.py $(ARGS) || exit 1; done

# ---- the environment, each step once ----
$(VENV)/torch.stamp:
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	@touch $@

$(VENV)/framejit.stamp: $(VENV)/torch.stamp $(SOURCES)
	$(PIP) --editable .
	@touch $@

$(VENV)/demo.stamp: $(VENV)/framejit.stamp
	$(PIP) --editable '.[demo]'
	@touch $@

# timm and torchvision ask for a torch of their own choice. The tests need only their Python code, and find it through tests/torchvision_shim.py;
# where everybody finds it, transformers would import a torchvision that does not fit.
$(VENV)/test.stamp: $(VENV)/framejit.stamp
	$(PIP) --editable '.[test]'
	$(PIP) --no-deps --upgrade --target $(VENV)/vision timm torchvision
	@touch $@

$(VENV)/lint.stamp: $(VENV)/framejit.stamp
	$(PIP) --editable '.[lint]'
	@touch $@

clean:
	rm -rf .venv* .lint build dist *.egg-info framejit/*.so
