"""Gradients, dtypes, and the modes of torch: what computes the same numbers under another state."""
from __future__ import annotations

from dataclasses import replace

from tests.attack.generator.builder import Builder, Kind
from tests.attack.generator.control_flow import body, update

CONTEXTS = (
    "torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled({c})", "torch.inference_mode()",
    "torch.autocast('cpu', dtype=torch.bfloat16)", "torch.inference_mode(False)",
    "torch.autocast('cpu', enabled=False)", "torch.random.fork_rng()",
)


def context(b: Builder) -> None:
    x = b.tensor(1)
    with b.block(f"with {b.choice(*CONTEXTS[:3], *CONTEXTS).format(c=b.condition())}:"):
        body(b, 2)
        update(b, x)


def switched(b: Builder) -> None:
    x = b.tensor(1)
    b.emit(
        b.choice(
            "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)", "torch.set_default_dtype(torch.float64)",
            f"torch.manual_seed({b.integer()})",
            "print(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())",
            "print(torch.is_autocast_enabled('cpu'))",
        )
    )
    b.let(b.choice(f"{x.name} * torch.rand(())", f"{x.name} + torch.ones(())", "torch.tensor([1.5, 2])"), Kind("any"))


def detached(b: Builder) -> None:
    x = b.tensor(1)
    text = b.choice(
        "{x}.detach()", "{x}.detach().clone()", "{x}.detach().requires_grad_()", "torch.tensor({x}.tolist())",
        "{x}.clone().requires_grad_(False) if {x}.is_leaf else {x}.clone()", "{x}.data * 2", "({x} * 1).detach_()",
    )
    b.let(text.format(x=x.name), replace(x.kind, fresh="clone" in text or "*" in text))


def differentiated(b: Builder) -> None:
    x = b.tensor(1)
    with b.block(f"if {x.name}.requires_grad and torch.is_grad_enabled():"):
        b.emit(
            b.choice(
                f"print(torch.autograd.grad(({x.name} ** 2).sum(), {x.name})[0].shape)",
                f"({x.name} * 2).sum().backward()", f"print({x.name}.grad_fn is None, {x.name}.is_leaf)",
                f"{x.name}.retain_grad()", f"print(type(({x.name} * 2).grad_fn).__name__)",
                f"{x.name}.register_hook(lambda g: g * 2)",
                f"g, = torch.autograd.grad(({x.name} * {x.name}).sum(), {x.name}, create_graph=True); {x.name} = "
                f"{x.name} + g",
            )
        )


def leaf(b: Builder) -> None:
    x = b.tensor(1)
    w = b.let(
        f"torch.ones({x.name}.shape[-1], requires_grad=True)",
        replace(x.kind, shape=x.kind.shape[-1:], fresh=False),
        "w",
    )
    b.let(f"{x.name} * {w.name}", replace(x.kind, fresh=True))
    if b.chance(0.3):
        b.emit(f"({w.name} * 2).sum().backward(); print({w.name}.grad.sum().item())")


def cast(b: Builder) -> None:
    x = b.tensor(1, "fib")
    text, dtype = b.rng.choice(
        [
            ("{x}.float()", "f"), ("{x}.double()", "f"), ("{x}.half()", "f"), ("{x}.bfloat16()", "f"),
            ("{x}.long()", "i"), ("{x}.int()", "i"), ("{x}.bool()",
                "b"), ("{x}.to(torch.int8)", "i"), ("{x}.to(torch.uint8)", "i"),
            ("{x}.to(torch.float64)", "f"), ("{x}.type(torch.float32)", "f"), ("{x} > 0", "b"),
            ("{x}.to(dtype=torch.float16)", "f"),
                ("{x}.to(torch.complex64)", "c"), ("{x}.type_as(torch.ones(1))", "f"),
                ("{x}.to('cpu', torch.float32, copy=True)", "f"),
            ("{x}.short()", "i"),
        ]
    )
    b.let(text.format(x=x.name), replace(x.kind, dtype=dtype, fresh=dtype != "f"))


def on_integers(b: Builder) -> None:
    x = b.tensor(1, "i")
    text, dtype = b.rng.choice(
        [
            ("{x} // 2", "i"), ("{x} % 3", "i"), ("{x} / 2", "f"), ("{x} ** 2", "i"), ("{x} & 3", "i"),
            ("{x} << 1", "i"), ("~{x}", "i"), ("{x} * {n}", "i"),
                ("{x} + 1.5", "f"), ("{x}.sum()", "s"), ("{x} + 2 ** 40", "i"), ("{x}.clamp(0, 2)", "i"),
            ("-{x}", "i"), ("{x}.bitwise_xor(1)", "i"), ("{x}.float().mean()", "g"), ("{x} >> 1", "i"),
            ("torch.bincount({x}.flatten().abs())", "u"),
                ("{x}.cumsum(0)", "i"), ("{x}.remainder(-3)", "i"), ("{x}.fmod(2)", "i"), ("{x} * 3000000000", "i"),
            ("{x}.prod()", "s"), ("{x}.sqrt()", "f"), ("{x}.div(2, rounding_mode='floor')", "i"),
            ("{x}.sort().values", "i"), ("{x}.max()", "s"),
                ("torch.floor_divide({x}, -2)", "i"), ("{x}.masked_fill({x} > 1, 0)", "i"), ("{x}.add_(1)", "i"),
        ]
    )
    shape = {"s": (), "g": (), "u": (b.fresh("?"),)}.get(dtype, x.kind.shape)
    b.let(
        text.format(x=x.name, n=b.integer()),
        replace(x.kind, dtype={"s": "i", "g": "f", "u": "i"}.get(dtype, dtype), shape=shape, fresh=True),
    )


def on_bools(b: Builder) -> None:
    x = b.tensor(1, "b")
    text, dtype = b.rng.choice([
        ("~{x}", "b"), ("{x} & {x}", "b"), ("{x} * 2", "i"), ("{x}.float()", "f"), ("{x}.sum(0)", "s"),
        ("{x}.logical_not()", "b"), ("{x} + {x}", "b"), ("{x} ^ True", "b"), ("{x} | False", "b"),
        ("{x}.all()", "a"), ("{x}.int() - 1", "i"),
    ])
    shape = {"s": x.kind.shape[1:], "a": ()}.get(dtype, x.kind.shape)
    b.let(text.format(x=x.name), replace(x.kind, dtype={"s": "i", "a": "b"}.get(dtype, dtype), shape=shape, fresh=True))


def on_complex(b: Builder) -> None:
    x = b.tensor(1, "c")
    text, dtype = b.rng.choice([
        ("{x}.real", "f"), ("{x}.imag", "f"), ("{x}.abs()", "f"), ("{x} * 1j", "c"), ("{x}.conj()", "c"),
        ("torch.view_as_real({x})", "f"), ("{x}.angle()", "f"), ("{x}.conj() * {x}", "c"),
        ("{x}.conj().imag", "f"), ("{x}.resolve_conj()", "c"),
    ])
    b.let(
        text.format(x=x.name),
        replace(x.kind, dtype=dtype, shape=(*x.kind.shape, "2") if "as_real" in text else x.kind.shape),
    )


def mixed(b: Builder) -> None:
    x = b.tensor(0, "fibc")
    y = b.tensor(0, "fib")
    if x.kind.shape != y.kind.shape and y.kind.shape and x.kind.shape:
        y = x
    b.let(
        b.choice(
            f"{x.name} + {y.name}", f"{x.name} * {y.name}", f"torch.where({y.name} > 0, {x.name}, 0)",
            f"{x.name} + {b.number()}", f"{x.name} == {y.name}",
        ),
        replace(x.kind, shape=x.kind.shape or y.kind.shape),
    )


STATEMENTS = [
    context, context, switched, detached, differentiated, leaf, cast, cast, on_integers, on_integers, on_bools,
    on_complex, mixed,
]
