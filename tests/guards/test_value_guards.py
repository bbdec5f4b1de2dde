"""Guards on Python values: type, identity, equality, length, keys, absence of attributes, container contents."""
import math

import torch

import framejit

from support import Pair, check, of_kind, recorded

X = torch.tensor([1.0, 2.0])


def after(fn, first, *others, make=None):
    """Calls with `first`, then with each (argument, must it capture anew) of `others`."""
    p = Pair(make or (lambda: fn))
    p.call(X, first)
    p.call(X, first, captures=False)
    for value, captures in others:
        p.call(X, value, captures=captures)
    p.call(X, first, captures=False)
    return p


def test_integer_value():
    after(lambda x, n: x + n, 1, (2, True), (1, False))


def test_equal_numbers_of_different_type():
    after(lambda x, n: (x * n, n), 1, (1.0, True), (True, None))


def test_float_bits():
    after(lambda x, f: (x * 1, math.copysign(1.0, f)), 0.0, (-0.0, True))
    after(lambda x, f: (x * f, f), float("nan"), (float("nan"), False), (1.5, True))


def test_string_and_none():
    after(lambda x, s: x + (1 if s == "a" else 2), "a", ("b", True), (None, True), ("".join(["a"]), False))


def test_list_length_and_order():
    after(lambda x, s: sum(s, x), [1, 2], ([1, 2, 3], True), ([2, 1], None), ([1, 2], False))


def test_list_and_tuple_differ():
    after(lambda x, s: (x + s[0], type(s).__name__), [1], ((1,), True))


def test_dict_keys_values_and_order():
    fn = lambda x, d: [x * v for v in d.values()]  # noqa: E731
    after(
        fn, {"a": 1, "b": 2}, ({"b": 2, "a": 1}, None), ({"a": 1}, True), ({"a": 1, "b": 3}, True),
        ({"a": 1, "b": 2}, False),
    )


def test_membership_test_guards_presence_and_absence():
    after(lambda x, d: x + 1 if "k" in d else x - 1, {"k": 0}, ({}, True), ({"k": 0, "other": 1}, None))
    after(lambda x, d: x + d.get("k", 5), {}, ({"k": 1}, True), ({}, False))


def test_set_contents():
    after(lambda x, s: x + 1 if "a" in s else x - 1, {"a"}, ({"b"}, True), ({"a"}, False))


def test_nested_values():
    after(
        lambda x, c: x * c["model"]["layers"][1], {"model": {"layers": [1, 2]}}, ({"model": {"layers": [1, 3]}}, True)
    )


def test_type_of_an_object():
    class A:
        k = 1

        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            return x * 2

    after(lambda x, o: o.go(x), A(), (B(), True), (A(), False))


def test_attribute_value_presence_and_absence():
    class Obj:
        def __init__(self, **kw):
            self.__dict__.update(kw)

    after(lambda x, o: x + o.n, Obj(n=1), (Obj(n=2), True), (Obj(n=1, extra=5), False))
    after(lambda x, o: x + getattr(o, "n", 10), Obj(), (Obj(n=1), True), (Obj(), False))
    after(lambda x, o: x + 1 if hasattr(o, "flag") else x, Obj(flag=0), (Obj(), True), (Obj(flag=9), None))


def test_instance_attribute_that_shadows_a_method():
    class Obj:
        def act(self, x):
            return x + 1

    shadowed = Obj()
    shadowed.act = torch.sin
    after(lambda x, o: o.act(x), Obj(), (shadowed, True), (Obj(), False))


def test_method_replaced_on_the_class():
    class Obj:
        def act(self, x):
            return x + 1

    o = Obj()
    p = Pair(lambda: lambda x, o: o.act(x))
    p.call(X, o)
    Obj.act = lambda self, x: x * 100
    p.call(X, o, captures=True)


def test_attribute_added_to_the_class():
    class Obj:
        def __init__(self):
            self.v = 1

    p = Pair(lambda: lambda x, o: x + getattr(o, "w", 5))
    p.call(X, Obj())
    Obj.w = 7
    p.call(X, Obj(), captures=True)


def test_function_identity():
    after(lambda x, f: f(x), torch.sin, (torch.cos, True), (torch.sin, False))


def test_same_code_with_other_closure():
    def scaled(k):
        return lambda t: t * k

    two, three = scaled(2), scaled(3)
    p = Pair(lambda: lambda x, f: f(x))
    p.call(X, two)
    p.call(X, three)
    p.call(X, two)


def test_class_as_argument():
    after(lambda x, c: c([1, 2])[0] + x, list, (tuple, True))


def test_dtype_and_device_arguments():
    after(lambda x, d: x.to(d) * 2, torch.float64, (torch.int32, True), (torch.float64, False))


def test_bool_flag_has_two_entries():
    p = after(lambda x, f: x + 1 if f else x - 1, True, (False, True))
    assert p.graphs == 2


def test_large_integers_and_slices():
    after(lambda x, n: (x * 1, n + 1), 1 << 70, ((1 << 70) + 1, True))
    after(lambda x, s: x[s] * 2, slice(0, 1), (slice(1, 2), True), (slice(0, 1), False))


def test_number_of_varargs_and_names_of_kwargs():
    p = Pair(lambda: lambda *xs, **kw: sum(xs) + sum(kw.values()))
    p.call(X, X)
    p.call(X, X, X, captures=True)
    p.call(X, X, a=1, captures=True)
    p.call(X, X, b=1, captures=True)
    p.call(X, X, captures=False)


def test_enum_member():
    import enum

    class Kind(enum.Enum):
        A = 1
        B = 2

    after(lambda x, k: x + 1 if k is Kind.A else x, Kind.A, (Kind.B, True), (Kind.A, False))


def test_value_read_only_in_one_branch_is_guarded_only_there():
    class Obj:
        def __init__(self, flag, n):
            self.flag, self.n = flag, n

    after(
        lambda x, o: x + o.n if o.flag else x, Obj(False, 1), (Obj(False, 2), False), (Obj(True, 1), True),
        (Obj(True, 2), True),
    )


def test_custom_equality_is_not_trusted():
    class Odd:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return True

        __hash__ = None

    after(lambda x, o: x + o.n, Odd(1), (Odd(2), True))


def test_subclass_of_int_and_str():
    class Size(int):
        pass

    after(lambda x, n: (x + n, type(n).__name__), 3, (Size(3), True))


def test_object_with_the_same_id_but_other_contents():
    def fn(x, items):
        return x + ord(items[0])

    p = Pair(lambda: fn)
    for value in "abca":
        p.call(X, [value])
    assert p.graphs == 3


def test_namedtuple_fields():
    import collections

    P = collections.namedtuple("P", "a b")
    check(lambda x, p: x * p.a + p.b, X, P(1, 2), changed=[(X, P(1, 3))])


def test_ints_of_more_digits_than_python_shows():
    """In guards, in what is said of a miss, and in keys."""

    def fn(x, n):
        table = {n: 3, 1 << 20000: 4}
        print(end="")
        half = n >> 1
        return x * (n % 7) + (half % 5), n + 1 == (1 << 20000) + 1, table[1 << 20000]

    fast = framejit.optimize(fn, backend="eager")
    with recorded() as log:
        for n in (1 << 20000, (1 << 20000) + 3, 7, 1 << 20000):
            got, expected = fast(X, n), fn(X, n)
            assert torch.equal(got[0], expected[0]) and got[1:] == expected[1:]
    assert not of_kind(log, "warning")
