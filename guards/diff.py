"""Why an entry did not match, in words: the guard that failed, what it expected and what it met."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any, NamedTuple

import torch

from framejit import _native as native
from framejit.guards.guard import GuardRecord, TensorFacts, short
from framejit.guards.size_program import NUMBER, SizeRead, sizes_read


class Miss(NamedTuple):
    """One failed guard. `text` is a full sentence; `expected` and `actual` are its two halves."""

    text: str
    expected: str
    actual: str
    source_name: str
    user_line: tuple[str, int] | None


def explain_miss(records: Sequence[GuardRecord], tree: native.GuardTree, flat_args: tuple[Any, ...], fn: FunctionType) -> Miss | None:
    """The first guard of `tree` that these arguments fail, or None if all hold (now). `records[i]` describes guard i."""
    failure = tree.explain(flat_args, fn)
    if failure is None:
        return None
    guard_id, value, failed_access = failure
    record = records[guard_id]
    if failed_access:
        text, expected, actual = f"{record.source_name!r} cannot be read any more", record.text, "no such value"
    elif record.check == native.C_STATE:
        text, expected, actual = _explain_state(record)
    elif record.check in _EXPLAIN:
        with torch._C.DisableTorchFunctionSubclass():  # tensors are looked at, which is nothing to tell their __torch_function__
            text, expected, actual = _EXPLAIN[record.check](record, value)
    else:
        text, expected, actual = f"no longer true: {record.text}", record.text, short(value)
    return Miss(text, expected, actual, record.source_name, record.user_line)


_Words = tuple[str, str, str]


def _sentence(subject: str, expected: str, actual: str, place: str = "") -> _Words:
    verb = "were" if expected.endswith(" dimensions") else "was"
    return f"{subject}: {expected} {verb} expected{place}, got {actual}", expected, actual


def _type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _explain_tensor(record: GuardRecord, value: Any) -> _Words:
    subject = f"tensor {record.source_name!r}"
    expected = record.expected
    if not isinstance(expected, TensorFacts) or not _is_tensor(value):
        return _sentence(subject, "a tensor", _type_name(type(value)))
    try:
        actual = TensorFacts.of(value)
    except RuntimeError:  # nested tensors
        return _sentence(subject, "a tensor with sizes", "one without")
    for name, what in (("cls", "type"), ("dtype", "dtype"), ("device", "device")):
        old, new = getattr(expected, name), getattr(actual, name)
        if old != new:
            return _sentence(subject, f"{what} {old}", new)
    if len(expected.shape) != len(actual.shape):
        return _sentence(subject, _dimensions(expected.shape), str(len(actual.shape)))
    for what, olds, news, free in (
        ("size", expected.shape, actual.shape, expected.free_sizes),
        ("stride", expected.strides, actual.strides, expected.free_strides),
    ):
        for d, (old, new) in enumerate(zip(olds or (), news or (), strict=False)):
            if old != new and not free >> d & 1:
                return _sentence(subject, f"{what} {old}", str(new), f" at dimension {d}")
    if expected.requires_grad != actual.requires_grad:
        return _sentence(subject, f"requires_grad={expected.requires_grad}", f"requires_grad={actual.requires_grad}")
    if (expected.strides is None) != (actual.strides is None):
        return _sentence(subject, "strided" if expected.strides else "not strided", str(value.layout))
    # All that is left is the set of dispatch keys.
    return _sentence(subject, "another kind of tensor", _kind(value))


def _is_tensor(value: Any) -> bool:
    # Its type is asked, because a nested tensor raises RuntimeError for its shape.
    return all(hasattr(type(value), name) for name in ("dtype", "device", "shape", "stride", "requires_grad"))


def _dimensions(shape: tuple[int, ...]) -> str:
    return f"{len(shape)} dimension{'' if len(shape) == 1 else 's'}"


def _kind(value: Any) -> str:
    kinds = [name for name in ("is_conj", "is_neg", "is_inference") if getattr(value, name, bool)()]
    return ", ".join(kind.removeprefix("is_") for kind in kinds) or "one with other dispatch keys"


def _explain_type(record: GuardRecord, value: Any) -> _Words:
    return _sentence(f"type of {record.source_name!r}", str(record.expected).strip("<>").removeprefix("builtins."), _type_name(type(value)))


def _explain_identity(record: GuardRecord, value: Any) -> _Words:
    return f"{record.source_name!r} is another object than before", str(record.expected), short(value)


def _explain_constant(record: GuardRecord, value: Any) -> _Words:
    return _sentence(repr(record.source_name), short(record.expected), short(value))


def _explain_length(record: GuardRecord, value: Any) -> _Words:
    try:
        actual = str(len(value))
    except Exception as e:  # a user's __len__ may do anything
        actual = f"{type(e).__name__} from len()"
    return _sentence(f"length of {record.source_name!r}", str(record.expected), actual)


def _explain_keys(record: GuardRecord, value: Any) -> _Words:
    actual = short(tuple(value)) if isinstance(value, dict) else _type_name(type(value))
    return _sentence(f"keys of {record.source_name!r}", short(record.expected), actual)


def _explain_presence(record: GuardRecord, value: Any) -> _Words:
    what = "attribute" if record.check in (native.C_HAS_ATTR, native.C_NO_ATTR) else "key"
    had = record.check in (native.C_HAS_KEY, native.C_HAS_ATTR)
    expected, actual = ("present", "missing") if had else ("missing", "present")
    return f"{what} {record.expected!r} of {record.source_name!r} is {actual} now", expected, actual


def _explain_state(record: GuardRecord) -> _Words:
    if not isinstance(record.expected, native.State):
        return _sentence("torch state", record.text, "another")
    changes = record.expected.diff(native.snapshot_state())
    if not changes:
        return "the torch state was another", "another torch state", "this one"
    # The dispatch keys follow from the modes: they are of interest only when no mode accounts for them.
    changes = [change for change in changes if "dispatch keys" not in change[0]] or changes
    sentences = [_sentence(name, str(old), str(new)) for name, old, new in changes]
    return "; ".join(s[0] for s in sentences), "; ".join(s[1] for s in sentences), "; ".join(s[2] for s in sentences)


def _explain_truth(record: GuardRecord, value: Any) -> _Words:
    return _sentence(f"truth of {record.source_name!r}", str(bool(record.expected)), str(not record.expected))


def _explain_same(record: GuardRecord, value: Any) -> _Words:
    return f"two arguments were the same object and are not any more: {record.text}", "the same object", "different objects"


def _explain_distinct(record: GuardRecord, value: Any) -> _Words:
    return f"two arguments are the same object now: {record.text}", "different objects", "the same object"


def _explain_sizes(record: GuardRecord, value: Any) -> _Words:
    names = (record.source_name, *record.also_names)
    actual = " and ".join(dict.fromkeys(_size_now(read, value[read.tensor], names) for read in sizes_read(record.expected))) or "that never holds"
    return f"{record.text}, but {actual}", record.text, actual


def _size_now(read: SizeRead, tensor: Any, names: tuple[str, ...]) -> str:
    name = names[read.tensor]
    if read.dim == NUMBER:
        return f"{name} is {short(tensor)}"
    if not _is_tensor(tensor):
        return f"{name} is of type {_type_name(type(tensor))}"
    try:
        dims = tensor.shape if read.op == native.S_SIZE else tensor.stride()
    except RuntimeError:  # sparse layouts have no strides, nested tensors no sizes either
        return f"{name} has no {'sizes' if read.op == native.S_SIZE else 'strides'}"
    if read.dim >= len(dims):
        return f"{name} has {_dimensions(dims)}"
    return f"{read.text(names)} is {dims[read.dim]}"


def _explain_version(record: GuardRecord, value: Any) -> _Words:
    version, address = record.expected
    try:
        now, place = value._version, value.data_ptr()
    except RuntimeError:  # made in inference mode, or without memory of its own
        return _sentence(f"content of {record.source_name!r}", "a tensor that counts what is written into it", "one that does not")
    if now != version:
        return f"something was written into {record.source_name!r}, whose content was taken to stay", f"version {version}", f"version {now}"
    moved = "other memory than before" if place != address else "the memory of before"
    return f"{record.source_name!r}, whose content was taken to stay, lies in {moved}", "the same memory", moved


_EXPLAIN = {
    native.C_TENSOR: _explain_tensor,
    native.C_TYPE: _explain_type,
    native.C_ID: _explain_identity,
    native.C_EQUALS: _explain_constant,
    native.C_LEN: _explain_length,
    native.C_KEYS: _explain_keys,
    native.C_HAS_KEY: _explain_presence,
    native.C_NO_KEY: _explain_presence,
    native.C_HAS_ATTR: _explain_presence,
    native.C_NO_ATTR: _explain_presence,
    native.C_TRUTH: _explain_truth,
    native.C_SAME: _explain_same,
    native.C_DISTINCT: _explain_distinct,
    native.C_SIZES: _explain_sizes,
    native.C_VERSION: _explain_version,
}
