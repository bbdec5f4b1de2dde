"""Functions of `torch.jit.script` in captured code: inlined where TorchScript means what Python means, called for real
elsewhere."""
import math
import sys

import pytest
import torch

from support import Pair, check

X = torch.arange(6.0).view(2, 3)
FLAG = True


@torch.jit.script
def gelu(x, bias):
    x = bias + x
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


@torch.jit.script
def scaled(x: torch.Tensor, factor: float, times: int = 2, other: torch.Tensor | None = None):
    for _ in range(times):
        x = x * factor + math.pi
    if other is not None:
        x = x + other
    return x, x.sum()


@torch.jit.script
def written(x):
    x.add_(1)
    return x[0]


@torch.jit.script
def refuses(x):
    if x.dim() > 1:
        raise ValueError("two dimensions")
    return x + 1


@torch.jit.script
def by_a_global(x):
    if torch.jit.is_scripting():
        return x + 1
    return x - 1


traced = torch.jit.trace(lambda x: x + x.shape[0], torch.ones(2, 3))


@pytest.fixture(autouse=True)
def called_as_torch_has_it(monkeypatch):
    """Torch's own tests, which other tests import, put a function that profiles in place of each call."""
    of_tests = sys.modules.get("torch.testing._internal.common_utils")
    if of_tests is not None:
        monkeypatch.setattr(torch.jit.ScriptFunction, "__call__", of_tests.func_call)


@pytest.mark.parametrize("shape", [(2, 3), (3,)])
def test_one_graph(shape):
    check(lambda x: gelu(x.sin(), x) * 2, X[0].expand(shape).clone(), fullgraph=True)
    check(lambda x: (scaled(x, 2.0), scaled(x, 0.5, times=3, other=x)), X[0].expand(shape).clone(), fullgraph=True)


def test_what_is_written_stays_written():
    check(lambda x: (written(x), x), X, fullgraph=True)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: by_a_global(x) * 2,
        lambda x: traced(x) * 2,
        lambda x: scaled(x, 2)[0] * 2,  # makes a float of the int
        lambda x: scaled(x.long(), 2)[0] * 2,
    ],
)
def test_what_means_something_else_is_called_for_real(fn):
    check(fn, X, graphs=None, breaks=None, changed=[(-X,), (X[:1],)])


def test_errors_are_those_of_torchscript():
    check(lambda x: refuses(x + 1), X, raises=Exception, traceback=False)
    check(lambda x: gelu(x, x[:, :2]), X, raises=RuntimeError, traceback=False)
    check(lambda x: gelu(x, x, x), X, raises=RuntimeError, traceback=False)


def test_another_function_under_the_name():
    one, two = gelu, torch.jit.script(_other)
    world = {"f": one}
    pair = Pair(lambda: lambda x: world["f"](x, x))
    pair.call(X)
    world["f"] = two
    pair.call(X)
    pair.expect(graphs=2, breaks=0)


def _other(x, y):
    return x - y * 2
