"""Calls.  A call that ends in a Python function is inlined so that the graph may break inside it."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING

from framejit.guards.sources import static_lookup
from framejit.interpreter.handlers.containers import can_be_iterated, refuse_no_mapping
from framejit.interpreter.handlers.exceptions import stop_iteration_error
from framejit.interpreter.handlers.variables import NULL_FIRST
from framejit.interpreter.opcodes import VERSION, opcode
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.builtins.partial import PartialValue
from framejit.values.containers.length_hints import gathered_in_tuple
from framejit.values.containers.mapping import pairs
from framejit.values.containers.tuples import TupleValue
from framejit.values.objects.exception_values import NULL
from framejit.values.objects.functions.function_values import CallableValue, FunctionValue, MethodValue, bind
from framejit.values.objects.module import ModuleValue
from framejit.values.objects.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


@opcode("PRECALL", until=(3, 11))
def precall(frame: Frame, ins: Instruction) -> None:
    """Only makes room; CALL does the work."""


@opcode("KW_NAMES", until=(3, 12))
def kw_names(frame: Frame, ins: Instruction) -> None:
    frame.keyword_names = tuple(ins.arg)


@opcode("CALL")
def call(frame: Frame, ins: Instruction) -> None:
    names, frame.keyword_names = frame.keyword_names, ()
    args = frame.pop_n(ins.arg)
    _call(frame, args, names)


@opcode("CALL_KW", since=(3, 13))
def call_kw(frame: Frame, ins: Instruction) -> None:
    names = frame.pop().constant()
    args = frame.pop_n(ins.arg)
    _call(frame, args, names)


def _call(frame: Frame, args: list[Value], names: tuple[str, ...]) -> None:
    second, first = frame.pop_unseen(), frame.pop_unseen()
    if NULL_FIRST:  # [NULL, callable] or [method, self]
        fn, owner = (second, None) if first is NULL else (first, second)
    else:  # [callable, NULL or self]
        fn, owner = first, (None if second is NULL else second)
    if owner is not None:
        args = [owner, *args]
    n = len(args) - len(names)
    frame.push(call_function(frame, fn, args[:n], dict(zip(names, args[n:]))))


MAPPING_OR_NULL = VERSION >= (3, 14)  # CALL_FUNCTION_EX always has a slot for keyword arguments


@opcode("CALL_FUNCTION_EX")
def call_function_ex(frame: Frame, ins: Instruction) -> None:
    kwargs: dict[str, Value] = {}
    mapping: Value = NULL
    if MAPPING_OR_NULL or int(ins.arg) & 1:
        mapping = frame.pop_unseen()
    if mapping is not NULL:
        mapping = realize(frame, mapping)
        refuse_no_mapping(mapping)
        kwargs = pairs(frame, mapping)
        if not all(isinstance(key, str) for key in kwargs):
            raise frame.raised(TypeError, "keywords must be strings")
    given = frame.pop()
    if not can_be_iterated(given):
        raise Unsupported(f"{given.describe()} as a sequence of arguments")
    args = list(gathered_in_tuple(frame, given))
    if NULL_FIRST:
        fn = frame.pop()
        frame.pop()
    else:
        frame.pop()
        fn = frame.pop()
    frame.push(call_function(frame, fn, args, kwargs))


def call_function(frame: Frame, fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call, with the result of an inlined Python function being exactly the result of this instruction."""
    fn = realize(frame, fn)
    if isinstance(fn, ModuleValue) and not frame.hidden:
        return frame.capture.layers.call(frame, fn, args, kwargs, _called)
    return _called(frame, fn, args, kwargs)


def _called(frame: Frame, fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    for _ in range(32):
        if isinstance(fn, MethodValue):
            args = [fn.owner, *args]
            fn = realize(frame, fn.function)
        elif isinstance(fn, PartialValue):
            args, kwargs = fn.arguments(args, kwargs)
            fn = realize(frame, fn.function)
        elif isinstance(fn, ModuleValue) and fn.forwards_directly(frame):
            fn = realize(frame, fn.getattr(frame, "forward"))
        elif isinstance(fn, ObjectValue) and isinstance(static_lookup(fn.cls, "__call__", None), types.FunctionType):
            fn = realize(frame, fn.special(frame, "__call__"))  # type: ignore[arg-type]
        else:
            break
    if isinstance(fn, CallableValue):
        if isinstance(fn, FunctionValue):
            made = fn.handled(frame, args, kwargs)
            if made is not None:
                return made
        return frame.inline(fn, bind(frame, fn, args, kwargs), breakable=True)
    return fn.call(frame, args, kwargs)


@opcode("CALL_INTRINSIC_1", since=(3, 12))
def call_intrinsic_1(frame: Frame, ins: Instruction) -> None:
    match ins.arg:
        case "INTRINSIC_LIST_TO_TUPLE":
            frame.push(TupleValue(list(frame.iterate(frame.pop()))))
        case "INTRINSIC_UNARY_POSITIVE":
            frame.push(frame.unary("+", frame.pop()))
        case "INTRINSIC_STOPITERATION_ERROR":
            stop_iteration_error(frame)
        case _:
            raise Unsupported(f"type parameters or the like, made here ({ins.arg})", "FJ160")
