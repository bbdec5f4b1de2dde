"""Builtin functions on Python values and tensors."""
# ruff: noqa: B905
import builtins
import math
import operator
import sys
import warnings
from fractions import Fraction

import pytest
import torch

import framejit

from support import ANY, Pair, check, check_state, world

X = torch.tensor([3.0, 1.0, 2.0])


def test_sorted_min_max_sum():
    check(
        lambda x, s: (x + min(s), sorted(s), max(s, key=lambda v: -v), sum(s, 10), min(3, 1), max([], default=0)),
        X,
        [3, 1, 2],
    )


def test_what_min_max_sum_and_prod_give_is_what_they_were_given():
    """And not a list like it: what is written into one is seen in the other."""

    def fn(x, rows, pair):
        greatest, least, start = max(rows), min(*rows), []
        greatest.append(x)
        least[:] = "written", 0.5
        found = (
            greatest is rows[1], least is rows[0], max(rows[:1]) is rows[0], min(iter(rows[:1])) is rows[0],
            max([], default=rows) is rows, sum([], start) is start, math.prod([], start=start) is start,
            min([pair]) is pair, max(pair, (1, 9)) is pair,
        )
        return x + 1, found, sum([[1], [2]], start)

    check(fn, X, [[1.0, 2.0], [3.0, 4.0]], (2, 3))


class Whole:
    """Something beside numbers that a sum may meet."""

    def __init__(self, value):
        self.value = value

    def __radd__(self, other):
        return other + self.value


@pytest.mark.parametrize(
    "rest", [[], [Whole(0.5)], [Whole(1)], [Whole(2j)], [Whole(0.5), *[0.1] * 10], [Fraction(1, 10), *[0.1] * 10]],
    ids=["nothing", "float", "int", "complex", "then floats", "fraction"],
)
@pytest.mark.parametrize(
    "numbers",
    [[0.1] * 10, [1, 0.1, 0.2, 0.3], [1.0, 1e100, 1.0, -1e100], [0.1j] * 10, [True, 2, 3], [1.0, 10**400, 1.0], []],
    ids=["floats", "mixed", "cancelling", "complex", "ints", "huge", "none"],
)
def test_a_sum_rounds_as_the_real_one(numbers, rest):
    """From CPython 3.12 on `sum` keeps what rounding loses, also where the numbers are followed by something else."""

    def fn(x, make):
        try:
            return x + 1, repr(sum([*numbers, *make()])), repr(sum((n for n in (*numbers, *make())), 0.25))
        except OverflowError as e:
            return x + 1, str(e)

    check(fn, X, lambda: rest, breaks=None, graphs=None)


def test_a_sum_of_floats_that_change():
    pair = Pair(lambda: lambda x, a, b, c: (x + 1, sum([a, b, c]), sum([a, b]), sum((a, b), 0.5)))
    for i in range(4):
        pair.call(X, 1.0 + i, 1e100, -1e100)


def test_not_implemented_has_no_truth():
    """It warns, and from CPython 3.14 on raises."""

    def fn(x, given):
        told = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for ask in (lambda: bool(given), lambda: not given, lambda: given and 5, lambda: any([0, given])):
                try:
                    told.append(ask())
                except TypeError as e:
                    told.append(str(e))
        return x + 1, told, [str(w.message) for w in caught]

    check(fn, X, NotImplemented, breaks=None, graphs=None, calls=1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ~True, lambda: complex(1j, 2), lambda: complex(real=2 + 0j), lambda: complex(real=1j, imag=2),
        lambda: b"\\d".decode("unicode_escape"),
    ],
    ids=["~", "complex", "by_name", "both_by_name", "decode"],
)
def test_what_is_known_and_warns_does_so_at_each_call(call):
    def fn(x):
        return x + 1, call()

    compiled = framejit.optimize(fn, backend="eager")
    told = []
    for run in (fn, compiled, compiled):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = run(X)[1]
        told.append((found, [(w.filename, w.lineno, str(w.message)) for w in caught]))
    assert told[0] == told[1] == told[2]


def test_zip_enumerate_map_filter():
    def fn(x, s):
        return (
            x + 1, list(zip(s, "abc")), list(enumerate(s, 1)), list(map(lambda a, b: a + b, s, s)),
            list(filter(None, [0, *s])), dict(enumerate(s)),
        )

    check(fn, X, [3, 1, 2])


def test_zip_strict_and_of_tensors():
    check(lambda x, y: [a * b for a, b in zip(x, y, strict=True)], X, X + 1)


def test_zip_strict_error():
    check(lambda x: (x + 1, list(zip([1], [1, 2], strict=True))), X, raises=ValueError, calls=1)


def test_any_all():
    check(lambda x, s: (x + 1, any(v > 2 for v in s), all(s), any([]), all([])), X, [3, 0])


def test_abs_round_divmod_pow():
    check(lambda x, n: (abs(x), round(n), round(2.567, 1), divmod(7, 2), pow(2, 10, 7), abs(-n)), X, 2.5)


def test_isinstance_and_type():
    def fn(x, v):
        if isinstance(v, (list, tuple)):
            return x + len(v)
        if isinstance(v, torch.Tensor):
            return x + v
        return x + (1 if type(v) is int else 2), issubclass(bool, int), callable(v)

    check(fn, X, [1], changed=[(X, X), (X, 5), (X, True), (X, 1.5)])


def test_isinstance_with_union_and_abc():
    import collections.abc
    import numbers

    check(
        lambda x, v: (
            x + 1, isinstance(v, int | str), isinstance(v, collections.abc.Sequence), isinstance(v, numbers.Number),
        ),
        X,
        "s",
    )


def test_hasattr_getattr_setattr():
    class Obj:
        a = 1

    def fn(x, o):
        o.b = x + 1
        found = getattr(o, "b"), getattr(x, "sum")()  # noqa: B009
        return hasattr(o, "a"), hasattr(o, "c"), getattr(o, "c", 9), *found, hasattr(x, "shape")

    check(fn, X, Obj())


def test_range_objects():
    check(
        lambda x, n: (
            x + len(range(n)), 3 in range(n), list(range(n, 0, -2)), range(n)[1:3], range(5) == range(0, 5),
            range(n).stop,
        ),
        X,
        5,
    )


def test_iter_next_reversed_slice():
    check(lambda x: (x + next(iter([5])), list(reversed("abc")), [1, 2, 3][slice(1, None)], slice(1, 2).indices(5)), X)


def test_id_is_stable_inside():
    check(lambda x: (x + 1, id(x) == id(x)), X, graphs=range(1, 3), breaks=range(0, 3), calls=1)


def test_len_of_everything():
    check(lambda x, d: len(x) + len(d) + len("abc") + len(()) + x, X, {"a": 1})


def test_vars_dir_and_dict_access():
    class Obj:
        def __init__(self):
            self.a, self.b = 1, 2

    check(lambda x, o: (x + o.__dict__["a"], list(vars(o)), sorted(vars(o).items())), X, Obj())


def test_builtin_passed_as_a_value():
    def apply(f, *args):
        return f(*args)

    check(lambda x: (x + apply(len, [1]), apply(max, 1, 2), apply(isinstance, 1, int), apply(sum, [1, 2])), X)


def test_bool_int_float_of_python_values():
    check(lambda x, v: (x + int(v), bool(v), float(v), str(v), int("7", 8), complex(1)), X, 2.9)


def test_hash_and_comparison_of_types():
    check(lambda x: (x + 1, int == int, hash(1) == hash(1.0), type(x) == torch.Tensor, x.dtype == torch.float32), X)  # noqa: E721


def test_super_and_type_name():
    check(lambda x, o: (x + 1, type(o).__name__, o.__class__.__qualname__, type(o).__mro__[-1] is object), X, [])


class _True:
    def __index__(self):
        return True


def test_operator_index_warns_of_what_is_no_exact_int():
    def fn(x, odd):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = operator.index(odd)
        return x + 1, found, [str(w.message) for w in caught]

    # from 3.14 on warnings ask what modules there are, so that an import elsewhere is reason to capture again
    pair = Pair(lambda: fn)
    for _ in range(3):
        pair.call(X, _True())


def test_a_builtin_replaced_meanwhile():
    def replace():
        builtins.len = lambda x: 4

    def fn(x, modify):
        before = len(range(7))
        modify()
        after = len(range(7))
        return x + 1, before, after

    plain = builtins.len
    try:
        compiled = framejit.optimize(fn, backend="eager")(X, replace)
    finally:
        builtins.len = plain
    assert compiled[1:] == (7, 4)


class Truncated:
    def __trunc__(self):
        return 42


def test_int_of_what_can_only_be_truncated_warns():
    def fn(x, value):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            number = int(value)
        return x + number, [str(w.message) for w in told]

    # from 3.14 on int() asks for no __trunc__
    raised = TypeError if sys.version_info >= (3, 14) else None
    check(fn, X, Truncated(), graphs=None, breaks=None, calls=1 if raised else 2, raises=raised)


class CountedLength:
    def __init__(self):
        self.asked = 0

    def __len__(self):
        self.asked += 1
        return 3

    def __getitem__(self, index):
        return index


def test_the_length_is_asked_for_once_where_a_reversed_iterator_leaves_captured_code():
    def fn(x, items):
        backwards = reversed(items)
        x = x + 1
        framejit.graph_break()
        return x * 2, next(backwards), items.asked

    check(fn, X, CountedLength(), graphs=ANY, breaks=ANY)


def test_what_raises_when_an_attribute_is_read():
    def fn(x, view):
        try:
            shape = view.shape
        except ValueError as e:
            shape = str(e)
        return x + 1, shape

    def make():
        view = memoryview(b"abc")
        view.release()
        return lambda x: fn(x, view)

    check_state(make, (X,), breaks=None)


def test_the_rest_of_a_frame_keeps_the_builtins_of_its_function():
    def make():
        names = world(
            """
            def fn(x):
                y = x + len([1, 2])
                globals()["__builtins__"] = {"len": lambda items: 100, "globals": globals, "print": print}
                print("break")
                return y * len([1, 2, 3])

            def call(x):
                try:
                    return fn(x)
                finally:
                    globals()["__builtins__"] = original
            """,
            original=builtins.__dict__,
        )
        return names["call"]

    check_state(make, (X,), (X,), breaks=None)


class Slotted:
    __slots__ = ()


class Raising:
    def __init__(self, kind):
        self.kind = kind

    @property
    def __dict__(self):
        raise self.kind("none to be had")


@pytest.mark.parametrize(
    "make",
    [lambda: 5, lambda: (1,), object, Slotted, lambda: Raising(AttributeError), lambda: Raising(KeyError)],
)
def test_vars_of_what_has_no_attributes(make):
    def fn(x):
        y = x + 1
        try:
            return vars(make())
        except Exception as e:
            return y, type(e), str(e), e.__context__

    check(fn, X, breaks=None)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("text", ["caf\xe9", "plain", "\u20ac\U0001f600"])
def test_ascii_escapes_what_the_repr_of_the_program_gives(own, text):
    class Named:
        def __init__(self, name):
            self.name = name

        if own:
            def __repr__(self):
                return self.name

    check(lambda x, name: (x + 1, own and (ascii(Named(name)), f"{Named(name)!a:>9}"), ascii([name])), X, text)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.Tensor.__radd__(2, x),
        lambda x: torch.Tensor.add(2, x),
        lambda x: int.__add__("a", 2),
        lambda x: list.append((), 2),
        lambda x: str.upper(2),
        lambda x: dict.get([], 2),
        lambda x: list.__len__(x),
        lambda x: object.__repr__(),
    ],
)
def test_methods_of_a_class_given_an_object_of_another(call):
    def fn(x):
        y = x + 1
        try:
            return call(x)
        except TypeError as e:
            return y, str(e)

    check(fn, X, breaks=None, graphs=None)
