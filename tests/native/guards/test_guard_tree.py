"""Each accessor and each check of a guard tree, on its own: what passes, what fails, and which guard is blamed."""

from __future__ import annotations

import collections
import gc
import math
import sys
import types

import pytest

from framejit import _native as native

from native_support import arg, node, tree

A, C = native, native


def passes(value, *checks, via=None):
    """Whether the checks hold for a value, read from argument 0 through the nodes of `via` (accessor, key), outermost
    first."""
    chain = list(via or [])
    inner = None
    for accessor, key in reversed(chain):
        inner = node(accessor, key, *checks, children=[inner] if inner else None, guard_id=7)
        checks = ()
    built = tree(arg(0, *(checks if not chain else ()), children=[inner] if inner else None))
    first = built.check((value,), None)
    assert built.check((value,), None) is first  # what is remembered between evaluations changes no outcome
    assert (built.explain((value,), None) is None) is first
    return first


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("x",)


def reads(value, *via, expect):
    """The chain of accessors reads a value that equals `expect`."""
    return passes(value, (C.C_EQUALS, expect), via=list(via))


# ---- accessors ----


def test_arguments():
    built = tree(arg(0, (C.C_TYPE, int)), arg(1, (C.C_TYPE, str)))
    assert built.check((1, ""), None) and not built.check((1, 1), None) and not built.check((1,), None)
    assert built.explain((1,), None) == (1, None, True) and built.size == 2


def test_attributes_keys_and_items():
    obj = Plain(x=1, d={"k": 2, 3: "three"}, seq=(10, 20), lst=[1, [2]])
    assert reads(obj, (A.A_ATTR, "x"), expect=1)
    assert reads(obj, (A.A_DICT, None), (A.A_KEY, "x"), expect=1)
    assert reads(obj, (A.A_DICT, None), (A.A_KEY, "d"), (A.A_KEY, "k"), expect=2)
    assert reads(obj, (A.A_ATTR, "d"), (A.A_KEY, 3), expect="three")
    assert reads(obj, (A.A_ATTR, "d"), (A.A_GETITEM, "k"), expect=2)
    assert reads(obj, (A.A_ATTR, "d"), (A.A_DICT_KEY_AT, 1), expect=3)
    assert not passes(obj, via=[(A.A_ATTR, "d"), (A.A_DICT_KEY_AT, 2)])
    assert reads(obj, (A.A_ATTR, "d"), (A.A_DICT_VALUE_AT, 1), expect="three")
    assert reads(Plain(d=collections.OrderedDict(a=1, b=2)), (A.A_ATTR, "d"), (A.A_DICT_VALUE_AT, 1), expect=2)
    assert not passes(obj, via=[(A.A_ATTR, "d"), (A.A_DICT_VALUE_AT, 2)])
    assert not passes(obj, via=[(A.A_ATTR, "seq"), (A.A_DICT_VALUE_AT, 0)])
    assert reads(obj, (A.A_ATTR, "seq"), (A.A_INDEX, 1), expect=20)
    assert reads(obj, (A.A_ATTR, "seq"), (A.A_INDEX, -1), expect=20)
    assert reads(obj, (A.A_ATTR, "lst"), (A.A_INDEX, -1), (A.A_INDEX, 0), expect=2)
    for bad in (
        (A.A_ATTR, "nope"), (A.A_KEY, "nope"), (A.A_INDEX, 0), (A.A_GETITEM, 0), (A.A_TYPE_LOOKUP, "nope"),
        (A.A_CELL, None),
    ):
        assert not passes(obj, via=[bad])
    assert not passes((1,), via=[(A.A_INDEX, 1)]) and not passes((1,), via=[(A.A_INDEX, -2)])
    assert not passes([1], via=[(A.A_INDEX, 1)]) and not passes({}, via=[(A.A_KEY, "k")])


def test_items_of_other_sequences():
    class Sequence:
        def __getitem__(self, i):
            return i * 2

        def __len__(self):
            return 5

    Point = collections.namedtuple("Point", "x y")
    assert reads(Sequence(), (A.A_INDEX, 2), expect=4) and reads(Sequence(), (A.A_INDEX, -1), expect=8)
    assert reads(Point(1, 2), (A.A_INDEX, 1), expect=2) and reads(range(5), (A.A_INDEX, 3), expect=3)

    class Doubled(list):
        def __getitem__(self, i):
            return 2 * super().__getitem__(i)

    assert reads(Doubled([1, 2]), (A.A_INDEX, 1), expect=4)


def test_instance_dict_of_every_kind_of_object():
    def function():
        pass

    function.x = 1
    module = types.ModuleType("m")
    module.x = 1

    class Strange(dict):
        pass

    strange = Strange()
    strange.x = 1

    class Error(Exception):
        pass

    error = Error()
    error.x = 1
    for obj in (Plain(x=1), function, module, strange, error):
        assert reads(obj, (A.A_DICT, None), (A.A_KEY, "x"), expect=1)
    for obj in (1, Slotted(), [], None):
        assert not passes(obj, via=[(A.A_DICT, None)])


def test_instance_dict_is_the_live_one():
    obj = Plain()
    obj.x = 1
    built = tree(arg(0, children=[node(A.A_DICT, None, children=[node(A.A_KEY, "x", (C.C_EQUALS, 1))])]))
    for _ in range(3):
        assert built.check((obj,), None)
        obj.x = 2
        assert not built.check((obj,), None)
        obj.__dict__["x"] = 1
        assert built.check((obj,), None)
        obj.__dict__ = {"x": 3}
        assert not built.check((obj,), None)
        obj.__dict__ = {"x": 1}
        assert built.check((obj,), None)
        del obj.x
        assert not built.check((obj,), None)
        obj.x = 1


def test_attribute_writes_are_seen_by_every_path_of_the_interpreter():
    def write(o, v):
        o.x = v

    for fresh in (False, True):
        obj = Plain() if fresh else Plain(x=0)
        obj.x = 0
        built = tree(
            arg(
                0,
                children=[
                    node(
                        A.A_DICT,
                        None,
                        children=[node(A.A_KEY, "x", (C.C_EQUALS, 1)), node(A.A_KEY, "x", (C.C_TYPE, int))],
                    )
                ],
            )
        )
        for i in range(200):  # long enough for the specialised forms of the write
            write(obj, 1)
            assert built.check((obj,), None), i
            write(obj, 2)
            assert not built.check((obj,), None), i


def test_attributes_of_functions_and_modules():
    def outer(x):
        def function(a, b=2, *, k=3):
            return x

        return function

    function = outer(5)
    for name in ("__globals__", "__code__", "__closure__", "__defaults__", "__kwdefaults__"):
        assert passes(function, (C.C_ID, getattr(function, name)), via=[(A.A_ATTR, name)]), name
    assert passes(outer, (C.C_EQUALS, None), via=[(A.A_ATTR, "__defaults__")])
    assert passes(math, (C.C_ID, math.pi), via=[(A.A_ATTR, "pi")])
    assert passes(math, (C.C_EQUALS, "math"), via=[(A.A_ATTR, "__name__")])
    assert passes(math, (C.C_ID, math.__dict__), via=[(A.A_ATTR, "__dict__")])
    lazy = types.ModuleType("lazy")
    lazy.__getattr__ = lambda name: name * 2
    assert passes(lazy, (C.C_EQUALS, "xx"), via=[(A.A_ATTR, "x")])
    lazy.x = "found"
    assert passes(lazy, (C.C_EQUALS, "found"), via=[(A.A_ATTR, "x")])


def test_the_frames_function():
    namespace = {"G": 1, "__builtins__": {"len": len}}
    exec("def make(c):\n def fn(a): return c, G\n return fn", namespace)
    fn = namespace["make"](5)
    built = tree(
        node(
            A.A_CLOSURE_CELL, 0, (C.C_TYPE, types.CellType),
            children=[node(A.A_CELL, None, (C.C_EQUALS, 5), guard_id=1)], guard_id=1,
        ),
        node(A.A_GLOBAL, "G", (C.C_EQUALS, 1), guard_id=2),
        node(A.A_BUILTIN, "len", (C.C_ID, len), guard_id=3),
        node(A.A_FUNC, None, (C.C_ID, fn), guard_id=4),
        node(A.A_FUNC, None, children=[node(A.A_ATTR, "__globals__", (C.C_NO_KEY, "missing"), guard_id=5)], guard_id=5),
    )
    assert built.explain((0,), fn) is None
    namespace["G"] = 2
    assert built.explain((0,), fn)[0] == 2
    namespace["G"] = 1
    fn.__closure__[0].cell_contents = 6
    assert built.explain((0,), fn)[0] == 1
    fn.__closure__[0].cell_contents = 5
    namespace["missing"] = None
    assert built.explain((0,), fn)[0] == 5
    del namespace["missing"], namespace["G"]
    assert built.explain((0,), fn) == (2, None, True)
    assert not tree(node(A.A_GLOBAL, "G")).check((), None)
    empty = types.CellType()
    assert not passes(empty, via=[(A.A_CELL, None)])
    with pytest.raises(TypeError, match="function"):
        built.check((0,), 3)


def test_types_and_their_attributes():
    class Base:
        attribute = 5

    class Derived(Base):
        pass

    lookup = [(A.A_TYPE_LOOKUP, "attribute")]
    built = tree(arg(0, children=[node(A.A_TYPE_LOOKUP, "attribute", (C.C_EQUALS, 5))]))
    assert passes(Derived, (C.C_EQUALS, 5), via=lookup)
    assert built.check((Derived,), None)
    Base.attribute = 6
    assert not built.check((Derived,), None)
    Base.attribute = 5
    assert built.check((Derived,), None)
    Derived.attribute = 6
    assert not built.check((Derived,), None)
    assert not passes(3, via=[(A.A_TYPE_LOOKUP, "real")])


def test_computed_values():
    assert reads(7, (A.A_BINOP, ("mod", 4)), expect=3) and reads(7, (A.A_RBINOP, ("sub", 10)), expect=3)
    assert reads("abc", (A.A_CALL, len), expect=3)
    assert reads([3, 1], (A.A_CALL, sorted), (A.A_INDEX, 0), expect=1)
    assert not passes("x", via=[(A.A_BINOP, ("sub", 4))]) and not passes(1, via=[(A.A_CALL, len)])


# ---- checks ----


def test_types_are_exact():
    assert passes(1, (C.C_TYPE, int)) and not passes(True, (C.C_TYPE, int)) and not passes(1.0, (C.C_TYPE, int))


class Twin:
    def __init__(self, v):
        self.v = v

    def __eq__(self, other):
        return self.v == other.v

    __hash__ = None

    def __repr__(self):  # in the names of tests, which are to be the same in each process
        return f"Twin({self.v!r})"


NAN = float("nan")
EQUAL = [
    (1, 1), (10**30, 10**30), (True, True), (None, None), (1.5, 1.5), (NAN, float("nan")), (-0.0, -0.0),
    ("ab", "".join(["a", "b"])),
    (b"x", b"x"), (2 + 3j, 2 + 3j), ((1, (2.0, "x")), (1, (2.0, "x"))), ((NAN,), (float("nan"),)),
    (slice(1, 2, None), slice(1, 2, None)),
    pytest.param(frozenset({1, "a"}), frozenset({"a", 1}), id="frozensets"),
    ([1, 2], [1, 2]), ({"a": 1}, {"a": 1}), (range(3), range(3)), (Twin(1), Twin(1)), (..., ...),
]
DIFFERENT = [
    (1, 2), (1, True), (1, 1.0), (0.0, -0.0), (NAN, 1.0), ("a", "b"), ("a", b"a"), ((1,), (1.0,)), ((1, 2), (1,)),
    ((1,), [1]),
    ((0.0,), (-0.0,)), (0j, -0j), (slice(1, 2), slice(1, 2.0)), (frozenset({1}), frozenset({1.0})), ([1], [True]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (range(3), range(4)), (Twin(1), Twin(2)), (None, False), (None, 0),
]


@pytest.mark.parametrize(("constant", "value"), EQUAL, ids=repr)
def test_equal_constants(constant, value):
    assert passes(value, (C.C_EQUALS, constant))


@pytest.mark.parametrize(("constant", "value"), DIFFERENT, ids=repr)
def test_different_constants(constant, value):
    assert not passes(value, (C.C_EQUALS, constant)) and not passes(constant, (C.C_EQUALS, value))


def test_a_constant_whose_comparison_fails_is_a_failed_guard():
    class Bad:
        def __eq__(self, other):
            raise KeyError

    assert not passes(Bad(), (C.C_EQUALS, Bad()))
    deep = ()
    for _ in range(100_000):
        deep = (deep,)
    other = ()
    for _ in range(100_000):
        other = (other,)
    assert not passes(other, (C.C_EQUALS, [deep]))


def test_identity():
    a, b = Plain(), Plain()
    assert passes(a, (C.C_ID, a)) and not passes(b, (C.C_ID, a))
    assert passes(None, (C.C_ID, None)) and not passes(0, (C.C_ID, None))


def test_lengths():
    class Odd:
        def __len__(self):
            return 3

    class Lying(list):
        def __len__(self):
            return 2

    ordered = collections.OrderedDict(a=1, b=2, c=3)
    for value in (
        [1, 2, 3], (1, 2, 3), {1: 1, 2: 2, 3: 3}, {1, 2, 3}, "abc", b"abc", Odd(), Lying("abc"), ordered,
        collections.deque("abc"), range(3),
    ):
        assert passes(value, (C.C_LEN, 3)) and not passes(value, (C.C_LEN, 2)), value
    assert not passes(5, (C.C_LEN, 3))


def test_keys_and_their_order():
    assert passes({"a": 1, 2: 2}, (C.C_KEYS, ("a", 2))) and not passes({2: 2, "a": 1}, (C.C_KEYS, ("a", 2)))
    assert not passes({"a": 1}, (C.C_KEYS, ("a", 2))) and not passes([], (C.C_KEYS, ())) and passes({}, (C.C_KEYS, ()))
    assert not passes({1.0: 0}, (C.C_KEYS, (1,))) and passes({(1, 2): 0}, (C.C_KEYS, ((1, 2),)))
    ordered = collections.OrderedDict(a=1, b=2)
    assert passes(ordered, (C.C_KEYS, ("a", "b")))
    ordered.move_to_end("a")
    assert passes(ordered, (C.C_KEYS, ("b", "a"))) and not passes(ordered, (C.C_KEYS, ("a", "b")))


def test_absence():
    assert (
        passes({}, (C.C_NO_KEY, "a")) and not passes({"a": 1}, (C.C_NO_KEY, "a")) and not passes([], (C.C_NO_KEY, "a"))
    )
    assert passes(Plain(), (C.C_NO_ATTR, "a")) and not passes(Plain(a=1), (C.C_NO_ATTR, "a"))

    class Raising:
        @property
        def a(self):
            raise KeyError

    assert not passes(Raising(), (C.C_NO_ATTR, "a"))
    assert passes(Plain, (C.C_LACKS, "a")) and not passes(Raising, (C.C_LACKS, "a")) and not passes(5, (C.C_LACKS, "a"))
    assert passes(type("Named", (Plain,), {}), (C.C_LACKS, "__name__"))  # which its metaclass has
    table = {}
    built = tree(arg(0, (C.C_NO_KEY, "a"), (C.C_LEN, 0)))
    for _ in range(3):
        assert built.check((table,), None)
        table["a"] = 1
        assert not built.check((table,), None)
        del table["a"]


def test_relations_between_values():
    a, b = Plain(), Plain()
    same = tree(
        arg(0, (C.C_RECORD, 0)), arg(1, (C.C_RECORD, 1)), node(A.A_STATE, None, (C.C_SAME, (0, 1)), guard_id=9),
        n_records=2,
    )
    assert same.check((a, a), None) and same.explain((a, b), None) == (9, None, False)
    distinct = tree(
        *(arg(i, (C.C_RECORD, i)) for i in range(3)),
        node(A.A_STATE, None, (C.C_DISTINCT, (0, 1, 2)), guard_id=9),
        n_records=3,
    )
    for _ in range(3):
        assert distinct.check((a, b, 3), None)
        assert (
            not distinct.check((a, b, a), None)
            and not distinct.check((a, a, 3), None)
            and not distinct.check((3, b, b), None)
        )
    n = 3000
    many = tree(
        *(arg(i, (C.C_RECORD, i)) for i in range(n)),
        node(A.A_STATE, None, (C.C_DISTINCT, tuple(range(n)))),
        n_records=n,
    )
    values = [Plain() for _ in range(n)]
    assert many.check(tuple(values), None)
    values[-1] = values[7]
    assert not many.check(tuple(values), None)


def test_questions_about_several_values():
    asked = []

    def is_less(a, b):
        asked.append((a, b))
        return a < b

    built = tree(
        arg(0, (C.C_RECORD, 0)), arg(1, (C.C_RECORD, 1)),
        node(A.A_STATE, None, (C.C_HOLDS, (is_less, (1, 0))), guard_id=9), n_records=2,
    )
    assert built.check((2, 1), None) and built.explain((1, 2), None) == (9, None, False)
    assert not built.check((2, "text"), None)  # a guard that raises is one that fails
    assert asked == [(1, 2), (2, 1), ("text", 2)]
    assert any(is_less in part for part in gc.get_referents(built) if type(part) is tuple)
    unread = tree(node(A.A_STATE, None, (C.C_HOLDS, (is_less, (0, 0)))), n_records=1)
    assert not unread.check((1,), None)


def test_truth_and_python_checks():
    assert passes([1], (C.C_TRUTH, True)) and passes([], (C.C_TRUTH, False)) and not passes([], (C.C_TRUTH, True))
    assert passes(4, (C.C_PY, lambda v: v % 2 == 0)) and not passes(3, (C.C_PY, lambda v: v % 2 == 0))
    assert not passes(3, (C.C_PY, lambda v: 1 / 0))

    class Untrue:
        def __bool__(self):
            raise ValueError

    assert not passes(Untrue(), (C.C_TRUTH, False))
    assert sys.exc_info() == (None, None, None)


# ---- the tree ----


def test_order_and_blame():
    trace = []

    def look(name, answer=True):
        return (C.C_PY, lambda v: trace.append(name) or answer)

    built = tree(
        arg(
            0,
            look("a"),
            look("b"),
            children=[
                node(A.A_INDEX, 0, look("c"), children=[node(A.A_INDEX, 0, look("d"))]),
                node(A.A_INDEX, 1, look("e")),
            ],
        ),
        arg(1, look("f", answer=False), guard_id=42),
        arg(2, look("g")),
    )
    assert not built.check((((0,), 0), 1, 2), None)
    assert trace == list("abcdef")
    assert built.explain((((0,), 0), 1, 2), None) == (42, 1, False) and built.size == 7


def test_settled_leaves_of_one_dict():
    """Leaves that the dict's version settles are skipped together: none of them may be forgotten."""
    table = {f"k{i}": i for i in range(6)}
    leaves = [node(A.A_KEY, f"k{i}", (C.C_EQUALS, i), guard_id=i) for i in range(6)]
    volatile = node(A.A_KEY, "v", (C.C_LEN, 1), guard_id=9)
    table["v"] = [0]
    built = tree(arg(0, children=[*leaves[:3], volatile, *leaves[3:]]))
    assert built.check((table,), None) and built.check((table,), None)
    table["v"].append(1)  # no write to the dict
    assert built.explain((table,), None)[0] == 9
    table["v"].pop()
    for i in range(6):
        table[f"k{i}"] = "other"
        assert built.explain((table,), None)[0] == i
        table[f"k{i}"] = i
        assert built.check((table,), None)
    other = dict(table)
    assert built.check((other,), None)
    other["k5"] = 0
    assert built.explain((other,), None)[0] == 5 and built.check((table,), None)


def test_values_that_die_during_the_evaluation():
    """A guard that runs Python code may free what lies between the root and the value at hand."""
    for _ in range(50):
        box = [[Plain(x=[1, 2, 3])]]
        clear = (C.C_PY, lambda v, box=box: (box.clear(), gc.collect(0), [Plain() for _ in range(100)]) and True)
        inner = [node(A.A_ATTR, "x", clear, (C.C_LEN, 3), children=[node(A.A_INDEX, 2, (C.C_EQUALS, 3))])]
        built = tree(arg(0, children=[node(A.A_INDEX, 0, children=[node(A.A_INDEX, 0, children=inner)])]))
        assert built.check((box,), None)


def test_references_balance():
    value = Plain(x=[1], d={"k": Plain()})
    inner = value.d["k"]
    built = tree(
        arg(
            0,
            (C.C_TYPE, Plain),
            children=[
                node(A.A_ATTR, "x", (C.C_LEN, 1), (C.C_NO_ATTR, "push")),
                node(
                    A.A_ATTR,
                    "d",
                    children=[node(A.A_KEY, "k", (C.C_ID, inner)), node(A.A_GETITEM, "k", (C.C_EQUALS, inner))],
                ),
            ],
        ),
        arg(1, (C.C_EQUALS, 5)),
    )
    before = [sys.getrefcount(o) for o in (value, value.x, value.d, inner)]
    for last in (5, 6, 5, None):
        for _ in range(100):
            assert built.check((value, last), None) is (last == 5)
            built.explain((value, last), None)
    assert [sys.getrefcount(o) for o in (value, value.x, value.d, inner)] == before


def test_compared_objects_are_held_weakly():
    obj, anchor = Plain(x=1), Plain(x=1)
    built = tree(arg(0, (C.C_ID, obj)), node(A.A_CONST, anchor, children=[node(A.A_ATTR, "x", (C.C_EQUALS, 1))]))
    assert built.check((obj,), None) and not built.expired
    before = sys.getrefcount(obj)
    del anchor
    gc.collect()
    assert built.expired and not built.check((obj,), None)
    assert sys.getrefcount(obj) == before
    ident = tree(arg(0, (C.C_ID, obj)))
    del obj
    assert (
        ident.expired
        and not any(ident.check((Plain(x=1),), None) for _ in range(100))
        and not ident.check((None,), None)
    )


def test_what_cannot_be_held_weakly_is_held():
    value = (1, 2)
    built = tree(arg(0, (C.C_ID, value)), node(A.A_CONST, value, children=[node(A.A_INDEX, 0, (C.C_EQUALS, 1))]))
    assert built.check((value,), None) and any(o is value for o in gc.get_referents(built))


@pytest.mark.parametrize(
    ("roots", "n_records"),
    [
        ([3], 0), ([(A.A_ARG, 0, [], [])], 0), ([(A.A_ARG, 0, (), [], 0)], 0), ([(999, 0, [], [], 0)], 0),
        ([(-1, 0, [], [], 0)], 0),
        ([arg(0, (999, 0))], 0), ([arg("x")], 0), ([node(A.A_ATTR, 3)], 0), ([node(A.A_KEY, [])], 0),
        ([node(A.A_BINOP, "add")], 0),
        ([node(A.A_BINOP, ("no_such_operator", 1))], 0), ([node(A.A_CALL, 3)], 0), ([arg(0, (C.C_TYPE, 3))], 0),
        ([arg(0, (C.C_LEN, "x"))], 0), ([arg(0, (C.C_KEYS, []))], 0), ([arg(0, (C.C_NO_KEY, []))], 0),
        ([arg(0, (C.C_NO_ATTR, 3))], 0),
        ([arg(0, (C.C_LACKS, 3))], 0),
        ([arg(0, (C.C_RECORD, 0))], 0), ([arg(0, (C.C_RECORD, -1))], 1), ([arg(0, (C.C_SAME, (0, 1)))], 1),
        ([arg(0, (C.C_SAME, 3))], 1),
        ([arg(0, (C.C_HOLDS, max))], 1), ([arg(0, (C.C_HOLDS, (max, [0])))], 1), ([arg(0, (C.C_HOLDS, (3, (0,))))], 1),
        ([arg(0, (C.C_HOLDS, (max, (1,))))], 1), ([arg(0, (C.C_HOLDS, (max, ("x",))))], 1),
        ([arg(0, (C.C_DISTINCT, (0, 1)))], 1), ([arg(0, (C.C_PY, 3))], 0), ([arg(0, (C.C_STATE, 3))], 0), ([], -1),
        (3, 0),
    ],
    ids=repr,
)
def test_malformed_trees_are_refused(roots, n_records):
    with pytest.raises((TypeError, ValueError, AttributeError)):
        native.GuardTree(roots, n_records)


def test_trees_may_be_deep_and_wide():
    value, inner = [], node(A.A_INDEX, 0, (C.C_LEN, 0))
    for _ in range(500):
        value, inner = [value], node(A.A_INDEX, 0, (C.C_LEN, 1), children=[inner])
    assert tree(arg(0, children=[inner])).check(([value],), None)
    wide = tree(*(arg(i, (C.C_EQUALS, i)) for i in range(5000)))
    assert wide.size == 5000 and wide.check(tuple(range(5000)), None)
    loop = []
    loop.append((A.A_ARG, 0, [], loop, 0))
    with pytest.raises(ValueError, match="deep"):
        native.GuardTree(loop)
