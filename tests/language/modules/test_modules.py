"""nn.Module: parameters, buffers, containers, hooks, training mode, functional use, attributes changed in forward."""
import copy

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from support import Pair, check, check_state

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.register_buffer("offset", torch.ones(4))
        self.scale = 2.0

    def forward(self, x, *, residual=True):
        y = self.norm(self.fc(x)).relu() * self.scale + self.offset
        return x + y if residual else y


def test_module_with_parameters_and_buffer():
    check(Block(), X)


def test_module_called_from_a_function():
    check(lambda m, x: m(x, residual=False) * 2, Block(), X)


def test_sequential():
    check(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 2)), X)


def test_sequential_slice_index_and_len():
    check(lambda m, x: m[1:](m[0](x)) + len(m), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Tanh()), X)


def test_modulelist_and_moduledict():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Identity()})

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                x = layer(x) + i
            return (
                {name: head(x) for name, head in self.heads.items()}, self.layers[-1](x), len(self.layers),
                "a" in self.heads,
            )

    check(Net(), X)


def test_parameterlist_and_parameterdict():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.ps = nn.ParameterList([torch.ones(4), torch.zeros(4)])
            self.pd = nn.ParameterDict({"w": torch.ones(4)})

        def forward(self, x):
            return sum(p * x for p in self.ps) + self.pd["w"]

    check(Net(), X)


def test_buffer_updated_in_forward():
    class Count(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(()))

        def forward(self, x):
            self.n += 1
            self.last = x.mean()
            return x * self.n

    check(Count(), X)


def test_buffer_replaced_in_forward():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(2, 4))

        def forward(self, x):
            self.state = self.state * 0.5 + x
            return self.state.sum()

    check(Cache(), X)


def test_python_counter_in_forward():
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = 0

        def forward(self, x):
            self.steps += 1
            return x + self.steps

    pair = Pair(Steps)
    for _ in range(3):
        pair.call(X)
    pair.expect(graphs=range(1, 4), breaks=0)


def test_batchnorm_training_and_eval():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    image = torch.randn(2, 3, 8, 8)
    check(net, image)
    check(net.eval(), image)


def test_forward_and_pre_hooks():
    net = nn.Linear(4, 4)
    net.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    net.register_forward_hook(lambda m, args, out: out + 1)
    check(net, X)


def test_hook_on_a_child():
    net = Block()
    net.fc.register_forward_hook(lambda m, args, out: out * 3)
    check(net, X)


@pytest.mark.parametrize("register", [
    lambda: torch_module.register_module_forward_hook(lambda m, args, out: out + 1),
    lambda: torch_module.register_module_forward_pre_hook(lambda m, args: (args[0] * 2,)),
], ids=["forward", "pre"])
def test_hooks_of_all_modules_that_captured_code_registers_and_removes(register):
    def fn(net, x, hooked):
        before = net(x)
        if hooked:
            handle = register()
        out = net(x)
        if hooked:
            handle.remove()
        return before, out, net(x)

    pair = Pair(lambda: fn)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    for hooked in (False, True, False, True):
        pair.call(net, X, hooked)


def test_iterating_children_and_parameters():
    def fn(m, x):
        for name, child in m.named_children():
            if name == "fc":
                x = child(x)
        return x + sum(p.sum() for p in m.parameters()) + len(list(m.modules())), [n for n, _ in m.named_parameters()]

    check(fn, Block(), X)


def test_functional_call():
    def fn(m, params, x):
        return torch.func.functional_call(m, params, (x,))

    net = nn.Linear(4, 4)
    check(fn, net, {"weight": torch.ones(4, 4), "bias": torch.zeros(4)}, X, graphs=range(1, 4), breaks=range(0, 4))


def test_attention_embedding_and_rnn_modules():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(10, 8)
            self.att = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, ids):
            h = self.emb(ids)
            return self.att(h, h, h, need_weights=False)[0]

    check(Net().eval(), torch.tensor([[1, 2, 3]]))
    check(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.randn(1, 3, 8))


def test_attention_that_nobody_wants_the_weights_of_gives_none():
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def fn(x, wanted):
        with torch.no_grad():  # so that it is one operation
            result, weights = attention(x, x, x, need_weights=wanted)
        return result + (0 if weights is None else weights.sum()), weights

    for wanted in (False, True):
        check(fn, torch.randn(2, 3, 8), wanted)
        check(fn, torch.randn(2, 3, 8), wanted, dynamic=True)


def test_lstm_equals_eager():
    check(nn.LSTM(4, 3), torch.randn(5, 2, 4), graphs=range(1, 4), breaks=range(0, 3))


def test_module_getattr_and_setattr():
    block = Block()

    def make():
        m = copy.deepcopy(block)

        def fn(x):
            m.scale = m.scale + 1
            return m.fc(x) * m.scale, hasattr(m, "nothing"), m.training

        return fn, lambda: (m.scale, list(vars(m)))

    check_state(make, (X,), (X,), (X,), graphs=range(1, 4))


def test_loss_modules():
    check(lambda loss, x, t: loss(x, t), nn.CrossEntropyLoss(label_smoothing=0.1), X, torch.tensor([1, 3]))


def test_shared_submodule_and_tied_weight():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4, bias=False)
            self.b = self.a
            self.c = nn.Linear(4, 4, bias=False)
            self.c.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x)) + self.c(x)

    check(Tied(), X)


def test_checkpointed_block():
    from torch.utils.checkpoint import checkpoint

    check(
        lambda m, x: checkpoint(m, x, use_reentrant=False) + 1, nn.Linear(4, 4), X, graphs=range(0, 4),
        breaks=range(0, 4), ops=None, calls=1,
    )
