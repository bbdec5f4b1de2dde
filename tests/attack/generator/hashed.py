"""Dicts, sets, counters and their like: order, views, operators, and keys with an equality of their own."""
from __future__ import annotations

from tests.attack.generator.builder import INT, WORDS, Builder, Kind, tensor_kind

KEY = """
class Key:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        {noise}
        return isinstance(other, Key) and {equal}

    def __hash__(self):
        return {hash}

    def __repr__(self):
        return f'Key({{self.n}})'
"""


def key(b: Builder) -> str:
    texts = [repr(b.rng.choice(WORDS)), str(b.rng.randint(0, 3))]
    texts += [v.name for v in b.all("int") + b.all("str") + b.all("bool")]
    if b.chance(0.15):
        texts += [b.tensor(1).name, "(1, 'a')", "1.0", "True", "None", "torch.float32"]
    if "class Key" in "".join(b.definitions):
        texts += [f"Key({b.integer()})"] * 2
    return b.rng.choice(texts)


def key_class(b: Builder) -> None:
    if "class Key" not in "".join(b.definitions):
        equal = "self.n {left}== other.n{right}".format(left=b.choice("% 2 ", ""), right=b.choice(" % 2", ""))
        b.define(
            KEY.format(
                noise=b.choice("pass", "print(self.n)"), equal=equal, hash=b.choice("hash(self.n)", "1", "self.n % 2")
            )
        )
    b.let(f"Key({b.integer()})", Kind("key"))


def new_dict(b: Builder) -> None:
    x = b.tensor(1)
    k = b.fresh("table")
    b.emit(
        f"{k} = "
        + b.choice(
            f"{{'a': {x.name}, 'b': {b.tensor(1).name}}}", f"dict(a={x.name}, add=1)",
            f"{{{key(b)}: {x.name}, {key(b)}: 2}}", f"{{i: {x.name} + i for i in range({b.integer()})}}", "{}",
            f"dict(zip(['a', 'b'], {x.name}))", f"collections.OrderedDict(a={x.name}, b=2)",
            "collections.defaultdict(list)",
            f"collections.defaultdict(lambda: {x.name})", f"dict.fromkeys([1, 2], {x.name})",
        )
    )
    b.know(k, Kind("dict"))


def change_dict(b: Builder) -> None:
    d, x, k = b.pick("dict"), b.tensor(1), key(b)
    b.emit(
        b.choice(
            f"{d.name}[{k}] = {x.name} + 1", f"{d.name}.setdefault({k}, {x.name})",
            f"{d.name}.update({{{k}: {x.name}}})", f"{d.name}.pop({k}, None)", f"{d.name}.update(extra={x.name})",
            f"if {d.name}: {d.name}.popitem()", f"if {k} in {d.name}: del {d.name}[{k}]",
            f"{d.name} = {{**{d.name}, {k}: 1}}", f"{d.name} = {d.name} | {{{k}: 2}}", f"{d.name} |= {{{k}: 3}}",
            f"{d.name} = {d.name}.copy()", f"for k in list({d.name}): {d.name}[k] = 1", f"{d.name}.clear()",
            f"{d.name}[{k}] = {d.name}.get({k}, 0)", f"{d.name} = dict(reversed({d.name}.items()))",
            f"{d.name} = {{k: v for k, v in {d.name}.items() if k != 'a'}}",
            f"{d.name}.update([({k}, 1), ('z', {x.name})])",
        )
    )


def from_dict(b: Builder) -> None:
    d, k = b.pick("dict"), key(b)
    b.let(
        b.choice(
            f"list({d.name})", f"len({d.name})", f"list({d.name}.values())", f"{d.name}.get({k})", f"{k} in {d.name}",
            f"[k for k, v in {d.name}.items() if isinstance(v, torch.Tensor)]", f"sorted(map(str, {d.name}))",
            f"{d.name}.keys() & {{'a', 1}}", f"{d.name}.keys() == {{'a', 'b'}}", f"next(iter({d.name}), None)",
            f"{d.name}.keys() | {{9}}",
            f"tuple({d.name}.items())", f"{d.name} == {d.name}.copy()", f"type({d.name}).__name__",
            f"list(reversed({d.name}))", f"{d.name}.get({k}, 'none')", f"{d.name}.values()",
            f"{d.name}.keys() - {{'a'}}", f"isinstance({d.name}, dict)", f"max({d.name}, key=str, default=0)",
        ),
        Kind("any"),
    )


def loop_dict(b: Builder) -> None:
    d = b.pick("dict")
    total = b.let("0", Kind("any"))
    with b.block(f"for k, v in {d.name}.items():"):
        with b.block("if isinstance(v, torch.Tensor):"):
            b.emit(b.choice(f"{total.name} = {total.name} + v.sum()", f"{d.name}[k] = v * 2", f"{total.name} += 1"))
        if b.chance(0.3):
            with b.block("else:"):
                b.emit(b.choice("print(k)", f"{d.name}[k] = 0", "continue"))


def new_set(b: Builder) -> None:
    v = b.fresh("seen")
    b.emit(
        f"{v} = "
        + b.choice(
            f"{{{key(b)}, {key(b)}}}", "set()", f"set(range({b.integer()}))", f"frozenset(({key(b)}, {key(b)}))",
            f"{{i % 2 for i in range({b.integer()})}}", f"set({b.tensor(1).name}.shape)", "set('abc')",
        )
    )
    b.know(v, Kind("set"))


def use_set(b: Builder) -> None:
    v, k = b.pick("set"), key(b)
    other = b.choice(*[w.name for w in b.all("set")], f"{{{key(b)}}}", "{'a', 1}")
    if b.chance(0.4):
        b.emit(
            b.choice(
                f"{v.name} = {v.name} | {other}", f"{v.name} &= {other}", f"{v.name} -= {other}",
                f"{v.name} = {v.name} ^ {other}", f"{v.name} = set({v.name}); {v.name}.add({k})",
                f"{v.name} = set({v.name}); {v.name}.discard({k})", f"{v.name} = {v.name}.union([{k}], {other})",
            )
        )
    else:
        b.let(
            b.choice(
                f"{k} in {v.name}", f"len({v.name})", f"{v.name} <= {other}", f"{v.name} == {other}",
                f"{v.name}.isdisjoint({other})", f"list({v.name})", f"{v.name}.issuperset({other})",
                f"sorted({v.name}, key=str)", f"{v.name} - {other}", f"{v.name}.intersection({other})",
            ),
            Kind("any"),
        )


def tensor_set(b: Builder) -> None:
    x, y = b.tensor(1), b.tensor(1)
    b.let(
        b.choice(
            f"len({{{x.name}, {y.name}}})", f"len(set([{x.name}, {y.name}, {x.name}]))", f"{x.name} in {{{y.name}}}",
            f"len({{{x.name}: 1, {y.name}: 2}})", f"{{{x.name}: 'x', {y.name}: 'y'}}[{x.name}]",
            f"{{id({x.name}): 1}}.get(id({y.name}), 0)",
        ),
        Kind("fact"),
    )


def counter(b: Builder) -> None:
    c = b.fresh("counts")
    b.emit(f"{c} = collections.Counter({b.choice(repr('abca'), '[1, 1, 2]', 'a=2, b=0', f'{{{key(b)}: 3}}', '')})")
    b.emit(
        b.choice(
            f"{c}[{key(b)}] += 1", f"{c}.update(['a'])", f"{c}.subtract(a=1)",
            f"{c} = {c} + collections.Counter(a=1)", f"{c} -= collections.Counter('a')", f"{c} = +{c}",
            f"{c} |= collections.Counter(b=2)",
        )
    )
    b.know(c, Kind("dict"))
    b.let(
        b.choice(
            f"{c}.most_common(1)", f"sum({c}.values())", f"{c}.total()", f"list({c}.elements())", f"{c}['missing']"
        ),
        Kind("any"),
    )


def chained(b: Builder) -> None:
    d = b.pick("dict")
    x = b.tensor(1)
    with b.block(f"if isinstance({d.name}.get('a'), torch.Tensor):"):
        b.emit(
            b.choice(
                f"{x.name} = {d.name}['a'].sum() + {x.name}", f"{d.name}['a'].add_(1)",
                f"{d.name}['b'] = {d.name}['a']", f"{x.name} = {x.name} * {d.name}['a'].dim()",
            )
        )


def word(b: Builder) -> None:
    words = [v.name for v in b.all("str")] + [repr(b.rng.choice(WORDS))]
    w = b.choice(*words)
    b.let(
        b.choice(
            f"{w} + 'x'", f"{w}.upper()", f'f"{{{b.integer()}}}-{{{w}}}"', f"'-'.join([{w}, 'b'])", f"{w}[::-1]",
            f"'%s:%d' % ({w}, {b.integer()})", f"{w}.replace('a', 'b')", f"str({b.integer()})", f"{w} * 2",
            f"'{{}} {{}}'.format({w}, {b.integer()})",
        ),
        Kind("str"),
    )


def by_name(b: Builder) -> None:
    x = b.tensor(1)
    words = [v.name for v in b.all("str")] or ["'relu'"]
    b.let(f"{{'add': torch.add, 'mul': torch.mul}}.get({b.choice(*words)}, torch.sub)({x.name}, 2)", x.kind)
    b.let(f"getattr({x.name}, {b.choice(*words)}, {x.name})", Kind("any"))


def counted_by_key(b: Builder) -> None:
    d = b.fresh("table")
    b.emit(f"{d} = {{}}")
    with b.block(f"for i in range({b.integer()}):"):
        b.emit(f"{d}[i % 2] = {d}.get(i % 2, 0) + {b.tensor(1).name}.sum()")
    b.know(d, Kind("dict"))
    b.let(f"len({d})", INT)


def grouped(b: Builder) -> None:
    x = b.tensor(1)
    d = b.fresh("table")
    b.emit(f"{d} = collections.defaultdict(list)")
    with b.block(f"for i, t in enumerate([{x.name}, {x.name} + 1, {b.tensor(1).name}]):"):
        b.emit(f"{d}[{b.choice('i % 2', 't.dim()', 'len(t)')}].append(t)")
    b.know(d, Kind("dict"))
    b.let(f"sum(t.sum() for ts in {d}.values() for t in ts)", tensor_kind())


STATEMENTS = [
    *(
        key_class, new_dict, new_dict, change_dict, change_dict, change_dict, from_dict, from_dict, loop_dict,
        new_set, use_set, use_set, tensor_set, counter, chained, word, by_name,
    ),
    *(counted_by_key, grouped),
]
