"""Any backend of torch.compile by name or callable, and framejit as a backend of torch.compile."""

import pytest
import torch

import framejit
from framejit.backends import registry, torch_backends

import forked


def f(x, w):
    return torch.relu(x @ w).sum()


def operands():
    return torch.randn(3, 4), torch.randn(4, 5, requires_grad=True)


def gradient_of(function):
    torch.manual_seed(0)
    x, w = operands()
    value = function(x, w)
    value.backward()
    return value.detach(), w.grad


@pytest.mark.parametrize(
    "name", ["aot_eager", "eager_debug", "cudagraphs", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_by_name(name):
    fast = framejit.optimize(f, backend=name, fullgraph=True)
    assert fast.options.backend_name == name
    torch.testing.assert_close(gradient_of(fast), gradient_of(f))
    torch.testing.assert_close(gradient_of(fast), gradient_of(f))
    with torch.no_grad():
        x, w = operands()
        torch.testing.assert_close(fast(x, w), f(x, w))


def test_by_callable():
    from torch._dynamo.backends.debugging import aot_eager

    torch.testing.assert_close(gradient_of(framejit.optimize(f, backend=aot_eager)), gradient_of(f))


def test_a_module():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
    fast = framejit.optimize(model.eval(), backend="aot_eager")
    x = torch.randn(3, 4)
    torch.testing.assert_close(fast(x), model(x))


def test_their_names_are_listed():
    listed = framejit.list_backends()
    assert {"eager", "inductor", "aot_eager", "cudagraphs"} <= set(listed)
    assert "framejit" not in listed


def test_the_well_known_are_known():
    assert set(torch_backends.names()) >= torch_backends._WELL_KNOWN - {"tvm", "openxla"}


def test_ours_come_first():
    assert registry.resolve("eager")[0] is registry.eager


def test_naming_one_does_not_import_dynamo():
    program = (
        "import sys, framejit; framejit.optimize(lambda x: x, backend='inductor'); print('torch._dynamo' in "
        "sys.modules)"
    )
    assert forked.run(["-c", program], timeout=60).stdout.strip() == "False"


def test_framejit_as_a_backend_of_torch_compile():
    assert "framejit" in torch._dynamo.list_backends()
    torch.testing.assert_close(gradient_of(torch.compile(f, backend="framejit", fullgraph=True)), gradient_of(f))
