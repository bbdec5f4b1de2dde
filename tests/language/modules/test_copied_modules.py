"""`copy.copy` and `copy.deepcopy` of modules in captured code: what `object` and `Module.__setstate__` do."""
import copy

import pytest
import torch
from torch import nn

import framejit

from comparison import assert_same

X = torch.linspace(-1, 1, 12).view(3, 4)


class Tied(nn.Module):
    """Parts that are shared, lead back to it, or are in lists and dictionaries."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("mask", torch.arange(4.0))
        self.register_buffer("calls", torch.zeros(()), persistent=False)
        self.scales = nn.ParameterList([nn.Parameter(torch.full((4,), k + 1.0)) for k in range(2)])
        self.parts = {"self": self, "norm": nn.BatchNorm1d(4)}

    def forward(self, x):
        self.calls.add_(1)
        x = self.second(self.first(x)) * self.mask + self.scales[0] * self.calls
        return self.parts["self"].parts["norm"](x)


class TellsItsState(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.cache = nn.Parameter(torch.ones(4)), [3]

    def __getstate__(self):
        return self.__dict__ | {"cache": None}

    def forward(self, x):
        return x * self.weight + (self.cache or [0])[0]


class TakesItsState(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.taken = nn.Parameter(torch.ones(4)), 0

    def __setstate__(self, state):
        super().__setstate__(state)
        self.taken += 1

    def forward(self, x):
        return x * self.weight + self.taken


class Hooked(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
        self.register_forward_hook(lambda module, args, result: result * 2)


class CopiesItself(nn.Linear):
    def __deepcopy__(self, memo):
        return nn.Identity()


def told(module):
    """What a program can see of a copy."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    first = [next(name for name, other in parameters.items() if other is one) for one in parameters.values()]
    buffers, names = dict(module.named_buffers()), sorted(vars(module))
    kinds = [(type(p), p.is_leaf, p.requires_grad) for p in parameters.values()]
    return type(module), names, parameters, first, kinds, buffers, module.training, module.state_dict()


MODULES = {
    "tied": Tied, "tells": TellsItsState, "takes": TakesItsState, "hooked": Hooked,
    "itself": lambda: CopiesItself(4, 2),
    "normed": lambda: torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)),
    "stack": lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.ModuleList([nn.Linear(6, 2)])[0]).eval(),
}
CAPTURED = ("tied", "tells", "takes", "stack")


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("name", MODULES)
def test_copies(name, copied, backend):
    modules = []
    for _ in range(2):
        torch.manual_seed(0)
        modules.append(MODULES[name]())

    def make(module):
        def fn(x):
            made = copied(module)
            made.extra = 3
            return made(x), made, hasattr(module, "extra")

        return fn

    fullgraph = name in CAPTURED and copied is copy.deepcopy
    eager, compiled = make(modules[0]), framejit.optimize(make(modules[1]), backend=backend, fullgraph=fullgraph)
    for x in (X, X + 1, X):
        found = []
        for fn, module in zip((eager, compiled), modules):
            try:
                y, made, is_changed = fn(x)
            except RuntimeError as e:  # as parametrized modules raise
                found.append(str(e))
                continue
            if y.requires_grad:
                (y**3).sum().backward()  # what a norm gives has a sum that nothing changes
            gradients = [[p.grad for p in each.parameters()] for each in (made, module)]
            found.append((y, told(made), told(module), is_changed, gradients))
            module.zero_grad()
        assert_same(*found, rtol=1e-4, atol=1e-4)


def test_a_copy_is_of_what_the_module_is_now():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    def fn(x):
        return copy.deepcopy(net)(x)

    compiled = framejit.optimize(fn, backend="eager", fullgraph=True)
    changes = (
        lambda: None, net.eval, lambda: net.append(nn.Linear(4, 2)), lambda: net[0].weight.data.mul_(2),
        lambda: net.requires_grad_(False), lambda: setattr(net[0], "bias", None),
    )
    for change in changes:
        change()
        results = []
        for each in (fn, compiled):
            torch.manual_seed(0)
            y = each(X)
            results.append((y, y.requires_grad))
        assert_same(*results)
