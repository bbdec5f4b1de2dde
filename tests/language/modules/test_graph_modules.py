"""Modules that torch.fx and torch.export have made, called from captured code and optimized themselves."""
import pytest
import torch

import framejit

from support import check


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x, scale=2.0):
        return torch.relu(self.linear(x)) * scale


class Around(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1


X = torch.ones(2, 3)


def traced():
    return torch.fx.symbolic_trace(Net())


def hooked():
    made = traced()
    made.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    made.register_forward_hook(lambda module, args, out: out - 1)
    return made


def exported():
    return torch.export.export(Net(), (X,)).module()


def exported_for_all_sizes():
    return torch.export.export(Net(), (X,), dynamic_shapes={"x": {0: torch.export.Dim("n")}}).module()


MADE = [traced, hooked, exported, exported_for_all_sizes]


@pytest.mark.parametrize("make", MADE)
def test_called_from_captured_code(make):
    inner = make()
    check(lambda x: inner(x) + 1, X)


@pytest.mark.parametrize("make", MADE)
def test_within_a_module(make):
    module = Around(make())
    optimized = framejit.optimize(module, backend="eager", fullgraph=True)
    assert torch.equal(optimized(X), module(X))


@pytest.mark.parametrize("make", MADE)
def test_optimized_themselves(make):
    module = make()
    optimized = framejit.optimize(module, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(optimized(X), module(X))


def test_gradients():
    module = exported()
    optimized = framejit.optimize(module, fullgraph=True)
    found = []
    for call in (module, optimized):
        module.zero_grad()
        call(X).sum().backward()
        found.append([p.grad.clone() for p in module.parameters()])
    assert all(torch.allclose(a, b) for a, b in zip(*found))


@pytest.mark.parametrize("make", [traced, exported])
def test_what_they_complain_of(make, capsys):
    module = make()
    optimized = framejit.optimize(module, backend="eager")
    told = []
    for call in (module, optimized):
        with pytest.raises((RuntimeError, AssertionError)) as raised:
            call(torch.ones(2, 5))
        told.append((type(raised.value), str(raised.value), "generated forward function" in capsys.readouterr().err))
    assert told[0] == told[1]


def test_a_module_that_is_compiled_anew():
    def run(optimize):
        module = traced()
        torch.manual_seed(0)
        module.linear.reset_parameters()
        call = optimize(module)
        first = call(X)
        for node in module.graph.nodes:
            if node.target is torch.relu:
                node.target = torch.tanh
        module.recompile()
        return first, call(X), call(X)

    for a, b in zip(run(lambda f: f), run(lambda f: framejit.optimize(f, backend="eager"))):
        assert torch.equal(a, b)
