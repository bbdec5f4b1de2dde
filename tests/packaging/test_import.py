"""`import framejit` is cheap and leaves the heavy parts of torch alone."""
import os
import subprocess
import sys

import pytest

HEAVY = ["torch._dynamo", "torch._inductor", "sympy"]


def python(program: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_adds_at_most_150_ms_to_importing_torch():
    program = "import time, torch; start = time.perf_counter(); import framejit; print(time.perf_counter() - start)"
    best = min(float(python(program)) for _ in range(3))
    assert best < 0.15


@pytest.mark.parametrize(
    "use",
    [
        "pass",
        "framejit.optimize(lambda x: x + 1)(torch.ones(3))",
        "framejit.optimize(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))(torch.ones(1, 2)).sum().backward()",
        "framejit.explain(lambda x: x * x.sum().item())(torch.ones(3)); framejit.status()",
    ],
    ids=["import", "function", "module", "explain"],
)
def test_the_default_path_imports_nothing_heavy(use):
    program = f"import sys, torch, framejit; {use}; print([m for m in {HEAVY} if m in sys.modules])"
    assert python(program).strip() == "[]"


def test_import_alone_does_not_import_the_compiler():
    program = "import sys, framejit; print([m for m in sys.modules if m.startswith(('framejit.capture', 'framejit.interpreter', 'framejit.values'))])"
    assert python(program).strip() == "[]"


def test_disabled_by_the_environment():
    program = """
import torch, framejit
def f(x): return x + 1
model = torch.nn.ReLU()
assert framejit.optimize(f) is f and framejit.optimize(model) is model and framejit.optimize()(f) is f
assert framejit.explain(f)(torch.ones(1)).graphs == [] and framejit.status().functions == ()
"""
    python(program, FRAMEJIT_DISABLE="1")


def test_every_public_name_is_there():
    python("import framejit; [getattr(framejit, name) for name in framejit.__all__]")
