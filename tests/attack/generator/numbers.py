"""Numbers that are computed from sizes, floats among them, and constants beside tensors of few bits."""
from __future__ import annotations

from dataclasses import replace

from tests.attack.generator.builder import FLOAT, INT, Builder, Kind

FLOATS = (
    "{n} ** 0.5", "{n} / 2", "{n} * 0.7", "{n} / 3 + {m}", "math.sqrt({n} + 1)", "({n} + 1) ** -0.5",
    "math.log({n} + 1)", "float({n})", "1 / ({n} + 1)", "{n} * 0.5 // 2", "{n} * 0.3 % 1", "0.9 ** {n}",
    "max({n} / 3, 1.5)", "min({n} ** 0.5, 2.0)", "abs({n} / 2 - 2)", "({n} - 2) * {m} / 4",
)
WHOLE = (
    "int({n} * 0.7)", "int({n} ** 0.5)", "math.floor({n} * 0.3)", "math.ceil({n} / 3)", "round({n} / 3)",
    "math.isqrt({n})", "math.trunc({n} * 0.9)", "int({n} / 2)", "round({n} * 0.5)", "int(max(1, {n} * 0.3))",
)
QUESTIONS = (
    "{n} / 2 >= {k}", "math.sqrt({n}) > {k}.5", "{n} * 0.5 == {k}", "{k} < {n} / 1.5 < {k} + 2", "{n} > {k}.5",
    "({n} / 3).is_integer()", "{n} ** 0.5 != 2.0", "int({n} * 0.7) == {k}", "math.log({n} + 1) <= 1.5",
)
CONSTANTS = ("0.1", "-0.3", "1000.1", "1 / 3", "257", "3", "1e-3", "True", "float('inf')")
KEPT = (
    "torch.full_like({h}, {c})", "torch.where({h} > 0, {h}, {c})", "{h}.masked_fill({h} < {c}, {c})",
    "{h}.clamp(max={c})", "{h}.clamp_min({c})", "{h}.new_full({h}.shape, {c})",
    "torch.nn.functional.hardtanh({h}, -1, 2)", "torch.nn.functional.threshold({h}, 0.1, {c})",
    "torch.empty_like({h}).fill_({c})", "{h}.nan_to_num({c})",
    "torch.nn.functional.pad({h}, (1, 0), value={c})[..., 1:]", "{h}.clone().copy_(torch.tensor({c}))",
)


def size_of(b: Builder) -> str:
    x = b.tensor(1)
    return f"{x.name}.{b.choice(f'shape[{b.rng.randrange(len(x.kind.shape))}]', 'numel()', 'size(-1)')}"


def float_of_a_size(b: Builder) -> None:
    v = b.let(b.choice(*FLOATS).format(n=size_of(b), m=size_of(b)), FLOAT)
    x = b.tensor(1)
    text = b.choice("{x} * {v}", "{x} + {v}", "{x} / ({v} + 1)", "{v} - {x}", "{x} * ({v} > 1)", "{x}.clamp(max={v})")
    b.let(text.format(x=x.name, v=v.name), replace(x.kind, fresh=True, dense=True))


def whole_number_of_a_size(b: Builder) -> None:
    n = b.let(b.choice(*WHOLE).format(n=size_of(b)), INT)
    x = b.tensor(1)
    text = b.choice("{x}[:{n}].sum()", "{x} * {n}", "{x}.new_zeros({n}).sum() + {x}", "torch.arange({n}).sum() + {x}")
    shape = () if text.startswith("{x}[") else x.kind.shape
    b.let(text.format(x=x.name, n=n.name), replace(x.kind, shape=shape, fresh=True, dense=True))


def question(b: Builder) -> None:
    x = b.tensor(1)
    with b.block(f"if {b.choice(*QUESTIONS).format(n=size_of(b), k=b.rng.randint(0, 4))}:"):
        b.emit(f"{x.name} = {x.name} {b.choice('+', '*')} {b.number()}")
        b.emit("print('asked')")


def constant(b: Builder) -> None:
    """What is kept is looked at in a wider dtype, where it shows whether it was rounded."""
    x = b.tensor(1)
    half = b.choice("torch.bfloat16", "torch.float16", "torch.float32")
    kept = b.choice(*KEPT).format(h=f"{x.name}.to({half})", c=b.choice(*CONSTANTS))
    b.let(f"({kept}).double()", replace(x.kind, fresh=True, dense=True))


def compared_constant(b: Builder) -> None:
    x = b.tensor(1)
    half, c = b.choice("torch.bfloat16", "torch.float16", "torch.float32"), b.choice(*CONSTANTS[:6])
    sign = b.choice("==", "<", ">=", "!=", "<=", ">")
    equal = f"(torch.full((2,), {c}, dtype={half}) {sign} {c}).sum()"
    b.emit(f"print(int(({x.name}.to({half}) {sign} {c}).sum()), int({equal}))")


def rounded_sum(b: Builder) -> None:
    x = b.tensor(1)
    half, c = b.choice("torch.bfloat16", "torch.float16"), b.choice(*CONSTANTS[:6])
    text = b.choice("{h} + {c}", "{h} - {c}", "{h} * {c}", "{h} / {c}", "{h} % {c}", "{h} // {c}")
    b.let(text.format(h=f"{x.name}.to({half})", c=c), Kind("tensor", x.kind.shape, fresh=True))


STATEMENTS = [
    float_of_a_size, float_of_a_size, whole_number_of_a_size, whole_number_of_a_size, question, question, constant,
    compared_constant, rounded_sum,
]
