"""functools, itertools, collections, operator, math, copy, enum, dataclasses, typing and re as models use them."""
# ruff: noqa: E501
import collections
import copy
import functools
import itertools
import json
import math
import operator
import random
import re
import types
import typing

import torch

from support import Pair, check

X = torch.tensor([1.0, 2.0, 3.0])


def test_partial():
    add = functools.partial(torch.add, alpha=2)
    check(lambda x: add(x, 3) + functools.partial(lambda a, b, c=1: a * b * c, 2, c=5)(x), X)


def test_reduce():
    check(lambda x: functools.reduce(lambda a, b: a + b, [x, x * 2, 3], 1), X)


def test_wraps_decorator():
    def loud(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            return f(*args, **kwargs) * 2

        return inner

    @loud
    def body(x, k=1):
        return x + k

    check(lambda x: (body(x, k=3), body.__name__), X)


def test_lru_cache_of_python_values():
    calls = []

    @functools.lru_cache
    def factor(n):
        calls.append(n)
        return n * 2

    factor(4)
    check(lambda x: x + factor(4), X, graphs=range(1, 3), breaks=range(0, 2))
    assert calls == [4]


def test_cached_property():
    class C:
        def __init__(self, t):
            self.t = t

        @functools.cached_property
        def total(self):
            return self.t.sum()

    check(lambda c: c.total + c.total, C(X))


def test_singledispatch():
    @functools.singledispatch
    def f(v):
        return 0

    @f.register
    def _(v: int):
        return v + 1

    check(lambda x: x + f(1) + f("a"), X, graphs=range(1, 4), breaks=range(0, 3))


def test_itertools():
    def fn(x):
        return (
            x + sum(itertools.chain([1], (2,), range(3))),
            list(itertools.product([1, 2], "a")),
            list(itertools.islice(itertools.count(5, 2), 3)),
            list(itertools.accumulate([1, 2, 3])),
            list(itertools.combinations(range(3), 2)),
            list(itertools.permutations("ab")),
            list(itertools.repeat(0, 2)),
            list(itertools.zip_longest([1], [1, 2])),
            list(itertools.chain.from_iterable([[1], [2]])),
            list(itertools.starmap(pow, [(2, 3)])),
            list(itertools.takewhile(lambda v: v < 2, [1, 2, 1])),
            list(itertools.dropwhile(lambda v: v < 2, [1, 2, 1])),
            [(k, list(g)) for k, g in itertools.groupby("aab")],
            list(itertools.pairwise([1, 2, 3])),
            list(itertools.islice(itertools.cycle("ab"), 3)),
            list(itertools.filterfalse(None, [0, 1])),
            list(itertools.compress("abc", [1, 0, 1])),
        )

    check(fn, X)


def test_itertools_over_tensors():
    check(lambda xs: [a * b for a, b in itertools.product(xs, repeat=2)] + list(itertools.accumulate(xs)), [X, X + 1])


def test_ordereddict():
    def fn(x, d):
        d["b"] = x + 1
        d.move_to_end("a")
        return d, list(d), d.popitem(last=False)

    check(fn, X, collections.OrderedDict(a=1))


def test_defaultdict():
    def fn(x, d):
        d["k"].append(x + 1)
        e = collections.defaultdict(int)
        e["n"] += 2
        return e, "zz" in d, d.get("zz")

    check(fn, X, collections.defaultdict(list))


def test_deque():
    def fn(x, q):
        q.append(x + 1)
        q.appendleft(0)
        a = q.pop()
        q.extend([1, 2, 3])
        q.rotate(1)
        return a, len(q), q[0], list(q), q.popleft()

    check(fn, X, collections.deque([9], maxlen=4))


def test_counter():
    check(
        lambda x, s: (
            x + collections.Counter(s)["a"], collections.Counter(s).most_common(1), collections.Counter(s)["zz"],
        ),
        X,
        "abab",
    )


def test_namedtuple_made_and_read():
    Point = collections.namedtuple("Point", "a b", defaults=[5])
    check(lambda p, x: (Point(x + 1), p._replace(b=x * 2), p.a + p[1], p._asdict(), p._fields), Point(X, X), X)


def test_chainmap_and_simple_namespace():
    check(lambda x: (x + collections.ChainMap({"a": 1}, {"b": 2})["b"], types.SimpleNamespace(k=x * 2).k), X)


def test_operator_module():
    def fn(x, d):
        get = operator.itemgetter("a", "b")
        return (
            operator.add(x, 1), get(d), operator.attrgetter("shape")(x), operator.methodcaller("sum")(x),
            operator.mul(*get(d)), operator.not_(0),
        )

    check(fn, X, {"a": 2, "b": 3})


def test_math_module():
    check(
        lambda x, n: (
            x * math.sqrt(n), math.pi, math.floor(2.7), math.ceil(x.shape[0] / 2), math.log2(8), math.prod([2, 3]),
            math.isinf(math.inf), math.gcd(12, 8),
        ),
        X,
        4,
    )


def test_math_on_a_tensor_reads_its_value():
    check(lambda x: (x + 1) * math.sqrt((x * 2).sum()), X, graphs=range(1, 4), breaks=range(0, 3))


def test_copy_of_containers():
    def fn(x, d):
        shallow, deep = copy.copy(d), copy.deepcopy(d)
        deep["l"].append(2)
        return x + len(shallow["l"]), shallow, deep, shallow["l"] is d["l"]

    check(fn, X, {"l": [1]}, graphs=range(1, 4), breaks=range(0, 3))


class Settings:
    def __init__(self, sizes):
        self.sizes = sizes


class CopiesItself(Settings):
    def __copy__(self):
        return CopiesItself([*self.sizes, 9])


def test_copy_of_instances():
    existing = Settings([1, 2])
    existing.more = 3

    def fn(x):
        made = Settings([x])
        one, two, three = copy.copy(made), copy.copy(CopiesItself([1])), copy.copy(existing)
        one.added = 1
        return (
            x + len(two.sizes) + three.more + hasattr(made, "added"), one.sizes is made.sizes,
            three.sizes is existing.sizes, vars(three), vars(one),
        )

    check(fn, torch.ones(2), fullgraph=True)


def test_typing_at_run_time():
    def fn(x: torch.Tensor, n: int | None = None) -> torch.Tensor:
        y: torch.Tensor = typing.cast(torch.Tensor, x)
        values: list[int] = []
        return y + (n or 1) + len(values)

    check(fn, X)


def test_regular_expression_on_constants():
    check(lambda x, s: (x + 1, re.sub(r"\d+", "#", s)), X, "a12b3", graphs=range(1, 5), breaks=range(0, 5))


def test_random_module_is_not_baked_in():
    check(lambda x: (x + 1, [random.random() for _ in range(2)], x * 2), X, graphs=range(1, 5), breaks=range(0, 5))


def test_warnings_warn_reaches_the_user():
    import warnings

    def fn(x):
        warnings.warn("careful", UserWarning, stacklevel=1)
        return x + 1

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check(fn, X, graphs=range(1, 3), breaks=range(0, 2))
    assert len([w for w in seen if str(w.message) == "careful"]) == 4  # eager and compiled, twice each


def test_deep_copies_of_numbers_that_change():
    def fn(x, k):
        kept = {"size": x.shape[0], "pair": (x.shape[0], k)}
        copied = copy.deepcopy(kept)
        copied["size"] += 1
        return x * copied["size"] * copy.copy(k), kept, copied, copy.deepcopy(x.shape[0])

    pair = Pair(lambda: fn, fullgraph=True)
    for n, k in ((2, 1.5), (3, 2.5), (4, 3.5), (5, 1.5)):
        pair.call(torch.ones(n), k)


def test_json_of_plain_data():
    def fn(x, config, text):
        config["shape"] = list(x.shape)
        read = json.loads(text)
        read["more"] = [x.sum()]
        written = json.dumps(config), json.dumps({2: (1, None)}, indent=1), json.dumps(config, sort_keys=True)
        return x + len(written[0]), written, read, json.loads("[1, 2.5, NaN]")[:2]

    check(fn, torch.ones(2), {"lr": 0.1, "name": "a", "on": True}, '{"a": [1, {"b": null}]}')


def test_json_of_what_is_no_plain_data():
    class Own(dict):
        def __repr__(self):
            return "own"

    def fn(x, case):
        try:
            if case == 0:
                return x, json.dumps({"x": object})
            if case == 1:
                return x, json.dumps(Own(a=1)), json.dumps({"a": Own()}, default=str)
            return x, json.loads("{") if case == 2 else json.dumps({(1, 2): 3})
        except (TypeError, ValueError) as e:
            return x + 1, type(e), str(e)

    for case in range(4):
        check(fn, torch.ones(2), case, graphs=None, breaks=None, ops=None)
