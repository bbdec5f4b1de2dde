"""A tree of guards as plain data, and from that, over a frame of this process, the tree again.

What a guard compares with is an object of the process that the entry is from. Here it is whatever the frame has in
that place, once it is described as that object was; the rest is compared as the guard does. Values are read and
checked in the order in which the native tree does it, so that nothing of the program runs that guards would not run.
"""

from __future__ import annotations

import enum
import inspect
import operator
from collections.abc import Sequence
from types import FunctionType
from typing import Any, Final

import torch

from framejit import _native as native
from framejit.backends.number_calls import answer_of_kept
from framejit.guards.answers import same_answer, still_unrelated
from framejit.guards.computed_size import ComputedSize
from framejit.guards.shown_warnings import still_silent
from framejit.guards.sources import ABSENT, static_lookup
from framejit.guards.tensor_facts import split_tensor_payload
from framejit.kept import plain_values
from framejit.kept.computed_size_record import read_size, written_size
from framejit.kept.not_kept import DoesNotFit, NotKept
from framejit.kept.object_table import FoundObjects, WrittenObjects
from framejit.kept.torch_state import described_state

_NUMBERS: Final = (
    native.C_LEN, native.C_RECORD, native.C_SAME, native.C_DISTINCT, native.C_TRUTH, native.C_NO_ATTR, native.C_LACKS,
)
_CONSTANTS: Final = (native.C_EQUALS, native.C_KEYS, native.C_NO_KEY, native.C_SIZES)
_OBJECTS: Final = (native.A_CONST, native.A_CALL)
_NOT_READ: Final = object()

Node = tuple[int, Any, list[tuple[int, Any, int]], list[Any], int]
"""As `_native.GuardTree` takes it; in a record with numbers of objects and plain data for what it refers to."""


def facts_of(tensor: torch.Tensor, free_sizes: int, free_strides: int) -> list[Any]:
    """All that a guard on a tensor compares, as plain data; `free_sizes` and `free_strides` have a bit for each
    dimension that is left open. Raises NotKept."""
    if tensor.layout is not torch.strided:
        raise NotKept(f"a tensor of layout {tensor.layout}")
    with torch._C.DisableTorchFunctionSubclass():
        return [
            str(tensor.dtype), str(tensor.device), _known(tensor.shape, free_sizes),
            _known(tensor.stride(), free_strides), tensor.requires_grad,
            torch._C._dispatch_keys(tensor).raw_repr(),
        ]


def _known(numbers: Sequence[int], free: int) -> list[int | None]:
    return [None if free >> dim & 1 else number for dim, number in enumerate(numbers)]


# ---- writing ------------------------------------------------------------------------------------------------------


def written_tree(roots: list[Node], labels: dict[int, str], objects: WrittenObjects) -> list[Any]:
    """The record of a tree; `labels` has what guards call objects, by id. Raises NotKept."""
    return [_written_node(node, labels, objects) for node in roots]


def _written_node(node: Node, labels: dict[int, str], objects: WrittenObjects) -> list[Any]:
    accessor, key, checks, children, guard_id = node
    if type(key) is str:
        written: Any = key
    elif type(key) is ComputedSize:
        written = ["size", *written_size(key)]
    elif accessor in _OBJECTS:
        written = objects.by_name(key, labels.get(id(key), ""))
    elif accessor == native.A_KEY and not _is_plain(key):
        written = ["object", objects.by_name(key)]
    else:
        written = plain_values.written(key)
    return [
        accessor,
        written,
        [[kind, _written_payload(kind, payload, objects), guard] for kind, payload, guard in checks],
        [_written_node(child, labels, objects) for child in children],
        guard_id,
    ]


def _is_plain(key: Any) -> bool:
    try:
        plain_values.written(key)
    except NotKept:
        return False
    return True


def _written_payload(kind: int, payload: Any, objects: WrittenObjects) -> Any:
    if kind in (native.C_TYPE, native.C_ID):
        return objects.on_frame(payload)
    if kind in _NUMBERS:
        return payload
    if kind == native.C_EQUALS and isinstance(payload, enum.Enum):
        return ["object", objects.on_frame(payload)]
    if kind in _CONSTANTS:
        return plain_values.written(payload)
    if kind == native.C_TENSOR:
        tensor, *free = split_tensor_payload(payload)
        masks = list(payload[1:]) if type(payload) is tuple else []
        return [objects.on_frame(type(tensor)), masks, *facts_of(tensor, *free)]
    if kind == native.C_STATE:
        return described_state(payload)
    if kind == native.C_PY:
        question = getattr(payload, "question", None)
        if question is not None:
            return ["answer", *map(plain_values.written, question)]
        unrelated = getattr(payload, "unrelated", None)
        if unrelated is not None:
            return ["unrelated", *map(objects.by_name, unrelated)]
        warning = getattr(payload, "warning", None)
        if warning is not None:
            return ["warning", *warning[:-1], objects.by_name(warning[-1])]
        of_kept = getattr(payload, "of_kept", None)
        if of_kept is not None:
            return ["of_kept", *of_kept]
        return ["check", objects.by_name(payload)]
    raise NotKept("a guard on what is in a tensor, or on numbers from several places")


# ---- reading ------------------------------------------------------------------------------------------------------


class Binding:
    """A record of a tree over the frame `fn(*flat_args)`."""

    def __init__(self, objects: FoundObjects, flat_args: tuple[Any, ...], fn: FunctionType) -> None:
        self._objects, self._flat_args, self._fn = objects, flat_args, fn

    def tree(self, nodes: list[Any], parent: Any = None) -> list[Node]:
        """The description of the tree that compares with the objects of this process.

        Raises DoesNotFit where a value can't be read or a check does not hold, and whatever data that is none leads to.
        """
        return [self._node(node, parent) for node in nodes]

    def _node(self, node: list[Any], parent: Any) -> Node:
        accessor, written, checks, children, guard_id = node
        if type(written) is str:
            key: Any = written
        elif type(written) is list and accessor == native.A_CALL:
            key = read_size(*written[1:])
        elif accessor in _OBJECTS:
            key = self._objects.get(written)
        elif type(written) is list and written[0] == "object":
            key = self._objects.get(written[1])
        else:
            key = plain_values.read(written)
        value = self._value(accessor, key, parent)
        if value is _NOT_READ:
            raise DoesNotFit(f"there is no {key!r}")
        made = [(kind, self._payload(kind, payload, value), guard) for kind, payload, guard in checks]
        return accessor, key, made, [self._node(child, value) for child in children], guard_id

    def _value(self, accessor: int, key: Any, parent: Any) -> Any:
        """What native/guards/guard_eval.c reads."""
        try:
            match accessor:
                case native.A_KEY:
                    return dict.__getitem__(parent, key)
                case native.A_DICT:
                    return object.__getattribute__(parent, "__dict__")
                case native.A_ATTR:
                    return getattr(parent, key)
                case native.A_INDEX:
                    return parent[key]
                case native.A_CONST:
                    return key
                case native.A_TYPE_LOOKUP:
                    return static_lookup(parent, key)
                case native.A_CELL:
                    return parent.cell_contents
                case native.A_ARG:
                    return self._flat_args[key]
                case native.A_GLOBAL:
                    return self._fn.__globals__[key]
                case native.A_BUILTIN:
                    return self._fn.__builtins__[key]
                case native.A_FUNC:
                    return self._fn
                case native.A_CLOSURE_CELL:
                    return (self._fn.__closure__ or ())[key]
                case native.A_STATE:
                    return None
                case native.A_DICT_KEY_AT:
                    return list(dict.keys(parent))[key]
                case native.A_DICT_VALUE_AT:
                    return list(dict.values(parent))[key]
                case native.A_CALL:
                    return key(parent)
                case native.A_GETITEM:
                    return parent[key]
                case native.A_BINOP:
                    return getattr(operator, key[0])(parent, key[1])
                case native.A_RBINOP:
                    return getattr(operator, key[0])(key[1], parent)
        except Exception:  # whatever it is, the native tree could not read it either: the record does not fit
            return _NOT_READ
        raise DoesNotFit(f"there is no accessor {accessor}")

    def _payload(self, kind: int, written: Any, value: Any) -> Any:
        """What a check of this process compares with. What is not looked at here is left to the native tree."""
        if kind == native.C_ID:
            self._objects.bind(written, value)
            return value
        if kind == native.C_TYPE:
            self._objects.bind(written, type(value))
            return type(value)
        if kind in _NUMBERS:
            return written
        if kind == native.C_EQUALS and type(written) is list and written[0] == "object":
            self._objects.bind(written[1], value)
            return value
        if kind in _CONSTANTS:
            payload = plain_values.read(written)
            if kind == native.C_EQUALS and not plain_values.is_same(value, payload):
                raise DoesNotFit(f"{value!r} in place of {payload!r}")
            return payload
        if kind == native.C_TENSOR:
            return self._tensor(written, value)
        if kind == native.C_STATE:
            state = native.snapshot_state()
            if described_state(state) != written:
                raise DoesNotFit("torch's state is another")
            return state
        if kind == native.C_PY and written[0] == "answer":
            return same_answer(*map(plain_values.read, written[1:]))
        if kind == native.C_PY and written[0] == "unrelated":
            return still_unrelated(*map(self._objects.get, written[1:]))
        if kind == native.C_PY and written[0] == "warning":
            text, line, silent, category = written[1:]
            return still_silent(text, line, silent, self._objects.get(category))
        if kind == native.C_PY and written[0] == "of_kept":
            return answer_of_kept(*written[1:])
        if kind == native.C_PY:
            return self._objects.get(written[1])
        raise DoesNotFit(f"there is no check {kind}")

    def _tensor(self, written: list[Any], value: Any) -> Any:
        number, masks, *facts = written
        payload = (value, *masks) if masks else value
        if not issubclass(type(value), torch.Tensor):
            raise DoesNotFit("what was a tensor is none")
        self._objects.bind(number, type(value))
        try:
            found = facts_of(*split_tensor_payload(payload))
        except NotKept as e:
            raise DoesNotFit(str(e)) from None
        if found != facts:
            raise DoesNotFit("a tensor has another dtype, device, size or layout")
        return payload


def is_same_tree(one: Any, other: Any) -> bool:
    """Whether two descriptions of trees compare with the same objects."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) in (tuple, list):
        return len(one) == len(other) and all(map(is_same_tree, one, other))
    if type(one) in (int, str):
        return bool(one == other)
    if type(one) in (native.State, dict):
        return True  # made anew where a tree is
    if type(one) is FunctionType and hasattr(one, "question"):
        return bool(one.question == getattr(other, "question", None))
    for asked in ("unrelated", "warning"):
        if type(one) is FunctionType and hasattr(one, asked):
            return is_same_tree(getattr(one, asked), getattr(other, asked, None))
    if isinstance(one, torch.Tensor):  # the memory of an array is another tensor each time; its facts are compared
        return type(one) is torch.Tensor and facts_of(one, 0, 0) == facts_of(other, 0, 0)
    if type(one) is inspect.Signature:
        return bool(one == other)
    if type(one) is ComputedSize:
        return written_size(one) == written_size(other)
    return _is_plain(one) and plain_values.is_same(one, other)


def lookup(cls: type, name: str) -> Any:
    """The attribute that a class, or a base of it, has under a name, no descriptor applied; ABSENT without one."""
    found = static_lookup(cls, name, _NOT_READ)
    return ABSENT if found is _NOT_READ else found
