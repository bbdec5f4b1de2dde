"""Guards on modules: training flag, parameters replaced, submodules swapped, hooks added, attributes and buffers."""
import functools

import pytest
import torch
from torch import nn

from support import Pair

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("offset", torch.zeros(4))
        self.scale = 2.0
        self.layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])

    def forward(self, x):
        x = self.drop(self.fc(x)) * self.scale + self.offset
        for layer in self.layers:
            x = layer(x)
        return x


def changed(change, captures):
    torch.manual_seed(0)
    original = Net()
    import copy

    pair = Pair(lambda: copy.deepcopy(original))
    pair.call(X)
    pair.call(X, captures=False)
    for side in (pair.eager_state, pair.state):
        torch.manual_seed(1)
        change(side)
    pair.call(X, captures=captures)
    pair.call(X, captures=False)
    return pair


CAPTURES = {
    "eval": lambda m: m.eval(),
    "child eval": lambda m: m.drop.eval(),
    "dropout probability": lambda m: setattr(m.drop, "p", 0.1),
    "python attribute": lambda m: setattr(m, "scale", 3.0),
    "parameter of another dtype": lambda m: setattr(m, "offset", torch.zeros(4, dtype=torch.float64)),
    "parameter frozen": lambda m: m.fc.weight.requires_grad_(False),
    "submodule swapped": lambda m: setattr(m, "fc", nn.Linear(4, 6)) or setattr(m, "offset", torch.zeros(6)),
    "layer appended": lambda m: m.layers.append(nn.Sigmoid()),
    "layer replaced by another class": lambda m: m.layers.__setitem__(0, nn.GELU()),
    "forward hook": lambda m: m.fc.register_forward_hook(lambda mod, args, out: out * 2),
    "forward pre hook": lambda m: m.fc.register_forward_pre_hook(lambda mod, args: (args[0] + 1,)),
    "forward replaced on the instance": lambda m: setattr(m.fc, "forward", lambda x: x * 2),
    "hook on the top module": lambda m: m.register_forward_hook(lambda mod, args, out: out + 1),
}
KEEPS = {
    "parameter values": lambda m: m.fc.weight.data.mul_(2),
    "state dict loaded": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
    "gradients set": lambda m: setattr(m.fc.weight, "grad", torch.ones(4, 4)),
    "unrelated attribute": lambda m: setattr(m, "unrelated", 5),
}


@pytest.mark.parametrize("what", CAPTURES)
def test_change_is_noticed(what):
    changed(CAPTURES[what], captures=None if what == "hook on the top module" else True)


@pytest.mark.parametrize("what", KEEPS)
def test_change_that_does_not_matter_keeps_the_entry(what):
    changed(KEEPS[what], captures=False)


def test_parameter_replaced_is_used():
    changed(lambda m: setattr(m.fc, "weight", nn.Parameter(torch.ones(4, 4))), captures=None)


def test_buffer_replaced_is_used():
    changed(lambda m: setattr(m, "offset", torch.ones(4)), captures=None)


def test_data_of_a_parameter_replaced_is_used():
    def change(m):
        m.fc.weight.data = torch.ones(4, 4)

    changed(change, captures=None)


def test_hook_removed_again():
    handles = {}

    def add(m):
        handles[m] = m.fc.register_forward_hook(lambda mod, args, out: out * 2)

    pair = changed(add, captures=True)
    for handle in handles.values():
        handle.remove()
    pair.call(X)


def test_global_module_hook():
    from torch.nn.modules.module import register_module_forward_hook

    pair = Pair(lambda: nn.Sequential(nn.Identity()))
    pair.call(X, captures=None)
    handle = register_module_forward_hook(lambda m, args, out: out + 1)
    try:
        pair.call(X)
    finally:
        handle.remove()
    pair.call(X)


@pytest.mark.parametrize("name", ["__call__", "_call_impl"])
@pytest.mark.parametrize("cls", [nn.Module, nn.Linear])
def test_what_calls_modules_is_replaced(cls, name, monkeypatch):
    seen = []
    plain = getattr(nn.Module, name)

    @functools.wraps(plain)
    def watching(self, *args, **kwargs):
        seen.append(type(self))
        return plain(self, *args, **kwargs) + 1

    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    pair = Pair(lambda: lambda x: net(x) * 2)
    pair.call(X, captures=True)
    monkeypatch.setattr(cls, name, watching)
    pair.call(X, captures=True)
    assert seen == 2 * ([nn.Sequential, nn.Linear, nn.ReLU] if cls is nn.Module else [nn.Linear])
    monkeypatch.undo()
    pair.call(X, captures=False)


def test_train_and_eval_have_an_entry_each():
    import copy

    net = Net()
    pair = Pair(lambda: copy.deepcopy(net))
    for mode in (True, False, True, False):
        for side in (pair.eager_state, pair.state):
            side.train(mode)
        pair.call(X)
    assert pair.graphs == 2


def test_to_dtype_recaptures():
    pair = changed(lambda m: m.offset, captures=False)
    for side in (pair.eager_state, pair.state):
        side.double()
    pair.call(X.double(), captures=True)


def test_two_instances_of_a_class_do_not_mix():
    def fn(m, x):
        return m(x)

    torch.manual_seed(3)
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    pair = Pair(lambda: fn)
    pair.call(a, X)
    pair.call(b, X)
    pair.call(a, X)
