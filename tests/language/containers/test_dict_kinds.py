"""OrderedDict, defaultdict, Counter, ChainMap, UserDict, mappingproxy, and classes derived from them."""
import builtins
import copy
import functools
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict

import pytest
import torch

import framejit

from comparison import assert_same
from support import ANY, Pair, check, check_state

X = torch.tensor([1.0, 2.0])


class O(OrderedDict):  # noqa: E742
    pass


def test_ordered_dict():
    def fn(x, d):
        d.move_to_end("a")
        d.move_to_end("c", last=False)
        d["z"] = x + 1
        first = d.popitem(last=False)
        return (
            first, d.popitem()[0], list(d), list(reversed(d)), d.setdefault("g", default=9), d.pop("nope", default=3),
            d,
        )

    check(fn, X, OrderedDict(a=1, b=2, c=3))


def test_ordered_dict_constructors_and_results():
    def fn(x, o):
        made = (
            OrderedDict.fromkeys("ab", value=7), OrderedDict([("k", 1)], j=2), o | {"b": 2}, {"b": 2} | o, o.copy(),
            O(o), O.fromkeys("x"),
        )
        return x + 1, made, [type(m) for m in made]

    check(fn, X, O(a=1))
    check(lambda x: (x + 1, OrderedDict({1: 2}, {3: 4})), X, raises=TypeError)
    check(lambda x: (x + 1, OrderedDict().move_to_end(1)), X, raises=KeyError)
    check(lambda x: (x + 1, OrderedDict().popitem()), X, raises=KeyError)


def test_ordered_dict_changed_while_iterated():
    def fn(x, d):
        for k in d:
            d.move_to_end(k)
            d[k + "x"] = 1
        return x

    check(fn, X, OrderedDict(a=1, b=2), raises=RuntimeError)


def test_ordered_subclass_that_sets_items_in_its_own_way():
    class Own(OrderedDict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value * 2)

    def fn(x):
        d = Own(a=1)
        d.update({"b": 2}, c=3)
        d["d"] = 4
        return x + 1, dict(d), list(d), d

    check(fn, X)


def test_defaultdict():
    def fn(x, d):
        d["new"].append(x + 1)
        made = defaultdict(int, {"a": 1}, b=2)
        made["q"] += 1
        return (
            d, made, made.copy(), made | {"z": 1}, {"z": 1} | made, made.default_factory, "missing" in made,
            made.get("missing"),
        )

    check(fn, X, defaultdict(list))
    check(lambda x: (x + 1, defaultdict(None)[1]), X, raises=KeyError)
    check(lambda x: (x + 1, defaultdict(1)), X, raises=TypeError)


def test_defaultdict_subclasses():
    class Sub(defaultdict):
        pass

    class Own(defaultdict):
        def __missing__(self, key):
            return ("own", key)

    def fn(x):
        s, o = Sub(list), Own(list)
        s[1].append(2)
        return x + 1, s, type(s.copy()), type(s | {}), o[3], 3 in o

    check(fn, X)


def test_counter():
    def fn(x, words):
        c = Counter(words)
        c.update("aab")
        c.subtract(b=5)
        d = Counter(a=1, b=3)
        results = (
            c["nope"], c.most_common(1), sorted(c.elements()), c + d, c - d, c & d, c | d, +c, -c, c == d, c.total(),
            c <= d,
        )
        return x + len(c), results, [type(r) for r in results], c

    check(fn, X, "hello")


def test_counters_with_zeros():
    check(
        lambda x: (x + 1, Counter({"a": 0}) == Counter(), Counter({"a": 0}) != {}, len(Counter({"a": 0}) | Counter())),
        X,
    )


def test_an_existing_counter():
    def fn(x, c):
        c["n"] += 1
        c.update(["n", "m"])
        del c["absent"]
        return x + c["n"], c.copy(), c

    check(fn, X, Counter("nn"))


def test_chain_map():
    def fn(x, a, b):
        c = ChainMap(a, b)
        c["new"] = x + 1
        child = c.new_child({"a": 0})
        return c["b"], c.get("z"), list(c), len(c), child["a"], child.parents["a"], a, c.maps[0] is a

    check(fn, X, {"a": 1}, {"a": 2, "b": 3})


def test_user_dict():
    class Own(UserDict):
        def __setitem__(self, key, value):
            self.data[key] = value * 2

    def fn(x):
        d = Own(a=1)
        d.update(b=2)
        d["c"] = 3
        return x + 1, dict(d), d | {"z": 1}, d.pop("a"), "b" in d, sorted(d.items())

    check(fn, X)


def test_mappingproxy():
    proxy = types.MappingProxyType({"a": 1, "b": 2})

    def fn(x):
        read = proxy.get("z", 3), list(proxy), len(proxy), dict(proxy), proxy.copy()
        return x + proxy["a"], read, proxy | {"c": 3}, {"c": 3} | proxy, proxy == {"a": 1, "b": 2}

    check(fn, X)
    check(lambda x: proxy.__setitem__("a", x), X, raises=AttributeError)


def test_containers_that_hold_themselves():
    def fn(x):
        d, items = {"x": x + 1}, [1]
        d["self"] = d
        items.append((items, d))
        o = OrderedDict(a=items)
        o["o"] = {1: o}
        return x * 2, d, items, o

    import framejit

    _, d, items, o = framejit.optimize(fn, backend="eager")(X)
    assert d["self"] is d and list(d) == ["x", "self"] and items[1][0] is items and items[1][1] is d
    assert o["a"] is items and o["o"][1] is o and list(o) == ["a", "o"]


def test_a_mappingproxy_shows_what_its_mapping_holds():
    def make():
        held = {"a": 1}
        chain = ChainMap({"b": 2})
        view, chained = types.MappingProxyType(held), types.MappingProxyType(chain)

        def fn(x):
            before = dict(view), len(view)
            copied = view.copy()
            held["a"] = 5
            held["c"] = copied["a"]
            return (
                x + view["a"], before, list(reversed(view)), view.get("c"), type(chained.copy()), "c" in view,
                dict(view), copied,
            )

        return fn, held

    check_state(make, (X,), (X,), graphs=None, breaks=None)


def test_a_proxy_that_captured_code_makes():
    def fn(x, outside):
        inside = {"a": x + 1}
        proxy, other = types.MappingProxyType(inside), types.MappingProxyType(outside)
        inside["b"] = x * 2
        outside["c"] = x
        log = []
        for attempt in (
            lambda: proxy.__setitem__("a", 1), lambda: proxy["z"], lambda: proxy.clear(),
            lambda: types.MappingProxyType(3),
        ):
            try:
                attempt()
            except (TypeError, AttributeError, KeyError) as e:
                log.append((type(e), str(e)))
        return (
            proxy, other, proxy["a"] + proxy["b"] + other["c"], "b" in proxy, [*proxy], len(proxy), dict(proxy),
            proxy == inside, proxy.get("z"), log,
        )

    def checked(optimized):
        outside = {"c": None, "d": 1}
        proxy, other, *rest = optimized(torch.ones(2), outside)
        outside["new"] = 5
        return type(proxy), type(other), str(dict(proxy)), str(dict(other)), str(rest)

    assert checked(framejit.optimize(fn, backend="eager")) == checked(fn)

    def simple(x):
        kept = types.MappingProxyType({"a": x, "b": [x]})
        return kept["a"] + kept["b"][0], kept

    result, kept = framejit.optimize(simple, backend="eager", fullgraph=True)(torch.ones(2))
    assert type(kept) is types.MappingProxyType and result.tolist() == [2.0, 2.0] and list(kept) == ["a", "b"]


class Filling(dict):
    def __missing__(self, key):
        self[key] = 0
        return 0


class Telling(dict):
    asked = 0

    def __getitem__(self, key):
        Telling.asked += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("make", [lambda: defaultdict(list), Filling, Telling, Counter, OrderedDict])
@pytest.mark.parametrize("is_argument", [False, True])
def test_guards_of_items_add_and_ask_nothing(make, is_argument):
    """The entry for other keys is tried first."""

    def world():
        def goes_on(x, table):
            for key, value in table.items():
                x = x + len(str(value)) + len(key)
            return x, table

        def fn(x, key):
            table = make()
            dict.__setitem__(table, key, (1,))
            print(end="")
            return goes_on(x, table)

        def given(x, key):
            table = make()
            dict.__setitem__(table, key, (1,))
            return held(x, table)

        held = goes_on
        return (given if is_argument else fn), lambda: Telling.asked

    pair = Pair(world)
    for key in ("a", "b", "cc", "a"):
        pair.call(torch.ones(2), key)


def test_guards_of_an_argument_that_fills_itself():
    compiled = framejit.optimize(lambda x, table: x + sum(map(len, table.values())), backend="eager")
    for key in "abca":
        for make in (lambda: defaultdict(list), Filling):
            table = make()
            table[key] = [1, 2]
            assert torch.equal(compiled(torch.ones(2), table), torch.full((2,), 3.0))
            assert dict(table) == {key: [1, 2]}


class Asked:
    """Tells what it was compared or merged with."""

    def __eq__(self, other):
        return type(other), other

    __ne__ = __lt__ = __gt__ = __or__ = __ror__ = __eq__
    __hash__ = None


class AskedDict(dict):
    def __eq__(self, other):
        return type(other), other

    __hash__ = None


OPERATIONS = {
    "==": lambda p: (p == Asked(), Asked() == p, p == AskedDict(), p == {"a": 1}, {"a": 1} == p, p == p, p == 3),
    "!=": lambda p: (p != Asked(), p != {"a": 1}, {"a": 1} != p, p != None),  # noqa: E711
    "<": lambda p: p < Asked(),
    "< dict": lambda p: p < {},
    "|": lambda p: p | Asked(),
    "| dict": lambda p: (p | {2: 3}, {2: 3} | p, p | p, type({2: 3} | p)),
    "| OrderedDict": lambda p: (p | OrderedDict(b=1), OrderedDict(b=1) | p, type(p | OrderedDict(b=1))),
    "reflected |": lambda p: Asked() | p,
    "copy": lambda p: (p.copy(), type(p.copy())),
}


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("made_inside", [True, False], ids=["made inside", "given"])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_mappingproxy_hands_on_what_it_shows(kind, made_inside, operation):
    def fn(x, given):
        proxy = types.MappingProxyType(kind({"a": 1})) if made_inside else given
        try:
            return x + 1, operation(proxy)
        except TypeError as e:
            return str(e)

    compiled = framejit.optimize(fn, backend="eager")
    given = types.MappingProxyType(kind({"a": 1}))
    expected = repr(fn(X, given))
    assert repr(compiled(X, given)) == expected and repr(compiled(X, given)) == expected


def test_a_factory_that_fills_the_item_itself():
    """From CPython 3.14 on what the factory has put there stays."""

    def world():
        made = []

        def factory():
            made.append(len(made) + 1)
            first = len(made) == 1
            own = made[-1]
            if first:
                table["k"]  # noqa: B018
            return own

        table = defaultdict(factory)
        return lambda x: (x + 1, table["k"], dict(table), list(made))

    check_state(world, (X,), (X,), breaks=None, graphs=None)


class ToldFactory:
    def __call__(self):
        return {}

    def __repr__(self):
        return "told"


@pytest.mark.parametrize("factory", [ToldFactory(), list, None], ids=["object", "class", "none"])
def test_text_of_a_defaultdict(factory):
    def fn(x, factory):
        table = defaultdict(factory)
        table["k"] = 1
        return x + 1, repr(table), f"{table}"

    check(fn, X, factory, breaks=None, graphs=None)


class OwnOrdered(OrderedDict):
    pass


class OwnDefault(defaultdict):
    pass


@pytest.mark.skipif(not hasattr(builtins, "frozendict"), reason="frozendict came with CPython 3.15")
@pytest.mark.parametrize("kind", [dict, OrderedDict, OwnOrdered, functools.partial(OwnDefault, int)])
@pytest.mark.parametrize("name", ["__or__", "__ror__", "__eq__", "__ne__", "__ior__"])
def test_dicts_beside_frozen_ones(kind, name):
    frozen = vars(builtins)["frozendict"]({1: 1, 2: 2})

    def fn(x, given):
        table = kind({0: 0, 1: 5})
        return x + 1, getattr(table, name)(given), table | given, given | table, table == given, table

    check(fn, X, frozen, breaks=None, graphs=None)


def _with_attributes(**attributes):
    made = OrderedDict(a=1, b=2)
    vars(made).update(attributes)
    return made


def test_attributes_of_an_existing_ordered_dict():
    def fn(x, d):
        copies = copy.copy(d), copy.deepcopy(d), d.copy(), d | {}
        return (
            x + 1, getattr(d, "tag", None), hasattr(d, "_metadata"), [*vars(d)], [hasattr(c, "tag") for c in copies],
            [getattr(c, "tag", None) is getattr(d, "tag", None) for c in copies],
        )

    states = [(), ("tag",), ("_metadata",), ("_metadata", "tag"), ()]
    check(fn, X, _with_attributes(), changed=[(X, _with_attributes(**{n: [n] for n in names})) for names in states])


def test_attributes_that_are_written():
    def fn(x, d):
        made = OrderedDict(c=x * 2)
        made.meta = OrderedDict()
        made.meta["version"] = made.itself = made
        d.meta, d["new"] = x + 1, made
        d.seen = getattr(d, "seen", 0) + 1
        try:
            return made.nothing
        except AttributeError as e:
            return x + 1, made, made.meta, copy.copy(made).meta is made.meta, str(e)

    given = [_with_attributes(), _with_attributes()]
    for _ in range(3):
        results = []
        for run, d in zip((fn, framejit.optimize(fn, backend="eager")), given):
            made = run(X, d)[1]
            assert made.itself is made.meta["version"] is made and d["new"] is made
            results.append(([*vars(made)], [*made.meta], [*vars(d)], d.meta, d.seen, made["c"], run(X, d)[3:]))
        torch.testing.assert_close(results[0][3], results[1][3])
        torch.testing.assert_close(results[0][5], results[1][5])
        assert [results[0][n] for n in (0, 1, 2, 4, 6)] == [results[1][n] for n in (0, 1, 2, 4, 6)]


def test_state_dicts():
    """Their attribute `_metadata` says which version each module's part is of."""

    def make():
        return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))

    def fn(module, other, x):
        other.load_state_dict(module.state_dict())
        kept = module.state_dict(prefix="kept.")
        return x + 1, other(torch.stack([x, x * 2])), kept, kept._metadata

    check(fn, make(), make(), X)

    def of_old_versions(module, states, x):
        module.load_state_dict(states)
        return x + 1, module[1].num_batches_tracked

    states = make().state_dict()
    del states["1.num_batches_tracked"]
    states._metadata["1"]["version"] = 1
    check(of_old_versions, make(), states, X)


class OwnDict(dict):
    kind = "of the class"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self

    def __deepcopy__(self, memo):
        return OwnDict({key: copy.deepcopy(value, memo) for key, value in self.items()})

    @property
    def doubled(self):
        return self.a * 2

    @functools.cached_property
    def once(self):
        return len(self)


def reads_items(x, table):
    return x * table.a, table.kind, table.doubled, getattr(table, "missing", 1), hasattr(table, "b"), len(table)


def writes_items(x, table):
    table.z = table.a * x
    table.b = 3
    table["q"] = table.z + 1
    table["kind"] = "an item"
    table.a += 1
    kind = table.kind
    del table["kind"]
    return table.z + table.b, table.q, kind, table.kind, list(table), table["a"], "a" in table.__dict__


@pytest.mark.parametrize("fn", [reads_items, writes_items])
def test_items_that_are_attributes(fn):
    pair = check(fn, X, OwnDict(a=1, b=2))
    for table in (OwnDict(a=2, b=2), OwnDict(a=2), OwnDict(a=2, kind="an item"), OwnDict(b=1, a=X)):
        pair.call(X, table)
    pair.expect(breaks=0)
    pair.call(X, OwnDict(b=1))
    assert pair.raised is AttributeError


def test_attributes_that_are_no_items_any_more():
    def fn(x, table):
        return x * table.a

    table = OwnDict(a=1)
    fast = framejit.optimize(fn, backend="eager")
    assert_same(fn(X, table), fast(X, table))
    table.__dict__ = {"a": 5}
    assert_same(fn(X, table), fast(X, table))


@pytest.mark.parametrize("fn", [lambda x, t: (x + t.once, t.once, t), lambda x, t: (delattr(t, "a"), x + 1, t)])
def test_other_uses_of_items_as_attributes_break(fn):
    check(fn, X, OwnDict(a=1), graphs=ANY, breaks=ANY)


class Doubling(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2


class OneKey(OrderedDict):
    def keys(self):
        return ["a"]


def test_an_ordered_dict_asks_other_dicts_for_their_items():
    def fn(x):
        table = Doubling(a=x, b=1)
        updated = OrderedDict(c=1) | table
        updated |= OneKey(a=5, b=7)
        return OrderedDict(table), updated, OrderedDict(OneKey(a=1, b=2)), dict(table), {**table}, OrderedDict({"a": 1})

    check(fn, X)


def test_items_that_become_the_attributes_of_a_new_table():
    def fn(x, n):
        made = OwnDict(a=n, z=3)
        made.b = x * made.a
        made["c"] = made.doubled + made.z
        del made["z"]
        told = [
            made.c, made.__dict__ is made, vars(made) is made, hasattr(made, "z"), made.a, sorted(made),
            made.kind, "b" in made, len(made),
        ]
        try:
            told.append(made.z)
        except AttributeError as e:
            told.append(str(e))
        return x + n, made, OwnDict(made), told

    pair = Pair(lambda: fn)
    for n in (1, 2, 3):
        pair.call(torch.ones(2), n)
    pair.expect(breaks=0)
