"""Generators and iterators: shared, consumed in part, left behind; functions of itertools."""
from __future__ import annotations

from dataclasses import replace

from tests.attack.generator.builder import Builder, Kind, tensor_kind

COUNTDOWN = """
class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n
"""


def generator(b: Builder) -> None:
    name, x = b.fresh("steps"), b.tensor(1)
    b.define(
        f"def {name}(a, n=3):\n    "
        + b.choice(
            "for i in range(n):\n        yield a + i",
            "try:\n        for i in range(n):\n            yield a * i\n    finally:\n        print('closed')",
            "sent = None\n    for i in range(n):\n        sent = yield (a + i if sent is None else a * sent)",
            "yield a\n    yield from (a + i for i in range(n))\n    return 5",
            "while n > 0:\n        n -= 1\n        yield a.sum() + n",
            "yield 1\n    yield a\n    raise ValueError('end')",
        )
    )
    it = b.fresh("it")
    b.emit(f"{it} = {name}({x.name}{b.choice('', f', {b.integer()}')})")
    b.know(it, Kind("iterator"))
    consume(b)


def source(b: Builder) -> str:
    options = [f"iter([1, {b.integer()}, 3])", f"range({b.integer()})", "'abc'"]
    options += [v.name for v in b.all("list") + b.all("tuple") + b.all("iterator") + b.all("deque") + b.all("dict")]
    x = b.tensor(1)
    return b.choice(*options, x.name, f"[{x.name}, {x.name} * 2]")


def iterator(b: Builder) -> None:
    it, s, r = b.fresh("it"), source(b), source(b)
    b.emit(
        f"{it} = "
        + b.choice(
            f"iter({s})", f"zip({s}, {r})", f"enumerate({s})", f"map(lambda a: (a, 1), {s})",
            f"filter(lambda a: a is not None, {s})",
            f"itertools.chain({s}, {r})", f"itertools.islice({s}, 2)", f"(a for a in {s})",
            f"itertools.count({b.integer()})", f"itertools.repeat({s}, 2)",
            f"itertools.accumulate([1, 2, {b.integer()}])", f"reversed([{b.integer()}, 1])",
            f"itertools.zip_longest({s}, {r})", f"itertools.product([1, 2], [3, {b.integer()}])",
            "itertools.cycle([1, 2])", f"itertools.takewhile(lambda a: a < 2, [1, {b.integer()}, 3])",
            f"itertools.pairwise({s})",
            f"zip({s}, itertools.count())", f"map(torch.sin, [{b.tensor(1).name}])", "iter([1, 2, 3].pop, 1)",
            f"itertools.starmap(lambda a, c: a, zip({s}, {r}))", "itertools.combinations([1, 2, 3], 2)",
            "itertools.groupby([1, 1, 2])",
            f"itertools.compress([1, 2, 3], [1, 0, {b.integer()}])", f"enumerate({s}, start={b.integer()})",
        )
    )
    b.know(it, Kind("iterator"))
    if b.chance(0.7):
        consume(b)


def consume(b: Builder) -> None:
    it = b.pick("iterator")
    b.emit(
        b.choice(
            f"print(next({it.name}, None) is None)", f"first = next({it.name})",
            f"print(len(list(itertools.islice({it.name}, 2))))",
            f"for one in {it.name}: break", f"taken = [one for one, _ in zip({it.name}, range(2))]",
            f"_, *some = itertools.islice({it.name}, 3)", f"print(sum(1 for _ in itertools.islice({it.name}, 5)))",
            f"first, second = next({it.name}), next({it.name}, 0)",
            f"if hasattr({it.name}, 'close'): {it.name}.close()",
            f"if hasattr({it.name}, 'send'): print(type({it.name}.send(None)).__name__)",
            f"print(any(one is 3 for one in itertools.islice({it.name}, 4)))".replace("is 3", "is None"),
            f"shared = [{it.name}, {it.name}]",
            f"a_tee, b_tee = itertools.tee(itertools.islice({it.name}, 2))",
            f"for i, one in zip(range(2), {it.name}): print(i)", f"print({it.name} is iter({it.name}))",
        )
    )


def comprehension(b: Builder) -> None:
    x = b.tensor(1)
    b.let(
        b.choice(
            f"sum(row.sum() for row in {x.name})", f"sum([row * i for i, row in enumerate({x.name})])",
            f"sum(a.sum() for a in ({x.name}, {x.name} * 2) if a.dim() > {b.integer()})",
            f"sum({{i: row.sum() for i, row in enumerate({x.name})}}.values())",
            f"torch.stack([row for row in {x.name}]).sum()",
            f"sum(a * c for a, c in zip({x.name}, reversed({x.name})))",
            f"sum(itertools.chain.from_iterable([[row.sum()] for row in {x.name}]))",
            f"max(row.sum() for row in {x.name})",
            f"all(row.dim() for row in {x.name})", f"len([1 for row in {x.name} if row.sum() > 0])",
            f"sum(map(torch.sum, {x.name}))", "[(i, j) for i in range(2) for j in range(i)]",
        ),
        tensor_kind(b.fresh("?")) if b.chance(0.3) else Kind("any"),
    )


def iterator_class(b: Builder) -> None:
    if not any("class Countdown" in text for text in b.definitions):
        b.define(COUNTDOWN)
    x = b.tensor(1)
    c = b.fresh("down")
    b.emit(f"{c} = Countdown({b.integer()})")
    with b.block(f"for k in {c}:"):
        b.emit(f"{x.name} = {x.name} + k")
        if b.chance(0.3):
            b.emit("if k == 1: break")
    b.know(c, Kind("any"))
    b.emit(b.choice(f"print(list({c}))", f"print(next({c}, 'done'))", f"print({c}.n)"))


def growing(b: Builder) -> None:
    """A list that changes while it is gone through, or after its iterator ended."""
    v, it = b.fresh("items"), b.fresh("it")
    x = b.tensor(1)
    b.emit(f"{v} = [1, 2]")
    b.emit(f"{it} = iter({v})")
    b.emit(
        b.choice(
            f"print(list({it})); {v}.append(3); print(list({it}))",
            f"next({it}); {v}.insert(0, {b.integer()}); print(next({it}))",
            f"print([one for one in {it} if len({v}) < 5 and not {v}.append(one)])",
            f"{v}.clear(); print(next({it}, 'end'))", f"del {v}[0]; print(list({it}))",
        )
    )
    b.let(f"{x.name} * len({v})", replace(x.kind, fresh=True))
    b.know(it, Kind("iterator"))


STATEMENTS = [
    generator, generator, iterator, iterator, iterator, consume, consume, comprehension, comprehension,
    iterator_class, growing,
]
