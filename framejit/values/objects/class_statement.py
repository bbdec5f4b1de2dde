"""Class statements: a class that the captured code defines and never looks at need not exist."""
from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from framejit.bytecode.spellings import SAME_AS
from framejit.guards.sources import static_lookup
from framejit.guards.type_flags import BASE_TYPE
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.handlers import handles
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.functions.function_values import NestedFunctionValue

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame

HINT = "define the class at module level"
_DECORATORS = ("staticmethod", "classmethod", "property")
_PLAIN = frozenset(
    """
    RESUME NOP EXTENDED_ARG CACHE LOAD_CONST MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE LOAD_CLOSURE BUILD_TUPLE PRECALL
    CALL PUSH_NULL COPY STORE_NAME COPY_FREE_VARS MAKE_CELL STORE_DEREF LOAD_FAST STORE_FAST LOAD_LOCALS RETURN_VALUE
    RETURN_CONST
""".split()
)
# names whose values `type` has something to say to
_RULED = ("__slots__", "__qualname__", "__classcell__", "__classdictcell__")
_CELLS = ["__classdictcell__", "__classcell__"]
_LOADS_CELL = ("LOAD_CLOSURE", "LOAD_FAST", "LOAD_FAST_BORROW")  # which in the body of a class only the compiler does
_METACLASSES = (type, torch.autograd.function.FunctionMeta)


@handles(builtins.__build_class__)
def _class_statement(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    body = args[0] if args else None
    if (
        kwargs
        or len(args) > 3
        or not isinstance(body, NestedFunctionValue)
        or not _only_defines(frame, body.code)
        or not all(map(_is_inert_base, args[2:]))
    ):
        raise Unsupported("a class statement", "FJ160", HINT)
    return UnbuiltClassValue(frame.capture, frame.seq, args)


def _only_defines(frame: Frame, body: CodeType) -> bool:
    """Whether the class's body defines methods and constants and does nothing else that anybody could notice."""
    if any(name in frame.globals for name in _DECORATORS):
        return False
    instructions = list(dis.get_instructions(body))
    names = (ins.argval in ("__name__", *_DECORATORS) for ins in instructions if ins.opname == "LOAD_NAME")
    ruled = [ins.argval for ins in instructions if ins.opname == "STORE_NAME" and ins.argval in _RULED]
    moves = [ins for ins in instructions if ins.opname != "COPY"]
    cells = [ins.argval for load, ins in zip(moves, moves[1:]) if ins.argval in _CELLS and load.opname in _LOADS_CELL]
    return ruled == ["__qualname__", *cells] and all(names) and all(_is_plain(ins.opname) for ins in instructions)


def _is_plain(name: str) -> bool:
    return name == "LOAD_NAME" or SAME_AS.get(name, name) in _PLAIN


def _is_inert_base(base: Value) -> bool:
    """Whether deriving from a class, and no other, runs no code of the user's and is allowed."""
    if not isinstance(base, ClassValue) or type(base.cls) not in _METACLASSES or not base.cls.__flags__ & BASE_TYPE:
        return False
    return static_lookup(base.cls, "__init_subclass__") is static_lookup(object, "__init_subclass__")


class UnbuiltClassValue(Value):
    """The class. Whatever asks for it has the graph break at its statement, where Python makes it."""

    mutable = True

    def __init__(self, capture: Capture, made_at: int, parts: list[Value]) -> None:
        self.capture, self.made_at, self.parts = capture, made_at, parts

    def _needed(self) -> Any:
        self.capture.break_at(self.made_at, Unsupported("a class statement", "FJ160", HINT))

    def describe(self) -> str:
        name = self.parts[1] if len(self.parts) > 1 else None
        return f"class {name.value}" if isinstance(name, ConstantValue) else "a class"

    def children(self) -> Iterator[Value]:
        return iter(self.parts)

    def python_type(self) -> type:
        return self._needed()

    def constant(self) -> Any:
        return self._needed()

    def getattr(self, frame: Frame, name: str) -> Value:
        return self._needed()

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        self._needed()

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self._needed()

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self._needed()

    def truth(self, frame: Frame) -> bool:
        return self._needed()

    def iterate(self, frame: Frame) -> Iterator[Value]:
        return self._needed()

    def reconstruct(self, cg: Codegen) -> None:
        self._needed()
