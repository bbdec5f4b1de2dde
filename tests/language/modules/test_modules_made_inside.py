"""Modules and parameters that captured code makes."""
import pytest
import torch
from torch import nn

from support import check, check_state

X = torch.rand(2, 3)


class Scale(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n, self.act = n, nn.ReLU()
        self.register_buffer("factor", torch.ones(n) * 2)

    def forward(self, x):
        return self.act(x) * self.factor + self.n


def loss(x):
    return nn.CrossEntropyLoss(label_smoothing=0.1)(x, torch.zeros(2, dtype=torch.long))


def returned(x):
    module = Scale(3)
    return module(x), module


def in_evaluation(x):
    module = nn.Sequential(nn.ReLU(), nn.Softmax(-1), nn.Dropout(0.5))
    module.eval()
    return module(x), [type(c).__name__ for c in module.children()], len(module), module[0](x), module.training


def a_list(x):
    modules = nn.ModuleList([nn.ReLU(), Scale(3)])
    for module in modules:
        x = module(x)
    return x, dict(modules.named_buffers()), modules


def a_parameter(x):
    p = nn.Parameter(x * 2)
    return p, p.requires_grad, isinstance(p, nn.Parameter), nn.Parameter(x.long(), requires_grad=False)


def a_layer(x):
    layer = nn.Linear(3, 2)
    return layer(x).detach(), layer


def attributes(x):
    module = Scale(3)
    module.extra, module.weight = nn.Identity(), nn.Parameter(torch.ones(3))
    return module(x), module, [name for name, _ in module.named_parameters()]


@pytest.mark.parametrize("fn", [loss, returned, in_evaluation, a_list, a_parameter, a_layer, attributes])
def test_made_inside(fn):
    check(fn, X, fullgraph=True)


def test_after_torch_compile_has_changed_how_modules_are_made(monkeypatch):
    from torch._dynamo.mutation_guard import install_generation_tagging_init

    for name, value in (
        ("__init__", nn.Module.__init__),
        ("__setstate__", nn.Module.__setstate__),
        ("___needs_generation_tag_patch", True),
    ):
        monkeypatch.setattr(nn.Module, name, value, raising=False)  # all as before, afterwards
    install_generation_tagging_init()
    for fn in (loss, returned, a_list):
        check(fn, X, fullgraph=True)


def test_a_layer_that_is_made_when_it_is_first_used():
    def make():
        class Model(nn.Module):
            def forward(self, x):
                if not hasattr(self, "layer"):
                    self.layer = nn.Linear(3, 3)
                return self.layer(x)

        model = Model()
        return model, model

    check_state(make, (X,), (X,), (X,))


def test_gradients_of_a_parameter_made_inside():
    def fn(x):
        p = nn.Parameter(x.detach() * 2)
        return p, (p * x).sum()

    pair = check(fn, X, fullgraph=True)
    p, total = pair.compiled(X)
    total.backward()
    torch.testing.assert_close(p.grad, X)


def test_a_method_may_be_called_eval():
    class Model(nn.Module):
        def forward(self, x):
            return x * 2 if self.training else x

    model = Model()
    check(lambda x: model.eval()(x) + 1, X, fullgraph=True)


def named(x):
    return x


def test_classes_of_functions():
    def fn(x):
        return (
            x + 1, named.__class__, named.__class__.__name__, X.sum.__class__, ValueError(1).__class__,
            Scale.forward.__class__,
        )

    check(fn, X, fullgraph=True)
