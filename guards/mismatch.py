"""Why a check failed, in words: one function for each kind of check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.plain_text import class_name, short
from framejit.guards.size_program import NUMBER, SizeRead, sizes_read
from framejit.guards.tensor_facts import TensorFacts

if TYPE_CHECKING:
    from framejit.guards.guard import GuardRecord

Words = tuple[str, str, str]
"""A full sentence, and its two halves: what was expected, and what was met."""


def _sentence(subject: str, expected: str, actual: str, place: str = "") -> Words:
    verb = "were" if expected.endswith(" dimensions") else "was"
    return f"{subject}: {expected} {verb} expected{place}, got {actual}", expected, actual


def _type_name(cls: type) -> str:
    return class_name(cls).removeprefix("builtins.")


def explain_tensor(record: GuardRecord, value: Any) -> Words:
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


def explain_type(record: GuardRecord, value: Any) -> Words:
    return _sentence(
        f"type of {record.source_name!r}",
        str(record.expected).strip("<>").removeprefix("builtins."),
        _type_name(type(value)),
    )


def explain_identity(record: GuardRecord, value: Any) -> Words:
    return f"{record.source_name!r} is another object than before", str(record.expected), short(value)


def explain_constant(record: GuardRecord, value: Any) -> Words:
    return _sentence(repr(record.source_name), short(record.expected), short(value))


def explain_length(record: GuardRecord, value: Any) -> Words:
    try:
        actual = str(_length(value))
    except Exception as e:  # a user's __len__ may do anything
        actual = f"{type(e).__name__} from len()"
    return _sentence(f"length of {record.source_name!r}", str(record.expected), actual)


def _length(value: Any) -> int:
    """As the native check counts: of an instance of a subclass what it holds, whatever its `__len__` says."""
    kind = next((kind for kind in (dict, list, tuple, set, frozenset) if issubclass(type(value), kind)), None)
    return len(value) if kind is None else kind.__len__(value)


def explain_keys(record: GuardRecord, value: Any) -> Words:
    actual = short(tuple(value)) if isinstance(value, dict) else _type_name(type(value))
    return _sentence(f"keys of {record.source_name!r}", short(record.expected), actual)


def explain_key(record: GuardRecord, value: Any) -> Words:
    return f"key {record.expected!r} of {record.source_name!r} is present now", "missing", "present"


def explain_attribute(record: GuardRecord, value: Any) -> Words:
    return f"attribute {record.expected!r} of {record.source_name!r} is present now", "missing", "present"


def explain_state(record: GuardRecord, value: Any) -> Words:
    if not isinstance(record.expected, native.State):
        return _sentence("torch state", record.text, "another")
    changes = record.expected.diff(native.snapshot_state())
    if not changes:
        return "the torch state was another", "another torch state", "this one"
    # The dispatch keys follow from the modes: they are of interest only when no mode accounts for them.
    changes = [change for change in changes if "dispatch keys" not in change[0]] or changes
    sentences = [_sentence(name, str(old), str(new)) for name, old, new in changes]
    return "; ".join(s[0] for s in sentences), "; ".join(s[1] for s in sentences), "; ".join(s[2] for s in sentences)


def explain_truth(record: GuardRecord, value: Any) -> Words:
    return _sentence(f"truth of {record.source_name!r}", str(bool(record.expected)), str(not record.expected))


def explain_same(record: GuardRecord, value: Any) -> Words:
    return (
        f"two arguments were the same object and are not any more: {record.text}",
        "the same object",
        "different objects",
    )


def explain_distinct(record: GuardRecord, value: Any) -> Words:
    return f"two arguments are the same object now: {record.text}", "different objects", "the same object"


def explain_sizes(record: GuardRecord, value: Any) -> Words:
    names = (record.source_name, *record.also_names)
    actual = (
        " and ".join(dict.fromkeys(_size_now(read, value[read.tensor], names) for read in sizes_read(record.expected)))
        or "that never holds"
    )
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


def explain_version(record: GuardRecord, value: Any) -> Words:
    version, address = record.expected
    try:
        now, place = value._version, value.data_ptr()
    except RuntimeError:  # made in inference mode, or without memory of its own
        return _sentence(
            f"content of {record.source_name!r}", "a tensor that counts what is written into it", "one that does not"
        )
    if now != version:
        return (
            f"something was written into {record.source_name!r}, whose content was taken to stay",
            f"version {version}",
            f"version {now}",
        )
    moved = "other memory than before" if place != address else "the memory of before"
    return f"{record.source_name!r}, whose content was taken to stay, lies in {moved}", "the same memory", moved
