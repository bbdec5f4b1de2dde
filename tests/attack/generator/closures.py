"""Functions: helpers of the module, closures with cells that change, lambdas, defaults, keyword arguments, decorators,
recursion."""
from __future__ import annotations

from dataclasses import replace

from tests.attack.generator.builder import INT, Builder, Kind, tensor_kind

DOUBLING = """
def doubling(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return f(*args, **kwargs) * 2

    wrapper.calls = 0
    return wrapper
"""
STATES = (
    "3", "0", "2.5", "[1]", "[1, 2, 3]", "{'k': 2}", "torch.zeros(())", "torch.ones(1)", "'b'", "None", "True",
    "(1, 2, 3)",
)


def helper(b: Builder) -> None:
    """A function of the module, with statements of its own."""
    x, name = b.tensor(1), b.fresh("helper")
    if b.in_function != "fn" or b.budget < 3:
        return lambda_call(b)
    outer, b.in_function = b.in_function, name
    shape = b.rng.randrange(4)
    signature = ("a, n=2", "a, *rest, scale=1, **more", "a, /, n, *, flag=True", "a, n=2, items=[]")[shape]
    with b.function(f"def {name}({signature}):", inner=False):
        b.know("a", x.kind)
        if shape in (0, 2, 3):
            b.know("n", INT)
        b.statements(2)
        if shape == 1:
            b.emit(b.choice("a = a * scale + len(rest)", "a = a + len(more)", "a = sum(rest, a)"))
        elif shape == 3:
            b.emit(b.choice("items.append(n); a = a + len(items)", "a = a * len(items)"))
        b.emit(f"return {b.tensor(1).name} {b.choice('* 1', '+ 0.5', '', '- 2')}")
    b.in_function = outer
    y = b.tensor(1)
    call = (
        b.choice(f"{name}({x.name})", f"{name}({x.name}, {b.integer()})", f"{name}(n={b.integer()}, a={x.name})"),
        b.choice(
            f"{name}({x.name}, scale=2)", f"{name}({x.name}, {y.name}, 1)",
            f"{name}({x.name}, key=1, other={y.name})", f"{name}(*[{x.name}, 1], **{{'scale': 3}})",
        ),
        b.choice(f"{name}({x.name}, {b.integer()})", f"{name}({x.name}, n=1, flag=False)"),
        b.choice(f"{name}({x.name})", f"{name}({x.name}, 3, [1])"),
    )[shape]
    b.let(call, tensor_kind(b.fresh("?"), b.fresh("?")) if b.chance(0.5) else replace(x.kind, fresh=True))
    if shape in (0, 3):
        b.changes.append(lambda: f"{name}.__defaults__ = ({b.rng.randint(0, 4)},{' [1],' if shape == 3 else ''})")


def closure(b: Builder) -> None:
    """An inner function that reads and writes variables of the outer one."""
    if b.in_function != "fn" or b.depth > 2:
        return lambda_call(b)
    x, name, cell = b.tensor(1), b.fresh("inner"), b.fresh("count")
    b.emit(f"{cell} = {b.integer()}")
    outer, b.in_function = b.in_function, name
    with b.function(f"def {name}(a):", inner=True):
        writes = b.chance(0.6)
        if writes:
            b.emit(f"nonlocal {cell}")
            b.emit(f"{cell} += {b.choice('1', 'a.dim()', '2')}")
        b.emit(
            b.choice(
                f"return a * {cell}", f"return a + {x.name}.sum() + {cell}", f"return torch.where(a > 0, a, {cell})"
            )
        )
    b.in_function = outer
    b.know(cell, INT)
    y = b.let(f"{name}({x.name})", replace(x.kind, fresh=True))
    if b.chance(0.5):
        b.let(f"{name}({name}({y.name}))", y.kind)
    if b.chance(0.3):
        b.know(name, Kind("function"))


def lambda_call(b: Builder) -> None:
    x = b.tensor(1)
    kind = replace(x.kind, fresh=True)
    b.let(
        b.choice(
            f"(lambda a: a * 2)({x.name})", f"(lambda a, n={b.integer()}: a + n)({x.name})",
            f"functools.partial(torch.mul, {x.name})(2)",
            f"functools.partial(functools.partial(torch.add, {x.name}), alpha=2)({x.name})",
            f"functools.reduce(torch.add, [{x.name}, {x.name}, {x.name}])", f"(lambda *a: sum(a))({x.name}, 1, 2)",
            f"(lambda **k: k['a'] * k.get('n', 2))(a={x.name})", f"operator.mul({x.name}, 2)",
            f"operator.attrgetter('data')({x.name})", f"operator.methodcaller('sin')({x.name})",
            f"operator.itemgetter(0)([{x.name}])", f"[f({x.name}) for f in (torch.sin, lambda a: a - 1)][-1]",
            f"[lambda a, i=i: a * i for i in range(3)][-1]({x.name})",
            f"[lambda a: a + i for i in range(2)][0]({x.name})",
            f"(torch.sin if {b.condition()} else torch.cos)({x.name})",
        ),
        kind,
    )


def decorated(b: Builder) -> None:
    name, x = b.fresh("timed"), b.tensor(1)
    if not any("def doubling" in text for text in b.definitions):
        b.define(DOUBLING)
    b.define(f"@{b.choice('doubling', 'doubling', 'torch.no_grad()')}\ndef {name}(a, n=1):\n    return a + n")
    b.let(
        b.choice(f"{name}({x.name})", f"{name}({x.name}, n={b.integer()})", f"{name}.__wrapped__({x.name})"),
        replace(x.kind, fresh=True),
    )


def recursive(b: Builder) -> None:
    name, x = b.fresh("again"), b.tensor(1)
    b.define(
        f"def {name}(a, depth):\n    if depth <= 0:\n        return a\n"
        f"    return {name}(a * 2 - depth, depth - 1) + {b.choice('1', 'depth', 'a')}"
    )
    b.let(f"{name}({x.name}, {b.integer()})", replace(x.kind, fresh=True))


def cached(b: Builder) -> None:
    name = b.fresh("known")
    b.define(f"@functools.lru_cache({b.choice('None', 'maxsize=2')})\ndef {name}(n, m=1):\n    return n * 2 + m")
    b.let(
        b.choice(
            f"{name}({b.integer()})",
            f"{name}({b.integer()}, m={b.integer()})",
            f"{name}({b.integer()}) + {name}.cache_info().hits",
        ),
        INT,
    )


def global_state(b: Builder) -> None:
    """A global that the function reads or writes and that changes between calls."""
    name = b.fresh("STATE").upper()
    value = b.choice("1", "2.0", "[1, 2]", "{'k': 1}", "torch.ones(())", "'a'", "None", "(1, 2)")
    b.define(f"{name} = {value}")
    b.changes.append(lambda: f"{name} = {b.choice(*STATES)}")
    if value.startswith(("[", "{")):
        b.changes.append(lambda: f"{name}.append(5)" if value.startswith("[") else f"{name}['k'] = 7")
    x = b.tensor(1)
    if b.in_function == "fn" and b.depth == 1 and b.chance(0.4):
        b.emit(f"globals()['{name}'] = {b.choice(b.integer(), x.name, '[1]')}")
    b.let(
        b.choice(
            f"{name} if isinstance({name}, int) else 1",
            f"len({name}) if hasattr({name}, '__len__') and not isinstance({name}, torch.Tensor) else 2",
            f"str(type({name}).__name__)", f"0 if {name} is None else 1",
        ),
        Kind("any"),
    )
    b.let(
        f"{x.name} * {name} if isinstance({name}, (int, float, torch.Tensor)) else {x.name}",
        replace(x.kind, fresh=False),
    )


STATEMENTS = [
    helper, helper, closure, closure, lambda_call, lambda_call, decorated, recursive, cached, global_state,
    global_state,
]
