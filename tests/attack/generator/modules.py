"""Modules with parameters and buffers, called, changed, and trained outside."""
from __future__ import annotations

from tests.attack.generator.builder import Builder, Kind, NoFit, tensor_kind

NET = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.{norm}(4)
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 4))
        self.register_buffer('count', torch.zeros(()))
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])
        self.named = torch.nn.ModuleDict({{'a': torch.nn.ReLU(), 'b': torch.nn.Tanh()}})
        self.steps = 0
        self.cache = None

    def forward(self, x, times=1):
        {forward}
        return x
"""
FORWARDS = (
    "x = self.linear(x) * self.weight",
    "x = self.norm(self.linear(x)).relu()",
    "self.steps += 1\n        x = self.linear(x) + self.steps",
    "self.count += 1\n        x = x * self.count",
    "for block in self.blocks:\n            x = block(x) + x",
    "self.cache = x if self.cache is None else self.cache + 1\n        x = x + self.weight * times",
    "x = torch.nn.functional.dropout(self.linear(x), 0.5, self.training)",
    "x = self.named['a'](x) if self.training else self.named['b'](x)",
    "x = sum(p.sum() for p in self.parameters()) + x",
    "for name, child in self.named_children():\n            if name == 'linear':\n                x = child(x)",
    "with torch.no_grad():\n            self.count.add_(x.sum())\n        x = self.linear(x)",
    "x = torch.nn.functional.linear(x, self.linear.weight, bias=self.weight)",
    "self.count = self.count + x.detach().mean()\n        x = x - self.count",
)


def module(b: Builder) -> None:
    """A module of the program's globals; tensors with rows of four go through it."""
    if not b.fixed:
        raise NoFit
    if not any("class Net" in text for text in b.definitions):
        b.define(NET.format(norm=b.choice("LayerNorm", "BatchNorm1d", "LayerNorm"), forward=b.choice(*FORWARDS)))
        b.define("torch.manual_seed(7)\nmodel = Net()")
        b.changes += [
            *(
                lambda: "model.eval()", lambda: "model.train()", lambda: "model.steps += 3",
                lambda: "model.cache = None", lambda: "model.linear.bias = None", lambda: "model.double()",
                lambda: "model.float()",
            ),
            *(
                lambda: "model.weight.requires_grad_(not model.weight.requires_grad)",
                lambda: "model.named['b'] = torch.nn.Sigmoid()", lambda: "model.blocks.append(torch.nn.Identity())",
                lambda: "model.zero_grad()",
            ),
            *(
                lambda: "model.linear = torch.nn.Linear(4, 4)", lambda: "model.weight.data = model.weight.data * 2",
                lambda: "model.weight = torch.nn.Parameter(torch.ones(4))", lambda: "model.count = torch.ones(())",
            ),
            *(
                lambda: "model.requires_grad_(False)",
                lambda: "model.linear.register_forward_hook(lambda m, args, out: out * 2)",
                lambda: "model.forward = lambda x, times=1: x * times", lambda: "model.count.fill_(2)",
            ),
        ]
    rows = [v for v in b.all("tensor") if v.kind.shape[-1:] == ("4",) and len(v.kind.shape) > 1]
    x = b.one(rows)
    b.let(
        b.choice(
            f"model({x.name})",
            f"model({x.name}, times=2)",
            f"model.linear({x.name})",
            f"model.forward({x.name})",
            f"model.blocks[1]({x.name})",
            f"torch.nn.Sequential(model.linear, model.named['a'])({x.name})"
            if b.chance(0.2)
            else f"model.norm({x.name})",
        ),
        x.kind,
    )


def weights(b: Builder) -> None:
    if not any("class Net" in text for text in b.definitions):
        return module(b)
    x = b.tensor(1)
    text = b.choice(
        "model.training", "model.steps", "len(list(model.parameters()))", "[n for n, _ in model.named_parameters()]",
        "model.weight.sum()", "sorted(model.state_dict())", "model.count + 1", "list(model.named_buffers())",
        "model.linear.weight.shape", "len(model.blocks)", "'a' in model.named",
        "[type(m).__name__ for m in model.modules()]", "hasattr(model, 'missing')",
        "model.linear.in_features", "model.weight", "model.blocks[-1]",
        f"model.weight * {x.name}.sum()", "next(model.parameters()).dtype", "isinstance(model, torch.nn.Module)",
        "model.get_parameter('weight').requires_grad", "model.extra_repr()", "list(model._modules)",
    )
    b.let(text, tensor_kind() if text == "model.weight.sum()" else Kind("any"))


def change(b: Builder) -> None:
    if not any("class Net" in text for text in b.definitions):
        return module(b)
    x = b.tensor(1)
    b.emit(
        b.choice(
            "model.steps += 1", f"model.cache = {x.name}", "model.train(not model.training)", "model.count.add_(1)",
            f"model.note = {b.integer()}", "model.count = model.count + 1", "model.eval()", f"model.tag = [{x.name}]",
            "model.weight.data.mul_(0.9)",
        )
    )


STATEMENTS = [module, module, module, weights, change]
