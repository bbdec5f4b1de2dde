"""`hashlib.sha256(data)` of bytes that are known, and its digest. One that is given more data is the program's to
make."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from framejit.signals import NotConstant
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.folding import plain
from framejit.values.handlers import HANDLERS

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_FUNCTIONS: Final = (
    hashlib.md5, hashlib.sha1, hashlib.sha224, hashlib.sha256, hashlib.sha384, hashlib.sha512,
    hashlib.sha3_224, hashlib.sha3_256, hashlib.sha3_384, hashlib.sha3_512,
)
_METHODS: Final = ("digest", "hexdigest")
_ATTRIBUTES: Final = ("name", "digest_size", "block_size")


class HashValue(Value):
    """The hash of `data`, by one of these functions."""

    built_once = True

    def __init__(self, function: Callable[..., Any], data: bytes) -> None:
        self.function, self.data = function, data
        self.made = function(data)

    def python_type(self) -> type:
        return type(self.made)

    def describe(self) -> str:
        return f"the {self.made.name} of bytes"

    def getattr(self, frame: Frame, name: str) -> Value:
        return ConstantValue(getattr(self.made, name)) if name in _ATTRIBUTES else super().getattr(frame, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in _METHODS and not args and not kwargs:
            return ConstantValue(getattr(self.made, name)())
        return super().call_method(frame, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(self.function, lambda: cg.load(ConstantValue(self.data)))


def _hash(function: Callable[..., Any], frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if len(args) > 1 or kwargs:
        return None
    try:
        data = plain(frame, args[0]) if args else b""
    except NotConstant:
        return None
    return HashValue(function, data) if type(data) is bytes else None


HANDLERS.update({function: partial(_hash, function) for function in _FUNCTIONS})
