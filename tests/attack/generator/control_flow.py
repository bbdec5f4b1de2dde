"""Branches, loops, and ways out of them."""
from __future__ import annotations

import re
from dataclasses import replace

from tests.attack.generator.builder import BOOL, INT, Builder, Kind, Var

GROWS = r"(\.append|\.extend|\.insert| \+=|\[0:0\] =|\[len)"
"""What makes a list longer, behind its name."""


def body(b: Builder, most: int = 2) -> None:
    b.statements(most)


def update(b: Builder, x: Var) -> None:
    """Changes a variable that lives on after the block."""
    b.emit(
        b.choice(
            "{x} = {x} + {n}", "{x} = {x} * 0.5", "{x} = {x}.relu()", "{x} = -{x}", "{x} = {x} - 1", "{x} = {x}.sin()"
        ).format(x=x.name, n=b.number())
    )


def branch(b: Builder) -> None:
    x = b.tensor(1)
    with b.block(f"if {b.condition()}:"):
        body(b)
        update(b, x)
    if b.chance(0.3):
        with b.block(f"elif {b.condition()}:"):
            update(b, x)
    if b.chance(0.5):
        with b.block("else:"):
            body(b)


def ternary(b: Builder) -> None:
    x = b.tensor(1)
    b.let(f"{x.name} * 2 if {b.condition()} else {x.name} - 1", replace(x.kind, fresh=True, dense=True))


def counted(b: Builder) -> None:
    if b.loops >= 2:
        return ternary(b)
    x = b.tensor(1)
    i = b.fresh("i")
    b.loops += 1
    ranges = (
        f"range({b.integer()})", "range(3)", f"range({b.integer()}, 4, 2)", "reversed(range(3))",
        f"range(len({x.name}))",
    )
    with b.block(f"for {i} in {b.choice(*ranges)}:"):
        b.know(i, INT)
        update(b, x)
        if b.chance(0.5):
            body(b)
        if b.chance(0.4):
            with b.block(f"if {b.choice(f'{i} == 1', f'{i} > 2', b.condition())}:"):
                b.emit(b.choice("break", "continue", f"return {x.name}, {i}"))
        if b.chance(0.3):
            b.emit(f"{x.name} = {x.name} + {i}")
    if b.chance(0.2):
        with b.block("else:"):
            update(b, x)
    b.loops -= 1


def over_tensors(b: Builder) -> None:
    if b.loops >= 2:
        return ternary(b)
    x = b.tensor(1)
    row, total = b.fresh("row"), b.let("0", Kind("any"))
    b.loops += 1
    heads = [f"for {row} in {x.name}:", f"for {row} in {x.name}.unbind(0):", f"for {row} in {x.name}.split(1):"]
    heads += [
        f"for {row} in {v.name}:" for v in b.all("list") + b.all("tuple") if v.kind.of and v.kind.of.name == "tensor"
    ]
    head = b.choice(*heads)
    over = head.removeprefix(f"for {row} in ").removesuffix(":")
    with b.block(head):
        start = len(b.lines)
        b.emit(f"{total.name} = {total.name} + {row}.sum()")
        if b.chance(0.3):
            b.emit(f"if {row}.sum() < -2: break")
        body(b, 1)
        if over.isidentifier() and any(re.search(rf"\b{over}{GROWS}", line) for line in b.lines[start:]):
            b.lines.insert(start, "    " * b.depth + f"if len({over}) > 20: break")  # or it would never end
    b.loops -= 1


def until(b: Builder) -> None:
    if b.loops >= 2:
        return ternary(b)
    x, k = b.tensor(1), b.fresh("k")
    b.emit(f"{k} = 0")
    b.loops += 1
    with b.block(f"while {k} < 9 and ({k} < {b.choice('3', b.integer())} and {b.condition()}):"):
        b.emit(f"{k} += 1")
        update(b, x)
        body(b, 1)
        if b.chance(0.3):
            with b.block(f"if {b.condition()}:"):
                b.emit(b.choice("break", "continue"))
    b.loops -= 1
    b.know(k, INT)


def matched(b: Builder) -> None:
    x = b.tensor(1)
    subjects = [v.name for v in b.all("int") + b.all("str") + b.all("tuple") + b.all("list") + b.all("dict")] or [
        f"{x.name}.dim()"
    ]
    with b.block(f"match {b.choice(*subjects)}:"):
        for case in b.rng.sample(
            [
                "case 1 | 2:", "case 'a' | 'add':", "case [first, *rest]:", "case {'a': found}:",
                "case int(number) if number > 2:", "case (left, right):", "case str():",
            ],
            3,
        ):
            with b.block(case):
                update(b, x)
        with b.block("case _:"):
            update(b, x)


def integers(b: Builder) -> None:
    n, m = b.integer(), b.integer()
    b.let(
        b.choice(
            f"{n} + {m}", f"{n} * 2", f"{n} - {m}", f"max({n}, {m})", f"{n} // 2", f"{n} ** 2", f"abs({n} - 3)",
            f"min({n}, 2)", f"({n} << 1) | {m}", f"divmod({n}, 2)[0]", f"int({n} / 2)",
        ),
        INT,
    )


def truths(b: Builder) -> None:
    b.let(
        b.choice(
            f"{b.condition()} and {b.condition()}", f"not ({b.condition()})", f"{b.condition()} or {b.condition()}",
            f"bool({b.condition()})",
        ),
        BOOL,
    )


def asserted(b: Builder) -> None:
    b.emit(b.choice(f"assert {b.condition()} or True", f"assert {b.tensor(1).name}.dim() < 5, 'too many'",
        f"assert {b.integer()} < 4, f'{{{b.integer()}}} is too large'"))


def printed(b: Builder) -> None:
    facts = [v.name for v in b.variables if v.kind.name in ("int", "str", "bool", "fact", "float")]
    b.emit(
        b.choice(
            f"print({', '.join(b.rng.sample(facts, min(2, len(facts)))) or repr('here')})",
            "print('reached')",
            f"print(f'{{{b.number()}}}')",
        )
    )


def left_early(b: Builder) -> None:
    with b.block(f"if {b.condition()}:"):
        b.emit(f"return {b.tensor(1).name} + 1")


def assigned_within(b: Builder) -> None:
    n = b.fresh("n")
    with b.block(f"if ({n} := {b.integer()} + 1) > {b.rng.randint(0, 3)}:"):
        b.know(n, INT)
        update(b, b.tensor(1))
    b.know(n, INT)


def deleted(b: Builder) -> None:
    x = b.one([v for v in b.all("tensor") if v.kind.fresh])
    if x.name in {p.name for p in b.params} or b.depth > 1:
        return ternary(b)
    b.emit(f"del {x.name}")
    b.forget(x.name)


STATEMENTS = [
    branch, branch, ternary, counted, counted, over_tensors, until, matched, integers, integers, truths, asserted,
    printed, left_early, assigned_within, deleted,
]
