"""Binary, unary and comparison operators on values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.arrays.array_functions import operate
from framejit.values.arrays.ndarray import NumberValue, NumpyValue
from framejit.values.base import Value, realize
from framejit.values.complaints import refused
from framejit.values.constant import ConstantValue, is_not_implemented
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import fold
from framejit.values.inspection import has_operators
from framejit.values.journal import of_followed
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.user_object import ObjectValue
from framejit.values.runtime_numbers.number_arguments import inverse
from framejit.values.runtime_numbers.number_texts import text_by_operator
from framejit.values.runtime_numbers.picked_numbers import picked
from framejit.values.runtime_numbers.read_arithmetic import compare_numbers, compute
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.runtime_numbers.size_number import beside_number, computed_from_sizes
from framejit.values.sym_int import SymIntValue, on_sizes
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.overrides import handed_over
from framejit.values.tensors.tensor import TensorValue
from framejit.values.tensors.tensor_classes import is_overridden

if TYPE_CHECKING:
    from framejit.values.context import Frame

# symbol -> (function, in-place function, name of the special method without its underscores)
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "+": (operator.add, operator.iadd, "add"),
    "-": (operator.sub, operator.isub, "sub"),
    "*": (operator.mul, operator.imul, "mul"),
    "/": (operator.truediv, operator.itruediv, "truediv"),
    "//": (operator.floordiv, operator.ifloordiv, "floordiv"),
    "%": (operator.mod, operator.imod, "mod"),
    "**": (operator.pow, operator.ipow, "pow"),
    "@": (operator.matmul, operator.imatmul, "matmul"),
    "<<": (operator.lshift, operator.ilshift, "lshift"),
    ">>": (operator.rshift, operator.irshift, "rshift"),
    "&": (operator.and_, operator.iand, "and"),
    "|": (operator.or_, operator.ior, "or"),
    "^": (operator.xor, operator.ixor, "xor"),
}
COMPARE: dict[str, Callable[..., Any]] = {
    "lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "ge": operator.ge,
}
_REFLECTED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_SYMBOL = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
_ABSENT = object()
UNARY: dict[str, tuple[Callable[..., Any], str]] = {
    "-": (operator.neg, "__neg__"), "+": (operator.pos, "__pos__"), "~": (operator.invert, "__invert__"),
}


def binary(frame: Frame, symbol: str, a: Value, b: Value, in_place: bool = False) -> Value:
    """The result of `a symbol b`, or of `a symbol= b` if `in_place`: numbers and sizes are computed, tensors become
    nodes, and the operators of classes are inlined in Python's order."""
    function, in_place_function, name = BINARY[symbol]
    followed = of_followed(function, a, b)
    if followed is not None:
        return followed
    a, b = _numbers_of_numpy(frame, a, b)
    expression = (
        text_by_operator(frame, symbol, a, b)
        or (None if _is_open_float(a) or _is_open_float(b) else on_sizes(function, a, b))
        or computed_from_sizes(frame.capture, function, a, b)
        or (_joined_sizes(a, b) if symbol == "+" else None)
    )
    if expression is not None:
        return expression
    given = a, b
    a, b = _scalars(a, b, function)
    number = _of_scalar(frame, symbol, a, b) or compute(frame, function, a, b)
    if number is not None:
        return number
    if isinstance(a, NumpyValue) or isinstance(b, NumpyValue):
        return operate(frame, function, [a, b], in_place)
    found = _of_tensors(frame, symbol, a, b, in_place, given)
    if found is None:
        found = _of_constants(frame, symbol, a, b, in_place)
    if found is not None:
        return found
    says = (
        f"unsupported operand type(s) for {symbol}{'=' if in_place else ''}: {_name(a)} and {_name(b)}"
    )
    return by_special_methods(frame, in_place_function if in_place else function, name, a, b, says, in_place)


def _is_open_float(value: Value) -> bool:
    """Whether it is a float that is not assumed, of which no expression over sizes is made."""
    return isinstance(value, SymNumberValue) and value.python_type() is float


def _of_scalar(frame: Frame, symbol: str, a: Value, b: Value) -> Value | None:
    """An operation with a number that is not assumed, where no tensor takes part."""
    a, b = beside_number(frame.capture, a, b), beside_number(frame.capture, b, a)
    for scalar, other, reflected in ((a, b, False), (b, a, True)):
        if isinstance(scalar, SymNumberValue) and not isinstance(other, TensorValue):
            expression = scalar.binary(symbol, other, reflected)
            if expression is not None:
                return expression
    return None


def _of_tensors(
    frame: Frame, symbol: str, a: Value, b: Value, in_place: bool, given: tuple[Value, Value]
) -> Value | None:
    """An operation that torch does, or hands to the program's `__torch_function__`; None where a special method of the
    program comes first. `given`: the operands before tensors stood for numbers."""
    function, in_place_function, name = BINARY[symbol]
    in_place = in_place and a is given[0]  # what stands for a number is no tensor of the program's to write into
    formats = symbol == "%" and issubclass(a.python_type(), (str, bytes, bytearray))  # `"%s" % tensor`
    if formats or _own(a, b, f"__{name}__", f"__r{name}__", f"__i{name}__"):
        return None
    made = handed_over(frame, in_place_function if in_place else function, [a, b])
    if made is not None:
        return made
    if symbol == "/" and isinstance(a, TensorValue) and isinstance(b, TensorValue):
        graph = frame.capture.graph
        if a is not given[0]:  # as `Tensor.__rtruediv__` does
            return graph.call(operator.mul, [graph.call("reciprocal", [b], is_method=True), a])
        number = given[1]
        if isinstance(number, (ReadNumberValue, SymNumberValue)) and a.fake.device.type != "cpu":
            by_inverse = inverse(graph, number, b.fake.dtype)
            return graph.call(operator.imul if in_place else operator.mul, [a, by_inverse])
    if isinstance(a, TensorValue):
        return frame.capture.graph.call(in_place_function if in_place else function, [a, b])
    if (
        isinstance(b, TensorValue)
        and not _overrides(a, f"__{name}__")
        and not (in_place and _overrides(a, f"__i{name}__"))
    ):
        # as `Tensor.__rpow__` does; torch.fx would write `-2.0 ** x`, which is another number
        return frame.capture.graph.call(torch.pow if symbol == "**" else function, [a, b])
    return None


def _of_constants(frame: Frame, symbol: str, a: Value, b: Value, in_place: bool) -> Value | None:
    """An operation on known objects, done now; of text that is formatted only the text need be a constant itself."""
    if (a.is_constant() or isinstance(a, SymIntValue)) and (b.is_constant() or isinstance(b, SymIntValue)):
        function, in_place_function, name = BINARY[symbol]
        changes = static_lookup(a.python_type(), f"__i{name}__", None) is not None
        return fold(frame, in_place_function if in_place and not changes else function, [a, b], {})
    if not isinstance(a, ConstantValue) or not isinstance(a.value, str) or symbol != "%":
        return None
    return frame.filled_in_by_percent(a.value, b)


def by_special_methods(
    frame: Frame, function: Callable[..., Any], name: str, a: Value, b: Value, says: str, in_place: bool = False
) -> Value:
    """A binary operation by the methods of its operands: `__name__` of the left one, `__rname__` of the right one.

    CPython asks both operands as numbers before it joins or repeats sequences, also in place: `[1] += x` is
    `x.__radd__([1])` if there is one.
    """
    in_place_method, direct, mirrored = (a, f"__i{name}__", b), (a, f"__{name}__", b), (b, f"__r{name}__", a)
    as_numbers = [x for x in (direct, mirrored) if _has(x[0], x[1]) and not _of_sequence(x[0], name)]
    if a.python_type() is b.python_type():
        as_numbers = as_numbers[:1] if as_numbers and as_numbers[0] is direct else []
    elif a.python_type() in b.python_type().__mro__ and len(as_numbers) == 2:
        if static_lookup(b.python_type(), mirrored[1]) is not static_lookup(a.python_type(), mirrored[1], None):
            as_numbers.reverse()  # a subclass on the right that has its own method goes first
    sequence = _of_sequence(a, name)
    if sequence:
        attempts = [*as_numbers, direct]
    else:
        # in place, what has the table of a sequence's operations is asked for no other's
        repeats = name == "mul" and _of_sequence(b, name)
        asked = repeats and not (in_place and native.has_sequence_slots(a.python_type()))
        attempts = as_numbers + ([mirrored] if asked else [])
    if in_place and _has(a, in_place_method[1]):
        own = static_lookup(a.python_type(), in_place_method[1])
        if sequence and isinstance(own, WrapperDescriptorType):
            attempts[-1] = in_place_method
        elif name == "mul" and _joins_or_raises(own):
            attempts.append(in_place_method)  # `[1] *= 2` is a sequence's, though its class multiplies as numbers do
        else:
            attempts.insert(0, in_place_method)
    for attempt in attempts:
        owner, method, other = attempt
        if attempt not in as_numbers and attempt != in_place_method:
            result = _as_sequence(frame, owner, method, other)
        else:
            result = owner.call_method(frame, method, [other], {})
        if not is_not_implemented(result):
            return result
        own = static_lookup(owner.python_type(), method)
        if name in ("add", "mul") and attempt in as_numbers and _joins_or_raises(own):
            made, given = own.__objclass__, native.type_name(other.python_type())
            says = {
                "add": f'can only concatenate {made.__name__} (not "{given}") to {made.__name__}',
                "mul": f"{given!r} object cannot be interpreted as an integer",
            }[name]
            raise refused(frame, lambda _, right: own(made(), right), [owner, other], says)  # noqa: B023
    raise refused(frame, function, [a, b], says)


def _as_sequence(frame: Frame, owner: Value, method: str, other: Value) -> Value:
    """Joining or repeating by CPython's own method. Of what does not fit the method says something else than the
    operator; NotImplemented stands for what can't be joined."""
    cls = other.python_type()
    if method == "__add__" and issubclass(owner.python_type(), bytes) and not issubclass(cls, bytes):
        if native.is_buffer_type(cls):
            raise Unsupported(f"bytes and {other.describe()}, whose memory is read")
        return ConstantValue(NotImplemented)
    if method != "__add__" and not _has(other, "__index__"):
        raise frame.raised(TypeError, f"can't multiply sequence by non-int of type {_name(other)}")
    return owner.call_method(frame, method, [other], {})


def _name(value: Value) -> str:
    """How messages name the class of a value."""
    return repr(native.type_name(value.python_type()))


def _joined_sizes(a: Value, b: Value) -> Value | None:
    """The sum of two tuples (or torch.Sizes) that hold sizes which are not assumed; None for anything else."""
    if not (a.symbolic or b.symbolic) or not all(v.python_type() in (tuple, torch.Size) for v in (a, b)):
        return None
    items = [[ConstantValue(item) for item in v.value] if isinstance(v, ConstantValue) else v.items for v in (a, b)]  # type: ignore[attr-defined]
    return TupleValue([*items[0], *items[1]], type(a.python_type()() + b.python_type()()))


def _has(value: Value, method: str) -> bool:
    static = static_lookup(value.python_type(), method, _ABSENT)
    if static is None:
        raise Unsupported(f"{method} of {value.describe()}, which is None")
    return static is not _ABSENT


def _of_sequence(value: Value, name: str) -> bool:
    """Whether `+` or `*` of such an object is what CPython has for sequences, joining and repeating, and not an
    operation of numbers, which `__add__` or `__radd__` of a class written in Python always is."""
    if name not in ("add", "mul"):
        return False
    names = {f"__{name}__", f"__r{name}__"}
    maker = next((cls for cls in value.python_type().__mro__ if not names.isdisjoint(vars(cls))), None)
    return maker is not None and _joins(maker)


def _joins(cls: type) -> bool:
    """Whether a class is a sequence written in C. Numbers have both `__add__` and `__radd__`, for one function does
    both."""
    return isinstance(vars(cls).get("__add__"), WrapperDescriptorType) and "__radd__" not in vars(cls)


def _joins_or_raises(method: Any) -> bool:
    """Whether `__add__` or `__mul__` is that of a sequence written in C: called by its name, as for a class that adds a
    reflected one, it raises where others give NotImplemented."""
    return isinstance(method, WrapperDescriptorType) and _joins(method.__objclass__)


def _overrides(value: Value, method: str) -> bool:
    is_own = isinstance(value, ObjectValue) or (isinstance(value, ClassValue) and has_operators(value.cls))
    return is_own and _has(value, method)


def _own(a: Value, b: Value, *methods: str) -> bool:
    """Whether a tensor among the operands has a method of the program's own."""
    return any(isinstance(v, TensorValue) and is_overridden(v.cls, method) for v in (a, b) for method in methods)


def _numbers_of_numpy(frame: Frame, a: Value, b: Value) -> tuple[Value, Value]:
    """A number of numpy beside a tensor is to torch the same as one of Python, but for bools; numpy leaves such
    operations to torch."""
    for number, tensor in ((a, b), (b, a)):
        if (
            isinstance(number, NumberValue)
            and isinstance(tensor, TensorValue)
            and tensor.cls in (torch.Tensor, torch.nn.Parameter)
        ):
            if number.dtype.kind in "iuf":
                plain = number.plain(frame)
                return (plain, b) if number is a else (a, plain)
    return a, b


def _scalars(a: Value, b: Value, function: Any) -> tuple[Value, Value]:
    """Where a number meets a tensor, what stands for it in the graph."""
    if isinstance(a, ReadNumberValue) and isinstance(b, TensorValue):
        return a.beside(function, b), b
    if isinstance(b, ReadNumberValue) and isinstance(a, TensorValue):
        return a, b.beside(function, a)
    if isinstance(a, SymNumberValue) and isinstance(b, TensorValue):
        return a.as_tensor(function, b), b
    if isinstance(b, SymNumberValue) and isinstance(a, TensorValue):
        return a, b.as_tensor(function, a)
    return a, b


def compare(frame: Frame, name: str, a: Value, b: Value) -> Value:
    """`name` is lt, le, eq, ne, gt or ge."""
    followed = of_followed(COMPARE[name], a, b)
    if followed is not None:
        return followed
    a, b = _numbers_of_numpy(frame, a, b)
    beside_numbers = isinstance(a, SymNumberValue) or isinstance(b, SymNumberValue)
    known = None if beside_numbers else on_sizes(COMPARE[name], a, b)
    if known is not None:
        return known
    a, b = _scalars(a, b, COMPARE[name])
    of_read = compare_numbers(frame, COMPARE[name], a, b)
    if of_read is not None:
        return of_read
    for scalar, other, reflected in ((a, b, False), (b, a, True)):
        if isinstance(scalar, SymNumberValue) and not isinstance(other, TensorValue):
            outcome = scalar.compare(name, beside_number(frame.capture, other, scalar), reflected)
            if outcome is not None:
                return outcome
    known = on_sizes(COMPARE[name], a, b) if beside_numbers else None  # what the number is has to be known
    if known is not None:
        return known
    if isinstance(a, NumpyValue) or isinstance(b, NumpyValue):
        return operate(frame, COMPARE[name], [a, b])
    if (isinstance(a, TensorValue) or isinstance(b, TensorValue)) and not _own(
        a, b, f"__{name}__", f"__{_REFLECTED[name]}__"
    ):
        made = handed_over(frame, COMPARE[name], [a, b])
        if made is not None:
            return made
        other = b if isinstance(a, TensorValue) else a
        if (
            name in ("eq", "ne")
            and isinstance(other, ConstantValue)
            and not isinstance(other.value, (int, float, complex, bool))
        ):
            return ConstantValue(name == "ne")  # Tensor.__eq__ gives NotImplemented for these
        return frame.capture.graph.call(COMPARE[name], [a, b])
    if (a.is_constant() or isinstance(a, SymIntValue)) and (b.is_constant() or isinstance(b, SymIntValue)):
        return fold(frame, COMPARE[name], [a, b], {})
    attempts = [(a, f"__{name}__", b), (b, f"__{_REFLECTED[name]}__", a)]
    if a.python_type() is not b.python_type() and a.python_type() in b.python_type().__mro__:
        attempts.reverse()
    for owner, method, other in attempts:
        if _has(owner, method):
            result = owner.call_method(frame, method, [other], {})
            if not is_not_implemented(result):
                return result
    if name in ("eq", "ne"):
        return ConstantValue(frame.same(a, b) == (name == "eq"))
    says = (
        f"{_SYMBOL[name]!r} not supported between instances of {_name(a)} and {_name(b)}"
    )
    raise refused(frame, COMPARE[name], [a, b], says)


def unary(frame: Frame, symbol: str, a: Value) -> Value:
    """The result of an operator before its operand, as `-a`."""
    function, method = UNARY[symbol]
    if isinstance(a, NumpyValue):
        return operate(frame, function, [a])
    if isinstance(a, TensorValue) and not is_overridden(a.cls, method):
        made = handed_over(frame, function, [a])
        if made is not None:
            return made
        return frame.capture.graph.call(function, [a])
    negated = a.binary("*", ConstantValue(-1), False) if symbol == "-" and isinstance(a, SymNumberValue) else None
    expression = negated or on_sizes(function, a) or compute(frame, function, a)
    if expression is not None:
        return expression
    if a.is_constant() or isinstance(a, SymIntValue):
        return fold(frame, function, [a], {})
    if not _has(a, method):
        raise refused(frame, function, [a], f"bad operand type for unary {symbol}: {_name(a)}")
    return a.call_method(frame, method, [], {})


def contains(frame: Frame, container: Value, item: Value) -> bool:
    """The answer to `item in container`, which is a known one."""
    if container.is_constant() and item.is_constant() and isinstance(container, ConstantValue):
        return bool(fold(frame, operator.contains, [container, item], {}).constant())
    if _has(container, "__contains__"):
        return frame.truth(container.call_method(frame, "__contains__", [item], {}))
    if not _has(container, "__iter__") and not _has(container, "__getitem__"):
        raise refused(
            frame, operator.contains, [container, item],
            f"argument of type {_name(container)} is not iterable",
        )
    return any(frame.equal(realize(frame, x), item) for x in frame.iterate(container))


def equal(frame: Frame, a: Value, b: Value) -> bool:
    """`a is b or a == b`, as containers compare their items."""
    a, b = realize(frame, a), realize(frame, b)
    if a is b:
        return True
    known = on_sizes(operator.eq, a, b)
    if known is not None:
        return bool(known.constant())
    if a.is_constant() and b.is_constant():
        x, y = a.constant(), b.constant()
        return bool(x == y) or (x is y or type(x) in (float, complex)) and frame.same(a, b)
    if isinstance(a, TensorValue) != isinstance(b, TensorValue):
        other = b if isinstance(a, TensorValue) else a
        if other.is_constant() and not isinstance(other.constant(), (int, float, complex)):
            return False
    if isinstance(a, TensorValue) and isinstance(b, TensorValue) and frame.same(a, b):
        return True
    return frame.truth(compare(frame, "eq", a, b))


def subscript(frame: Frame, container: Value, key: Value) -> Value:
    """The value of `container[key]`."""
    found = picked(frame, container, key)
    if found is not None:
        return found
    if isinstance(container, ConstantValue):
        return fold(frame, operator.getitem, [container, key], {})
    if isinstance(container, ClassValue) and static_lookup(type(container.cls), "__getitem__", None) is None:
        if not hasattr(container.cls, "__class_getitem__"):
            raise frame.raised(TypeError, f"type {native.type_name(container.cls)!r} is not subscriptable")
        return container.call_method(frame, "__getitem__", [key], {})
    if not _has(container, "__getitem__"):
        raise refused(
            frame, operator.getitem, [container, ConstantValue(0)],
            f"{_name(container)} object is not subscriptable",
        )
    return container.call_method(frame, "__getitem__", [key], {})
