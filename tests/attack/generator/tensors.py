"""Elementwise operations, reductions, products, and operations whose results have sizes of their own."""
from __future__ import annotations

from dataclasses import replace

from tests.attack.generator.builder import FLOAT, Builder, Kind, NoFit, Var

UNARY = (
    "{x}.relu()", "{x}.sin()", "{x}.abs()", "-{x}", "{x}.tanh()", "{x}.exp()", "{x} * {n}", "{x} + {n}", "{n} - {x}",
    "{x} / 2", "{x}.sigmoid()",
    "{x}.clamp(-1, 1)",
    "{x}.square()", "torch.nn.functional.gelu({x})", "{x}.abs().sqrt()", "{x}.softmax(-1)", "{x}.cumsum(0)",
    "torch.nn.functional.dropout({x}, 0.5, training=False)",
    "{x}.floor()", "{x}.round()", "{x} ** 2", "{x} % 2", "{x} // 0.5", "{x}.sign()", "torch.zeros_like({x})",
    "torch.ones_like({x})",
    "torch.full_like({x}, 1.5)",
    "{x}.clone()", "{x}.contiguous()", "{x}.neg()", "{x}.masked_fill({x} > 0, {n})",
    "torch.nn.functional.layer_norm({x}, {x}.shape[-1:])", "{x}.flip(0)",
    "{x}.erf()", "{x}.log1p()", "{x}.nan_to_num()", "torch.nn.functional.silu({x})", "{x}.roll(1, 0)",
    "{x}.add({n}, alpha=2)", "{x}.reciprocal()",
    "{x}.trunc()",
    "{x}.sort(0).values", "{x}.tril() if {x}.dim() > 1 else {x} * 1", "torch.nn.functional.normalize({x}, dim=-1)",
    "{x}.clone(memory_format=torch.contiguous_format)",
    "{x}.double().float()", "{x}.new_zeros({x}.shape)", "torch.empty_like({x}).fill_({n})",
    "{x}.addcmul({x}, {x}, value=0.5)", "{x}.lerp({x} * 2, 0.25)",
)
BINARY = (
    "{x} + {y}", "{x} * {y}", "{x} - {y}", "{x} / ({y} + 3)",
    "torch.maximum({x}, torch.as_tensor({y}, dtype={x}.dtype))", "torch.where({x} > 0, {x}, {y})",
    "{x}.add({y})", "torch.add({x}, {y}, alpha=2)", "torch.mul({x}, {y})", "{y} * {x}", "{y} - {x}",
    "torch.sub({x}, other={y})", "{x}.mul({y}).add_(1)",
    "{x} ** {y}",
    "torch.where(({x} > 0) & ({x} < 1), {y}, {x})",
)
SAME = (
    "torch.stack([{x}, {y}]).sum(0)", "torch.minimum({x}, {y})", "torch.cat([{x}, {y}])[: len({x})]",
    "torch.where({x} > {y}, {x}, {y})", "torch.atan2({x}, {y})", "{x}.copysign({y})",
)
REDUCE = ("sum", "mean", "amax", "amin", "prod", "logsumexp", "var", "std", "norm", "argmax", "any", "median")


def unary(b: Builder) -> None:
    x = b.tensor(1)
    text = b.choice(*UNARY)
    b.let(text.format(x=x.name, n=b.number()), replace(x.kind, fresh=text not in ("{x}.contiguous()",), dense=True))


def chain(b: Builder) -> None:
    x = b.tensor(1)
    text = x.name
    for _ in range(b.rng.randint(2, 4)):
        inner = text if text.isidentifier() else f"({text})"
        text = b.choice(*UNARY[:18]).format(x=inner, n=b.number())
    b.let(text, replace(x.kind, fresh=True, dense=True))


def binary(b: Builder) -> None:
    x = b.tensor(1)
    b.let(b.choice(*BINARY).format(x=x.name, y=b.other(x)), replace(x.kind, fresh=True, dense=True))


def same_shape(b: Builder) -> None:
    x = b.tensor(1)
    b.let(b.choice(*SAME).format(x=x.name, y=b.tensor(1, like=x).name), replace(x.kind, fresh=True, dense=True))


def reduction(b: Builder) -> None:
    x = b.tensor(1)
    name, rank = b.choice(*REDUCE), len(x.kind.shape)
    dim = b.rng.randrange(-rank, rank)
    keep = b.chance(0.5)
    shape = list(x.kind.shape)
    if keep:
        shape[dim] = "1"
    else:
        del shape[dim]
    kind = replace(x.kind, shape=tuple(shape), fresh=True, dense=True)
    if name == "any":
        b.let(f"({x.name} > 0).any(dim={dim}, keepdim={keep})", replace(kind, dtype="b"))
    elif name == "argmax":
        b.let(f"{x.name}.argmax({dim}, keepdim={keep})", replace(kind, dtype="i"))
    elif name == "median":
        # of memory that repeats, torch's own sorts what lies behind it
        b.let(f"{x.name}.contiguous().median(dim={dim}, keepdim={keep})[0]", kind)
    elif name in ("sum", "mean", "prod") and b.chance(0.3):
        b.let(f"{x.name}.{name}()", replace(kind, shape=()))
    else:
        b.let(f"{x.name}.{name}(dim={dim}, keepdim={keep})", kind)


def broadcast(b: Builder) -> None:
    x = b.tensor(1)
    dim = b.rng.randrange(-len(x.kind.shape), 0)
    text = b.choice(
        "{x} - {x}.mean({d}, keepdim=True)", "{x} / ({x}.abs().sum({d}, keepdim=True) + 1)",
        "{x} * {x}.amax({d}, keepdim=True)",
        "({x} - {x}.mean({d}, keepdim=True)) / ({x}.var({d}, keepdim=True) + 1e-5).sqrt()",
    )
    b.let(text.format(x=x.name, d=dim), replace(x.kind, fresh=True, dense=True))


def product(b: Builder) -> None:
    x = b.tensor(2)
    y = b.tensor(2)
    rows, columns = x.kind.shape[-2], x.kind.shape[-1]
    if len(x.kind.shape) == 2 and len(y.kind.shape) == 2 and y.kind.shape[0] == columns:
        b.let(f"{x.name} @ {y.name}", replace(x.kind, shape=(rows, y.kind.shape[1]), fresh=True))
    elif len(x.kind.shape) == 2:
        b.let(
            b.choice(
                f"{x.name} @ {x.name}.t()",
                f"torch.mm({x.name}, {x.name}.T)",
                f"torch.einsum('ij,kj->ik', {x.name}, {x.name})",
            ),
            replace(x.kind, shape=(rows, rows), fresh=True),
        )
    else:
        raise NoFit


def joined(b: Builder) -> None:
    x = b.tensor(1)
    y = b.tensor(1, like=x)
    if b.chance(0.5):
        sizes = tuple(b.fresh("?") for _ in range(len(x.kind.shape) + 1))
        b.let(f"torch.stack([{x.name}, {y.name}], {b.choice('0', '-1')})", Kind("tensor", sizes, fresh=True))
    else:
        b.let(
            f"torch.cat([{x.name}, {y.name}], 0)",
            Kind("tensor", (f"2{x.kind.shape[0]}", *x.kind.shape[1:]), fresh=True),
        )


def made(b: Builder) -> None:
    x = b.tensor(1)
    n = b.integer()
    kind = replace(x.kind, fresh=True, dense=True)
    one = replace(kind, shape=(f"#{n}",))
    text, kind = b.rng.choice(
        [
            (f"torch.arange({n} + 1)", replace(one, dtype="i")),
            (f"torch.arange({n}, {n} + 3, dtype=torch.float32)", replace(one, shape=("3",))),
            (f"torch.zeros({x.name}.shape)", kind),
            (f"torch.ones({x.name}.size(0))", replace(kind, shape=x.kind.shape[:1])),
            (f"{x.name}.new_ones({x.name}.shape)", kind),
            (f"torch.tensor([1.0, 2.0, {n}])", replace(one, shape=("3",))),
            (f"torch.tensor({n})", replace(kind, shape=(), dtype="i")),
            (f"torch.tensor({n}, dtype={x.name}.dtype)", replace(kind, shape=())),
            (f"torch.full(({n}, 2), 0.5)", replace(kind, shape=(f"#{n}", "2"))),
            (f"torch.linspace(0, 1, {x.name}.shape[0])", replace(kind, shape=x.kind.shape[:1])),
            (f"torch.rand_like({x.name})", kind),
            (f"torch.randn({n} + 1)", one),
            (f"torch.nn.functional.dropout({x.name}, 0.5)", kind),
            (f"torch.eye({n} + 1)", replace(kind, shape=(f"#{n}", f"#{n}"))),
            (f"torch.bernoulli(torch.full({x.name}.shape, 0.5))", kind),
            ("torch.empty(0)", replace(kind, shape=("0",))),
        ]
    )
    b.let(text, kind)


def indexed(b: Builder) -> None:
    x = b.tensor(1)
    shape = x.kind.shape
    text, kind = b.rng.choice(
        [
            (f"{x.name}[{x.name} > 0]", replace(x.kind, shape=(b.fresh("?"),))),
            (f"{x.name}.nonzero()", replace(x.kind, shape=(b.fresh("?"), "r"), dtype="i")),
            (f"{x.name}[torch.tensor([0, 0])]", replace(x.kind, shape=("2", *shape[1:]))),
            (f"{x.name}[[0, -1]]", replace(x.kind, shape=("2", *shape[1:]))),
            (f"{x.name}.index_select(0, torch.tensor([0]))", replace(x.kind, shape=("1", *shape[1:]))),
            (f"{x.name}.gather(0, torch.zeros_like({x.name}, dtype=torch.int64))", x.kind),
            (f"torch.where({x.name} > 0)[0]", replace(x.kind, shape=(b.fresh("?"),), dtype="i")),
            (f"{x.name}.topk(1, dim=0)[0]", replace(x.kind, shape=("1", *shape[1:]))),
            (f"{x.name}.unique()", replace(x.kind, shape=(b.fresh("?"),))),
            (f"{x.name}.scatter(0, torch.zeros_like({x.name}, dtype=torch.int64), 1.0)", x.kind),
            (f"torch.nn.functional.pad({x.name}, (1, 1))", replace(x.kind, shape=(*shape[:-1], f"{shape[-1]}+2"))),
            (f"{x.name}.repeat({', '.join('2' for _ in shape)})", replace(x.kind, shape=tuple(f"2{s}" for s in shape))),
            (f"{x.name}.repeat_interleave(2, 0)", replace(x.kind, shape=(f"2{shape[0]}", *shape[1:]))),
        ]
    )
    b.let(text, replace(kind, fresh=True, dense=True))


def to_python(b: Builder) -> None:
    x = b.tensor(0)
    b.let(
        b.choice(
            f"{x.name}.sum().item()", f"float({x.name}.mean())", f"{x.name}.max().item()",
            f"{x.name}.flatten()[0].item()", f"round(float({x.name}.sum()), 2)",
        ),
        FLOAT,
    )


def unused(b: Builder) -> None:
    """A result nobody asks for: an operation that raises must raise all the same."""
    x = b.tensor(1)
    b.emit(
        b.choice(
            f"{x.name} + 1", f"{x.name}.sum({len(x.kind.shape) - 1})", f"{x.name}.view(-1)", f"{x.name}.exp().log()",
            f"{x.name}.reshape(len({x.name}), -1)",
        )
    )


def several(b: Builder) -> None:
    x = b.tensor(1)
    first, second = b.fresh("t"), b.fresh("t")
    shape = x.kind.shape
    text, kinds = b.rng.choice(
        [
            (f"{x.name}.max(0)", (replace(x.kind, shape=shape[1:]), replace(x.kind, shape=shape[1:], dtype="i"))),
            (f"{x.name}.sort(-1)", (x.kind, replace(x.kind, dtype="i"))),
            (f"torch.var_mean({x.name})", (replace(x.kind, shape=()), replace(x.kind, shape=()))),
            (f"{x.name}, {x.name} * 2", (x.kind, replace(x.kind, fresh=True))),
            (f"torch.aminmax({x.name})", (replace(x.kind, shape=()), replace(x.kind, shape=()))),
            (f"torch.frexp({x.name})", (x.kind, replace(x.kind, dtype="i"))),
        ]
    )
    b.emit(f"{first}, {second} = {text}")
    for name, kind in zip((first, second), kinds):
        b.know(name, kind)


def rebound(b: Builder) -> None:
    x = b.tensor(1)
    b.emit(
        b.choice(
            "{x} = {x} + 1", "{x} = {x} * {n}", "{x} = {x}.relu()", "{x} = {x}.clone()", "{x} = {x} - {x}.mean()"
        ).format(x=x.name, n=b.number())
    )
    _now(b, x)


def _now(b: Builder, x: Var) -> None:
    b.forget(x.name)
    b.know(x.name, replace(x.kind, fresh=True, dense=True))


STATEMENTS = [
    unary, unary, chain, binary, binary, same_shape, reduction, broadcast, product, joined, made, indexed, to_python,
    unused, several, rebound,
]
