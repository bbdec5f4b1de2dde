"""Values that plans and graphs refer to, as plain data and back: a number, text, boolean or None is itself, anything
else a list that begins with its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from framejit import _native
from framejit.backends.fuse.cache.kernel_record import BadRecord
from framejit.backends.fuse.cache.plan_key import NotCacheable, SymbolicSizes
from framejit.backends.fuse.cache.size_record import read_expression, written_expression
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize, as_size, symbolic_size
from framejit.symbols.expression import Symbol

SEQUENCES: Final[dict[str, Callable[[Any], Any]]] = {"tuple": tuple, "list": list, "Size": torch.Size}
_NAMES: Final = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}
_TYPES: Final = {name: kind for kind, name in _NAMES.items()}


class ValueWriter:
    """Values as plain data. `symbols`: the symbolic sizes that they may refer to."""

    def __init__(self, symbols: Sequence[Symbol]) -> None:
        self.symbols = {symbol: number for number, symbol in enumerate(symbols)}

    def value(self, value: Any) -> Any:
        """The value as plain data. Raises NotCacheable."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind in SEQUENCES.values():
            return [kind.__name__, *map(self.value, value)]
        if kind is _native.Value:
            return ["value", value.index]
        if kind is torch.SymInt:
            value = as_size(value)
            kind = type(value)
        if kind is SymbolicSize:
            try:
                return ["size", written_expression(value.expression, self.symbols)]
            except KeyError as e:
                raise NotCacheable(f"its plan refers to {e.args[0]}, which is no symbolic size of an input") from None
        if kind is dict:
            return ["dict", *([self.value(name), self.value(item)] for name, item in value.items())]
        if kind in _NAMES:
            return [_NAMES[kind], str(value).removeprefix("torch.")]
        if kind is torch.device:
            return ["device", str(value)]
        if kind is complex:
            return ["complex", value.real, value.imag]
        return self.other(value)

    def other(self, value: Any) -> Any:
        """The same of values of further kinds."""
        raise NotCacheable(f"it refers to an object of type {type(value).__name__}")


class ValueReader:
    """The values that a `ValueWriter` wrote. `sizes`: with the symbols that it was given, in the same order."""

    def __init__(self, sizes: SymbolicSizes | None) -> None:
        self.sizes = sizes

    def value(self, data: Any) -> Any:
        """The value that was written as this. Raises BadRecord, or whatever data that is none leads to."""
        if type(data) is not list:
            if data is None or type(data) in (bool, int, float, str):
                return data
            raise BadRecord(f"a value of type {type(data).__name__}")
        kind, *rest = data
        if kind in SEQUENCES:
            return SEQUENCES[kind]([self.value(item) for item in rest])
        if kind == "value":
            return _native.Value(index(rest[0], 1 << 31))
        if kind == "dict":
            return {checked(name, str): self.value(item) for name, item in rest}
        if kind in _TYPES:
            return checked(getattr(torch, checked(rest[0], str), None), _TYPES[kind])
        if kind == "size" and self.sizes is not None:
            return symbolic_size(read_expression(rest[0], self.sizes.symbols), self.sizes.conditions)
        if kind == "device":
            return torch.device(checked(rest[0], str))
        if kind == "complex":
            return complex(*rest)
        return self.other(kind, rest)

    def other(self, kind: Any, rest: Sequence[Any]) -> Any:
        """The same of values of further kinds."""
        raise BadRecord(f"there are no values of the kind {kind!r}")


def checked(value: Any, kind: type | tuple[type, ...]) -> Any:
    """The value, if it is of this type. Raises BadRecord."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if type(value) not in kinds:
        raise BadRecord(f"{type(value).__name__} where {' or '.join(each.__name__ for each in kinds)} belongs")
    return value


def index(value: Any, size: int) -> int:
    """The number, if it is one below `size`. Raises BadRecord."""
    if not 0 <= checked(value, int) < size:
        raise BadRecord(f"number {value} of {size}")
    return int(value)
