"""What a guard tree means, said in Python: the same nodes, evaluated one after the other as guard_eval.c is to evaluate
them."""
from __future__ import annotations

import ctypes
import gc
import operator
import struct
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from framejit import _native as native
from framejit.guards.tensor_layout import _describe_state

Frame = tuple[tuple[Any, ...], types.FunctionType | None]
_MISSING = object()
_sequence_item = ctypes.pythonapi.PySequence_GetItem
_sequence_item.argtypes, _sequence_item.restype = [ctypes.py_object, ctypes.c_ssize_t], ctypes.py_object


class Failed(Exception):
    """The value cannot be read."""


@dataclass(eq=False)
class Check:
    kind: int
    payload: Any
    """What the tree is given. Not for what is compared by identity: that is `holds`' to know, and to hold weakly."""
    holds: Callable[[Any, dict[int, Any]], bool]
    guard_id: int = -1


@dataclass(eq=False)
class Node:
    accessor: int
    key: Any
    read: Callable[[Any, Frame], Any]
    checks: list[Check] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    guard_id: int = -1

    def described(self) -> tuple[Any, ...]:
        """The description that GuardTree takes."""
        return (
            self.accessor, self.key, [(c.kind, c.payload, c.guard_id) for c in self.checks],
            [c.described() for c in self.children], self.guard_id,
        )


def verdict(roots: list[Node], frame: Frame) -> tuple[int, bool] | None:
    """The first guard that does not hold and whether its value could not be read; None if all hold."""
    records: dict[int, Any] = {}

    def walk(node: Node, parent: Any) -> tuple[int, bool] | None:
        try:
            value = node.read(parent, frame)
        except Exception:
            return node.guard_id, True
        for check in node.checks:
            try:
                holds = check.holds(value, records)
            except Exception:
                holds = False
            if not holds:
                return check.guard_id, False
        return next((found for child in node.children if (found := walk(child, value)) is not None), None)

    return next((found for root in roots if (found := walk(root, None)) is not None), None)


def held(target: Any) -> Callable[[], Any]:
    """What gives an object while it lives; strong where it can't be referred to weakly."""
    try:
        return weakref.ref(target)
    except TypeError:
        return lambda: target


# ---- reading ----
def reader(accessor: int, key: Any) -> Callable[[Any, Frame], Any]:
    if accessor == native.A_CONST:
        target = held(key)
        alive = (lambda: target() is not None) if isinstance(target, weakref.ref) else (lambda: True)

        def constant(parent: Any, frame: Frame) -> Any:
            if not alive():
                raise Failed
            return target()

        return constant
    return lambda parent, frame: _READERS[accessor](parent, frame, key)


def _argument(parent: Any, frame: Frame, key: int) -> Any:
    if not 0 <= key < len(frame[0]):
        raise Failed
    return frame[0][key]


def _cell(parent: Any, frame: Frame, key: int) -> types.CellType:
    closure = (frame[1].__closure__ if frame[1] else None) or ()
    if not 0 <= key < len(closure):
        raise Failed
    return closure[key]


def _function(frame: Frame) -> types.FunctionType:
    if frame[1] is None:
        raise Failed
    return frame[1]


def _key(parent: Any, frame: Frame, key: Any) -> Any:
    if not isinstance(parent, dict):
        raise Failed
    found = dict.get(parent, key, _MISSING)
    if found is _MISSING:
        raise Failed
    return found


def _instance_dict(parent: Any) -> dict[str, Any]:
    found: Any = object.__getattribute__(parent, "__dict__")
    # a class shows its dictionary through a proxy
    return gc.get_referents(found)[0] if isinstance(found, types.MappingProxyType) else found


def _key_at(parent: Any, frame: Frame, key: int) -> Any:
    if type(parent) is not dict or not 0 <= key < len(parent):
        raise Failed
    return list(parent)[key]


def _value_at(parent: Any, frame: Frame, key: int) -> Any:
    if not isinstance(parent, dict) or not 0 <= key < len(parent):
        raise Failed
    return list(dict.values(parent))[key]


def type_lookup(parent: Any, name: str) -> Any:
    if not isinstance(parent, type):
        raise Failed
    for base in parent.__mro__:
        if name in vars(base):
            return vars(base)[name]
    raise Failed


def _binary(parent: Any, frame: Frame, key: tuple[str, Any]) -> Any:
    return getattr(operator, key[0])(parent, key[1])


def _binary_reversed(parent: Any, frame: Frame, key: tuple[str, Any]) -> Any:
    return getattr(operator, key[0])(key[1], parent)


_READERS: dict[int, Callable[[Any, Frame, Any], Any]] = {
    native.A_ARG: _argument,
    native.A_CLOSURE_CELL: _cell,
    native.A_GLOBAL: lambda parent, frame, key: _function(frame).__globals__[key],
    native.A_BUILTIN: lambda parent, frame, key: _function(frame).__builtins__[key],
    native.A_FUNC: lambda parent, frame, key: _function(frame),
    native.A_ATTR: lambda parent, frame, key: getattr(parent, key),
    native.A_DICT: lambda parent, frame, key: _instance_dict(parent),
    native.A_KEY: _key,
    native.A_INDEX: lambda parent, frame, key: _sequence_item(parent, key),
    native.A_GETITEM: lambda parent, frame, key: parent[key],
    native.A_TYPE_LOOKUP: lambda parent, frame, key: type_lookup(parent, key),
    native.A_CELL: lambda parent, frame, key: types.CellType.cell_contents.__get__(parent),
    native.A_BINOP: _binary,
    native.A_RBINOP: _binary_reversed,
    native.A_CALL: lambda parent, frame, key: key(parent),
    native.A_DICT_KEY_AT: _key_at,
    native.A_DICT_VALUE_AT: _value_at,
    native.A_STATE: lambda parent, frame, key: None,
}


# ---- checks ----
def type_is(expected: type) -> Check:
    return Check(native.C_TYPE, expected, lambda value, _: type(value) is expected)


def identity(expected: Any) -> Check:
    target = held(expected)
    if isinstance(target, weakref.ref):
        return Check(native.C_ID, expected, lambda value, _: target() is not None and value is target())
    return Check(native.C_ID, expected, lambda value, _: value is target())


def equals(expected: Any) -> Check:
    return Check(native.C_EQUALS, expected, lambda value, _: equal(expected, value))


def equal(a: Any, b: Any) -> bool:
    """Equal so that no program can tell one from the other."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in (float, complex):
        return [struct.pack("d", part) for part in parts_of(a)] == [struct.pack("d", part) for part in parts_of(b)]
    if isinstance(a, tuple) or type(a) is list:
        return len(a) == len(b) and all(
            map(
                equal,
                tuple.__iter__(a) if isinstance(a, tuple) else a,
                tuple.__iter__(b) if isinstance(b, tuple) else b,
            )
        )
    if type(a) is dict:
        return equal(list(a.items()), list(b.items()))
    if type(a) in (set, frozenset):
        return len(a) == len(b) and all(any(equal(x, y) for y in b) for x in a)
    if type(a) is slice:
        return equal((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return bool(a == b)


def parts_of(number: complex) -> tuple[float, float]:
    return number.real, number.imag


def length(expected: int) -> Check:
    return Check(native.C_LEN, expected, lambda value, _: len(value) == expected)


def keys(expected: tuple[Any, ...]) -> Check:
    def holds(value: Any, _: Any) -> bool:
        if not isinstance(value, dict):
            return False
        found = list(value)
        return len(found) == len(expected) and all(
            a is b or (type(a) is type(b) and a == b) for a, b in zip(found, expected)
        )

    return Check(native.C_KEYS, expected, holds)


def key_absent(key: Any) -> Check:
    return Check(native.C_NO_KEY, key, lambda value, _: isinstance(value, dict) and not dict.__contains__(value, key))


def attribute_absent(name: str) -> Check:
    return Check(native.C_NO_ATTR, name, lambda value, _: not hasattr(value, name))


def class_lacks(name: str) -> Check:
    def holds(value: Any, _: Any) -> bool:
        return isinstance(value, type) and not any(name in vars(cls) for cls in value.__mro__)

    return Check(native.C_LACKS, name, holds)


def tensor(example: torch.Tensor, free_sizes: int = 0, free_strides: int = 0) -> Check:
    expected = metadata(example)

    def holds(value: Any, _: Any) -> bool:
        if type(value) is not expected[0]:
            return False
        found = metadata(value)
        if found[:6] != expected[:6] or len(found[6]) != len(expected[6]):
            return False
        if any(a != b and not free_sizes >> i & 1 for i, (a, b) in enumerate(zip(found[6], expected[6]))):
            return False
        return expected[7] is None or not any(
            a != b and not free_strides >> i & 1 for i, (a, b) in enumerate(zip(found[7], expected[7]))
        )

    return Check(native.C_TENSOR, (example, free_sizes, free_strides) if free_sizes | free_strides else example, holds)


def metadata(value: torch.Tensor) -> tuple[Any, ...]:
    try:
        strides = value.stride()
    except RuntimeError:  # a layout without
        strides = None
    keyset = torch._C._dispatch_keys(value).raw_repr()
    return (
        type(value), value.dtype, value.layout, value.device, value.requires_grad, keyset, tuple(value.shape),
        strides,
    )


def version(example: torch.Tensor) -> Check:
    payload = example._version, example.data_ptr()

    def holds(value: Any, _: Any) -> bool:
        return isinstance(value, torch.Tensor) and (value._version, value.data_ptr()) == payload

    return Check(native.C_VERSION, payload, holds)


def truth(expected: bool) -> Check:
    return Check(native.C_TRUTH, expected, lambda value, _: bool(value) is expected)


def python(question: Callable[[Any], Any]) -> Check:
    return Check(native.C_PY, question, lambda value, _: bool(question(value)))


def state() -> Check:
    """This thread's state of torch as it is now."""
    described = _describe_state()
    return Check(native.C_STATE, native.snapshot_state(), lambda value, _: _describe_state() == described)


def record(slot: int) -> Check:
    def holds(value: Any, records: dict[int, Any]) -> bool:
        records[slot] = value
        return True

    return Check(native.C_RECORD, slot, holds)


def same(a: int, b: int) -> Check:
    return Check(native.C_SAME, (a, b), lambda _, records: records[a] is records[b])


def distinct(slots: tuple[int, ...]) -> Check:
    return Check(native.C_DISTINCT, slots, lambda _, records: len({id(records[slot]) for slot in slots}) == len(slots))


def of_several(function: Callable[..., Any], slots: tuple[int, ...]) -> Check:
    def holds(_: Any, records: dict[int, Any]) -> bool:
        return all(slot in records for slot in slots) and bool(function(*(records[slot] for slot in slots)))

    return Check(native.C_HOLDS, (function, slots), holds)


_OPERATIONS: dict[int, Callable[[int, int], int]] = {
    native.S_ADD: operator.add, native.S_MUL: operator.mul,
    native.S_FLOORDIV: operator.floordiv, native.S_MOD: operator.mod,
    native.S_MIN: min, native.S_MAX: max, native.S_EQ: operator.eq, native.S_LT: operator.lt,
}


def sizes(slots: tuple[int, ...], program: tuple[int, ...]) -> Check:
    """A size program in postfix. The slot of an int is given as its complement."""

    def holds(_: Any, records: dict[int, Any]) -> bool:
        if any(
            type(records[~slot]) is not int if slot < 0 else not isinstance(records[slot], torch.Tensor)
            for slot in slots
        ):
            return False  # read or not
        stack: list[int] = []
        code = iter(program)
        for operation in code:
            if operation == native.S_CONST:
                stack.append(next(code))
            elif operation in (native.S_SIZE, native.S_STRIDE):
                slot, dim = slots[next(code)], next(code)
                value = records[slot if slot >= 0 else ~slot]
                if slot >= 0:
                    stack.append(value.shape[dim] if operation == native.S_SIZE else value.stride()[dim])
                elif operation == native.S_SIZE and dim == 0:
                    stack.append(in_64_bits(value))
                else:
                    raise Failed
            elif operation == native.S_NOT:
                stack.append(not stack.pop())
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(in_64_bits(_OPERATIONS[operation](left, right)))
        return bool(stack.pop())

    return Check(native.C_SIZES, (slots, program), holds)


def in_64_bits(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise Failed
    return number
