"""A guard: one assumption about one source, and the user's line that made it."""
from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from framejit import _native as native
from framejit.guards.size_program import size_text
from framejit.guards.sources import ByIdentity, Source


@dataclass(frozen=True)
class Guard:
    """`check` is a native `C_*` constant; `payload` what it compares with (see framejit._native.GuardTree).

    `also` are further sources for checks that relate several: C_SAME and C_DISTINCT, whose payload is None, and C_SIZES, whose payload is
    a size program (native/guards/size_program.h) in which tensor 0 is that of `source` and the others those of `also`. C_VERSION takes
    the version of a tensor and the address of its data.
    `user_line` is the (file, line) of the code that made the assumption; it does not take part in equality.
    """

    source: Source
    check: int
    payload: Any = None
    also: tuple[Source, ...] = ()
    user_line: tuple[str, int] | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        return describe(self)

    def key(self) -> tuple[Any, ...]:
        """Hashable identity of the assumption, for deduplication."""
        payload: Any
        if self.check == native.C_TENSOR:
            tensor, *free = split_tensor_payload(self.payload)
            payload = (ByIdentity(tensor), *free)
        else:
            payload = ByIdentity(self.payload) if self.check in _BY_IDENTITY else _frozen(self.payload)
        return (self.source, self.check, payload, self.also)


_BY_IDENTITY = {native.C_ID, native.C_PY, native.C_STATE, native.C_TYPE}


def split_tensor_payload(payload: Any) -> tuple[Any, int, int]:
    """Example, free sizes and free strides (bit d: dimension d may be any) of what C_TENSOR takes: a tensor, or a tuple of it and one or two masks."""
    if not isinstance(payload, tuple):
        return payload, 0, 0
    tensor, free_sizes, *rest = payload
    return tensor, free_sizes, rest[0] if rest else free_sizes


def _frozen(payload: Any) -> Any:
    """A hashable stand-in that keeps 1, 1.0 and True apart, and nan equal to itself."""
    if isinstance(payload, tuple):
        return tuple(map(_frozen, payload))
    try:
        hash(payload)
    except TypeError:
        return ByIdentity(payload)
    return (type(payload), repr(payload) if isinstance(payload, (float, complex)) else payload)


def describe(guard: Guard) -> str:
    """The guard in words, as `FRAMEJIT_LOGS=guards` prints it."""
    where, value = guard.source.name(), guard.payload
    match guard.check:
        case native.C_TYPE:
            return f"type of {where} is {value.__module__}.{value.__qualname__}"
        case native.C_ID:
            return f"{where} is {short(value)}"
        case native.C_EQUALS:
            return f"{where} == {short(value)}"
        case native.C_LEN:
            return f"len({where}) == {value}"
        case native.C_KEYS:
            return f"keys of {where} are {short(value)}"
        case native.C_HAS_KEY:
            return f"{short(value)} in {where}"
        case native.C_NO_KEY:
            return f"{short(value)} not in {where}"
        case native.C_HAS_ATTR:
            return f"{where} has attribute {value!r}"
        case native.C_NO_ATTR:
            return f"{where} has no attribute {value!r}"
        case native.C_TENSOR:
            return f"tensor {where}: {describe_tensor(value)}"
        case native.C_STATE:
            return "torch state (grad mode, autocast, default dtype, modes) is unchanged"
        case native.C_SAME:
            return f"{where} is {guard.also[0].name()}"
        case native.C_DISTINCT:
            return f"{', '.join(s.name() for s in (guard.source, *guard.also))} are different objects"
        case native.C_TRUTH:
            return f"bool({where}) is {value}"
        case native.C_VERSION:
            return f"nothing was written into {where} (version {value[0]})"
        case native.C_SIZES:
            return size_text(value, (where, *(s.name() for s in guard.also)))
        case _:
            return f"{getattr(value, '__name__', value)}({where})"


_TYPE = vars(type)


def short(value: Any, limit: int = 80) -> str:
    if type(value) in (types.FunctionType, types.BuiltinFunctionType):
        text = f"<{value.__module__}.{value.__qualname__}>"
    elif issubclass(type(value), type):  # as `type` says it: a metaclass may have its own ideas
        text = f"<{_TYPE['__module__'].__get__(value)}.{_TYPE['__qualname__'].__get__(value)}>"
    else:
        text = repr(value) if _has_plain_repr(value) else f"<{type(value).__qualname__} object>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _has_plain_repr(value: Any, depth: int = 4) -> bool:
    """Whether `repr` runs none of the user's code, which would see that."""
    cls = type(value)
    if cls in (list, tuple, set, frozenset):
        return depth > 0 and all(_has_plain_repr(v, depth - 1) for v in value)
    if cls is dict:
        return depth > 0 and all(_has_plain_repr(v, depth - 1) for pair in value.items() for v in pair)
    if issubclass(cls, enum.Enum):  # one that is being made has no name, and its value may be any object
        own = object.__getattribute__(value, "__dict__")
        if depth <= 0 or "_name_" not in own or not _has_plain_repr(own.get("_value_"), depth - 1):
            return False
    how = next(vars(k)["__repr__"] for k in cls.__mro__ if "__repr__" in vars(k))
    if how is object.__repr__ or isinstance(how, types.FunctionType):
        return how is object.__repr__ or how.__module__.partition(".")[0] in ("enum", "torch")
    return not cls.__flags__ & (1 << 9) and (cls in _PLAIN or cls.__module__.partition(".")[0] == "torch")  # Py_TPFLAGS_HEAPTYPE: a class statement's


_PLAIN = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range, slice, types.ModuleType, types.CodeType)


def _starred(dims: Iterable[int], free: int) -> list[str]:
    return ["*" if free >> d & 1 else str(n) for d, n in enumerate(dims)]


def describe_tensor(payload: Any) -> str:
    """What C_TENSOR expects, dimensions that may be any as `*`: `float32[*, 64] on cpu, strides (64, 1)`."""
    t, free_sizes, free_strides = split_tensor_payload(payload)
    if not hasattr(t, "stride"):
        return short(t)
    kind = "" if type(t).__name__ == "Tensor" else f"{type(t).__name__} "
    try:
        strides = _starred(t.stride(), free_strides)
        layout = f", strides ({', '.join(strides)}{',' if len(strides) == 1 else ''})"
    except RuntimeError:  # sparse tensors have none
        layout = f", layout {t.layout}"
    shape = ", ".join(_starred(t.shape, free_sizes))
    return f"{kind}{str(t.dtype).removeprefix('torch.')}[{shape}] on {t.device}{layout}{', requires grad' if t.requires_grad else ''}"


@dataclass(frozen=True)
class TensorFacts:
    """What a tensor guard expects; kept in place of the tensor, which must stay free to die."""

    cls: str
    dtype: str
    device: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    requires_grad: bool
    free_sizes: int = 0  # bit d: the size of dimension d may be any
    free_strides: int = 0

    @staticmethod
    def of(payload: Any) -> TensorFacts:
        """Of a tensor, or of what C_TENSOR takes."""
        t, free_sizes, free_strides = split_tensor_payload(payload)
        try:
            strides = tuple(t.stride())
        except RuntimeError:  # sparse layouts
            strides = None
        dtype = str(t.dtype).removeprefix("torch.")
        return TensorFacts(type(t).__name__, dtype, str(t.device), tuple(t.shape), strides, t.requires_grad, free_sizes, free_strides)


@dataclass(frozen=True)
class GuardRecord:
    """What an entry keeps of a guard once it is lowered: words and immutable facts, never the user's objects."""

    check: int
    source_name: str
    text: str
    expected: Any  # TensorFacts for C_TENSOR, the constant for C_EQUALS/C_LEN/C_KEYS/..., what C_SIZES and C_VERSION take, else its short text
    user_line: tuple[str, int] | None
    also_names: tuple[str, ...] = ()


_IMMUTABLE_PAYLOADS = {
    native.C_EQUALS,
    native.C_LEN,
    native.C_KEYS,
    native.C_HAS_KEY,
    native.C_NO_KEY,
    native.C_HAS_ATTR,
    native.C_NO_ATTR,
    native.C_TRUTH,
    native.C_SIZES,
    native.C_VERSION,
}


def record(guard: Guard) -> GuardRecord:
    if guard.check == native.C_TENSOR:
        expected: Any = TensorFacts.of(guard.payload)
    else:
        expected = guard.payload if guard.check in _IMMUTABLE_PAYLOADS or guard.check == native.C_STATE else short(guard.payload)
    return GuardRecord(guard.check, guard.source.name(), guard.text, expected, guard.user_line, tuple(s.name() for s in guard.also))
