"""Arithmetic, comparison, logical and in-place operators on tensors, Python values and both."""
import operator
from array import array
from collections import Counter, UserList, UserString, deque

import pytest
import torch

from support import check

X, Y = torch.tensor([1.0, -2.0, 3.5]), torch.tensor([2.0, 5.0, -1.5])
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARE = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("op", BINARY + COMPARE, ids=lambda op: op.__name__)
def test_tensor_with_tensor(op):
    check(lambda x, y: op(x, y), X, Y, ops=1)


@pytest.mark.parametrize("op", BINARY + COMPARE, ids=lambda op: op.__name__)
def test_number_with_tensor_both_ways(op):
    check(lambda x: (op(x, 2.5), op(3, x)), X)


@pytest.mark.parametrize(
    "op", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift], ids=lambda op: op.__name__
)
def test_bitwise(op):
    check(lambda x, y: op(x, y), torch.tensor([12, 5, 7]), torch.tensor([1, 2, 3]), ops=1)


def test_unary():
    check(lambda x: (-x, +x, abs(x), ~(x > 0)), X)


def test_matmul_operator_and_in_place_form():
    def fn(a, b):
        c = a @ b
        c @= b
        return c

    check(fn, torch.randn(3, 3), torch.randn(3, 3))


def test_in_place_operators_keep_identity():
    def fn(x):
        y = x.clone()
        z = y
        y += 1
        y -= 0.5
        y *= 2
        y /= 3
        y **= 2
        y %= 1
        return y, z, y is z

    check(fn, X)


def test_in_place_on_an_argument_is_visible_to_the_caller():
    def fn(x, y):
        x += y
        x *= 2
        return x

    check(fn, X, Y)


def test_reflected_operator_of_a_user_class():
    class Scale:
        def __rmul__(self, other):
            return other * 3

        def __radd__(self, other):
            return ("radd", other)

    def fn(x, s):
        return x * 1 + 2, 2 * s, [1] + [2], 5 + s

    check(fn, X, Scale())


class Joins:
    def __init__(self):
        self.kept = ["e", "g"]

    def __radd__(self, other):
        return "joined", other

    def __rmul__(self, other):
        return "repeated", other

    def __index__(self):
        return 2

    def __iter__(self):
        return iter(self.kept)


class OwnInPlace(list):
    def __iadd__(self, other):
        return NotImplemented if other == [5] else ("in place", list(self), other)


class OwnReflected(list):
    def __radd__(self, other):
        return "own", other


@pytest.mark.parametrize(
    "left",
    [[1], (1,), "a", b"a", deque([1]), OwnInPlace([1]), OwnReflected([1]), 3],
    ids=lambda left: type(left).__name__,
)
@pytest.mark.parametrize(
    "right", [Joins(), UserList([2]), UserString("b"), [5]], ids=lambda right: type(right).__name__
)
def test_operands_are_numbers_before_they_are_sequences(left, right):
    """CPython asks `__radd__` of the right one before a sequence on the left joins, or grows in place."""

    def outcome(operation, a, b):
        try:
            return operation(a, b)
        except TypeError as e:
            return str(e)

    def fn(x, left, right):
        before = left
        told = [
            outcome(operation, left, right)
            for operation in (operator.add, operator.mul, operator.iadd, operator.imul)
        ]
        told += [outcome(lambda a, b: b * a, left, right)]
        try:
            left += right
        except TypeError as e:
            told.append(str(e))
        return x + 1, [(type(t), t if type(t) is not deque else list(t)) for t in told], type(left), left is before

    check(fn, X, left, right, breaks=None, graphs=None)


class Plain:
    def __repr__(self):
        return "Plain()"


class OwnBytes(bytes):
    pass


class OwnInt(int):
    pass


KINDS = {
    "Plain": Plain, "bytes": lambda: b"%%", "bytearray": lambda: bytearray(b"a"), "OwnBytes": lambda: OwnBytes(b"a"),
    "str": lambda: "a%s", "list": lambda: [1], "tuple": lambda: (1,), "dict": lambda: {1: 2}, "set": lambda: {1},
    "deque": lambda: deque([1]), "UserList": lambda: UserList([1]), "int": lambda: 2, "OwnInt": lambda: OwnInt(2),
    "float": lambda: 2.5, "None": lambda: None, "Counter": lambda: Counter("a"), "array": lambda: array("b", [1]),
    "function": lambda: len,
}


@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("name", ["add", "mul", "mod", "iadd", "imul", "sub", "ior"])
def test_operands_of_all_kinds_beside_each_other(name, left):
    """What fits, what gives NotImplemented and what raises: bytes, say, have `%` as numbers do, and join as sequences
    do."""
    operation = getattr(operator, name)

    def fn(x, left, right):
        try:
            result = operation(left, right)
        except Exception as e:
            return x + 1, str(e)
        return x + 1, type(result), list(result) if type(result) is deque else result

    for right in KINDS.values():
        check(fn, X, KINDS[left](), right(), breaks=None, graphs=None)


def test_user_class_defers_with_notimplemented():
    class Left:
        def __add__(self, other):
            return NotImplemented

    class Right:
        def __init__(self, t):
            self.t = t

        def __radd__(self, other):
            return self.t + 1

    check(lambda a, b: a + b, Left(), Right(X))


def test_chained_comparison_evaluates_the_middle_once():
    def fn(x, n):
        seen = []

        def middle():
            seen.append(n)
            return n

        return x + 1 if 0 < middle() < 10 else x - 1, seen

    check(fn, X, 5, changed=[(X, 50)])


def test_boolean_operators_return_an_operand():
    check(lambda x, a, b: (x + 1, a or b, a and b, not a), X, [], (1, 2))


def test_is_and_is_not():
    check(lambda x, y: (x * 2, x is y, x is not y, x is x, None is None), X, Y)


def test_integer_arithmetic_folds_exactly():
    check(lambda x, n: (x + 0, n // 3, -n // 3, n % 3, -n % 3, n**40, n << 70, 1 / n, divmod(-n, 3)), X, 7)


def test_float_special_values():
    check(lambda x: (x + float("nan"), float("inf") - 1, -0.0, 0.0 * -1), X)


def test_division_by_zero_in_python_raises_the_same_error():
    check(lambda x, n: x + 1 / n, X, 0, raises=ZeroDivisionError)


def test_type_promotion_of_mixed_dtypes():
    check(lambda i, h, f: (i + h, i * f, h / i, i / 2, i // 2), torch.arange(3), torch.ones(3, dtype=torch.half), X)


def test_contains_on_containers():
    check(lambda x, k: (x + 1, k in (1, 2), k not in [3], "b" in "abc", k in {1: 2}, k in {5}), X, 1)


def test_ternary_chain():
    def fn(x, kind):
        return x.sin() if kind == "sin" else x.cos() if kind == "cos" else x

    check(fn, X, "sin", changed=[(X, "cos"), (X, "none")])


ASKED = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "in": lambda a, b: a in b,
    "**": lambda a, b: {**a}, "int": lambda a, b: int(a), "float": lambda a, b: float(a), "next": lambda a, b: next(a),
}


@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("name", ASKED)
def test_questions_about_operands_of_all_kinds(name, left):
    """In a try block, where an error that Python does not raise, or one that reads otherwise, is the program's."""
    ask = ASKED[name]

    def fn(x, left, right):
        try:
            return x + 1, ask(left, right)
        except Exception as e:
            return x + 1, type(e), str(e)

    for right in KINDS.values() if name in ("==", "!=", "<", "in") else [Plain]:
        check(fn, X, KINDS[left](), right(), breaks=None, graphs=None)


def test_numbers_of_text_of_a_class():
    class Text(str):
        pass

    def fn(x, text, data):
        try:
            return x + 1, int(text), float(text), int(data), {**[("a", 1)]}
        except TypeError as e:
            return x + 1, int(text), float(text), int(data), str(e)

    check(fn, X, Text("12"), bytearray(b"34"), breaks=None, graphs=None)


@pytest.mark.parametrize("base", [-2.0, -3, 2, 0.5, -0.0])
def test_powers_of_numbers(base):
    check(lambda x, n: (n**x, (-2.0) ** x, x**n), X, base)


class Times(list):
    def __mul__(self, count):
        return "multiplied" if count < 9 else NotImplemented


class TimesReflected(list):
    def __rmul__(self, count):
        return "reflected"


class Plus(list):
    def __add__(self, other):
        return "added"

    def __radd__(self, other):
        return "added on the right"


class Queue(deque):
    def __mul__(self, count):
        return "multiplied"


def test_in_place_operators_of_lists_with_operators_of_their_own():
    """In place, CPython multiplies as with numbers before it repeats, but joins before it adds."""

    def fn(x):
        a, b, c, d, e = Times([1]), Times([1]), TimesReflected([1]), Plus([1]), [1]
        a *= 2
        b *= 9
        c *= 2
        d += [2]
        e += Plus([3])
        return x + 1, a, b, type(b), c, type(c), d, type(d), e

    check(fn, X)


def test_joining_what_can_not_be_looked_into():
    def fn(x, queue):
        try:
            joined = deque([1]) + queue
        except TypeError:
            joined = None
        queue *= 2
        return x + 1, joined, queue

    check(fn, X, Queue([2]), graphs=1, breaks=None)
