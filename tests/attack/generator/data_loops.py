"""Loops that data end: in most what a graph may repeat, in some what it may not."""
from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from tests.attack.generator.builder import BOOL, FLOAT, INT, Builder

HELPERS = """
class Holder:
    def __init__(self):
        self.value, self.turns = None, 0


HOLDER, SEEN = Holder(), []


def eased(t, by=0.5):
    return t * by + t.mean() * 0.1


def folded(t):
    while t.isfinite().all() and t.abs().max() > 3:
        t = t / 2
    return t
"""
CONDITIONS = (
    "{x}.sum() > {c}", "{x}.abs().max() > {c}", "({x} > {c}).any()", "not {x}.mean() < {c}", "{x}.norm() > 1",
    "{x}.amax() != {x}.amin()", "{x}.flatten()[0] < {c}", "{x}.sum().item() < 3", "torch.isfinite({x}).all()",
    "{x}.mean() < 3 and {x}.sum() > -9", "{x}.sum() > {c} or {x}.mean() < 0", "{z}.sum() < {x}.sum() + {c}",
    "{x}.abs().sum() > {f}", "{g}", "not {g}", "{x}.numel()", "float({x}.max()) > {c}", "{n} < 7 and {x}.mean() < 2",
    "({x} - {z}).abs().max() > 0.01", "{x}.amax() > {n}", "{x}.any()", "True",
)
STEPS = (
    "{x} = {x} * 0.5", "{x} = {x} / 2 + {c}", "{x} = {x} - {y}", "{x} = torch.tanh({x}) * 2", "{x} = {x}.clamp(-2, 2)",
    "{x} = torch.where({x} > 0, {x} - 1, {x})", "{x} = {x} - {x}.mean()", "{x}, {z} = {z}, {x}", "{z} = {z} + {x}",
    "{z} = {x}", "{x} = {x} * 1", "{n} += 1", "{n} = {n} * 2 - 1", "{f} = {f} * 0.5 + 1", "{g} = not {g}",
    "{g} = {q}", "{x} = {x} + {n}", "{x} = {x} * {f}", "{x} = {x} + {k}", "{x} = {x} + torch.rand_like({x})",
    "{x} = torch.nn.functional.dropout({x}, 0.5)", "{x} = {x}.flip(0)", "{x} = {x} + torch.randn(())",
    "if {q}:\n    {x} = {x} - 1", "if {q}:\n    {x} = {x} - 1\nelse:\n    {x}, {n} = {x} * 0.5, {n} + 1",
    "for {j} in range(2):\n    {x} = {x} * 0.9 + {j}", "{l} = [{x}, {x} + 1]\n{x} = torch.stack({l}).mean(0)",
    "{x} = eased({x})", "{x} = eased({x}, by={f})", "{s} = {x}.sum()\n{x} = {x} / ({s}.abs() + 1)",
    "{s} = {x}.mean().item()\n{x} = {x} - {s}", "{f} = {x}.mean().item()", "{z} = {x}.clone()",
    "{z} = {x}.view_as({x})",
    "{x} = {x}.reshape(-1).reshape({x}.shape)", "{x} = {x}.detach()", "{n} = {n} + ({x} > 0).sum().item()",
    "{x} = {x} if {q} else {z}", "{x} = torch.minimum({x}, {z}) + 0.5", "{x} = {x}.sin() + {f} * {n}",
    "{x} = ({x} * 4).round() / 4 - 0.25", "{z} = {z} if {n} > 2 else {x}", "{x} = folded({x} * 3)", "{n} -= {k}",
    "if {q}:\n    break", "if {q}:\n    continue", "{x} = {x} + {y}.sum()",
)
ODD = (
    "{x} += 1", "{x}.mul_(0.5)", "{x}[0] = 0.25", "SEEN.append({x}.sum())", "print('turn', {k})",
    "HOLDER.value = {x}", "HOLDER.turns += 1", "{x} = {x}.double()", "{x} = {x}[1:]", "{x} = {x}.T.contiguous().T",
    "{x} = torch.cat([{x}, {x}])", "if {q}:\n    raise ValueError(f'after {{{k}}}')", "if {q}:\n    return {x}, {n}",
    "assert {x}.sum() < 4, 'too large'", "with torch.no_grad():\n    {x} = {x} - 1",
    "try:\n    {x} = {x} - 1\nexcept RuntimeError:\n    pass", "{x} = {x} + {y}[{n}]",
    "{x} = {x} + {x}.new_ones({n} + 1)",
    "{z}.add_({x})", "{x} = {x}.to(torch.int64)", "{n} = {n} / 2", "{n} = {n} * 5 % 7", "{s} = {x} + 1\n{s}.sub_({x})",
    "{x} = {x}.flatten()[torch.arange({x}.numel()) + {n}].reshape({x}.shape)", "{x}.requires_grad_()",
    "{x} = {x}.t()", "{f} = None", "{z} = {x}[:]", "{z} = {x}.view(-1)", "torch.manual_seed({n})",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n    {x} = {x} * 2", "{g} = {x}.sum() > 0", "{f} = {n}",
    "{x} = torch.zeros_like({x}).add_({x})", "SEEN[:] = [{n}]", "{l} = {x}\n{l} -= 1", "{l} = lambda: {x}",
)
BEFORE = ("{p}", "{p} * 1", "{p} + 1", "{p}.detach()", "{p}.clone()", "{p}.sum(0)", "{p}.float()", "{p} * 10", "-{p}")
AFTER = (
    "{x}.add_(1)", "{z}.mul_(2)", "{g} = {x} is {z}", "{p}.add_(1)", "{z} = {x}[0]", "HOLDER.value = {x}",
    "{g} = {x} is {p}", "{l} = [{x}, {z}, {x}]", "{x} = {x} * {f} + {n}", "SEEN.append({x})",
    "{s} = torch.ones({n} % 5)",
    "{x} = {x}.relu() + {z}", "print({n}, {g})", "if {x}.sum() > 0:\n    {x} = {x} - 1",
    "{s} = {x}.data_ptr() == {p}.data_ptr()",
    "if {n} > 2:\n    {x} = {x} * 2", "{l} = {{'x': {x}, 'n': {n}}}", "{f} = {f} + {n}", "{s} = range({n} % 4)",
)


@dataclass
class _Names:
    """What a loop's statements speak of."""

    given: dict[str, str]
    limit: int

    def text(self, b: Builder, template: str) -> str:
        asked = template.replace("{q}", _condition(b))
        return asked.format(**self.given, c=b.choice("0", "1", "0.5", "-1", "2"), **{
            key: b.fresh(prefix) for key, prefix in (("j", "j"), ("l", "items"), ("s", "s")) if f"{{{key}}}" in asked
        })


def _condition(b: Builder) -> str:
    return b.choice(*CONDITIONS[:-1])


def data_loop(b: Builder) -> None:
    """A loop with what it changes, which is there behind it."""
    if "eased" not in "".join(b.definitions):
        b.define(HELPERS)
    given = b.tensor(1)
    fresh = replace(given.kind, fresh=True, dense=True)
    x = b.let(b.choice(*BEFORE).format(p=given.name), fresh, "x")
    z = b.let(b.choice("{x}", "{x} * 2", "{p}", "torch.zeros_like({x})").format(x=x.name, p=given.name), fresh, "z")
    n, f = b.let(b.integer(), INT, "n"), b.let(b.choice("1.0", "0.5", "0.0"), FLOAT, "f")
    g = b.let(b.choice("True", "False"), BOOL, "g")
    y = b.tensor(1)
    names = _Names(
        {
            "x": x.name, "z": z.name, "n": n.name, "f": f.name, "g": g.name, "y": y.name, "p": given.name,
            "k": b.fresh("k"),
        },
        b.rng.randint(0, 6),
    )
    with b.block("with torch.no_grad():") if b.chance(0.2) else contextlib.nullcontext():
        _loop(b, names, 0)
    for var in (x, z, n, f, g):
        b.forget(var.name)
        b.know(var.name, var.kind)
    for _ in range(b.rng.randint(0, 3)):
        _emit(b, names.text(b, b.choice(*AFTER)))


def _loop(b: Builder, names: _Names, depth: int) -> None:
    k, limit = names.given["k"], names.limit
    condition = names.text(b, _condition(b))
    form = b.choice("while", "while", "while", "and", "tensor", "for", "endless")
    odd = b.chance(0.35)
    if form == "for":
        head, counts, bound = f"for {k} in range({b.choice('0', '1', '2')}, {limit + 2}):", "", ""
    elif form == "tensor":
        b.emit(f"{k} = torch.zeros(())")
        head, counts, bound = f"while {k} < {limit}:", f"{k} = {k} + 1", ""
    else:
        b.emit(f"{k} = 0")
        counts = f"{k} += 1"
        head, bound = {
            "while": (f"while ({condition}) and {k} < {limit}:", ""),
            "and": (f"while {k} < {limit} and ({condition}):", ""),
            "endless": (b.choice("while True:", f"while {condition}:"), f"if {k} > {limit}:\n    break"),
        }[form]
    b.loops += 1
    with b.block(head):
        for text in (counts, bound):
            if text:
                _emit(b, text)
        for _ in range(b.rng.randint(1, 4)):
            if depth == 0 and b.chance(0.1):
                inner = _Names({**names.given, "k": b.fresh("k")}, b.rng.randint(1, 3))
                _loop(b, inner, 1)
            else:
                _emit(b, names.text(b, b.choice(*ODD) if odd and b.chance(0.4) else b.choice(*STEPS)))
        if form == "for" or b.chance(0.2):
            _emit(b, f"if {names.text(b, _condition(b))}:\n    break")
    if b.chance(0.1):
        with b.block("else:"):
            _emit(b, names.text(b, b.choice(*STEPS[:22])))
    b.loops -= 1


def _emit(b: Builder, text: str) -> None:
    for line in text.split("\n"):
        b.emit(line)


STATEMENTS = [data_loop]
