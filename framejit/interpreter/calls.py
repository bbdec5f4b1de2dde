"""Calls.  A call that ends in a Python function is inlined so that the graph may break inside it."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING

from framejit.guards.sources import static_lookup
from framejit.interpreter.containers import can_be_iterated, refuse_no_mapping
from framejit.interpreter.exceptions import stop_iteration_error
from framejit.interpreter.opcodes import VERSION, opcode
from framejit.interpreter.variables import NULL_FIRST
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.builtins.partial import PartialValue
from framejit.values.containers.length_hints import gathered_in_tuple
from framejit.values.containers.mapping import pairs
from framejit.values.containers.sequence import TupleValue
from framejit.values.objects.exceptions import NULL
from framejit.values.objects.functions import CallableValue, FunctionValue, MethodValue, bind
from framejit.values.objects.module import ModuleValue
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.torch_functions import call_known_function

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


@opcode("PRECALL", until=(3, 11))
def precall(tx: Frame, ins: Instruction) -> None:
    """Only makes room; CALL does the work."""


@opcode("KW_NAMES", until=(3, 12))
def kw_names(tx: Frame, ins: Instruction) -> None:
    tx.keyword_names = tuple(ins.arg)


@opcode("CALL")
def call(tx: Frame, ins: Instruction) -> None:
    names, tx.keyword_names = tx.keyword_names, ()
    args = tx.pop_n(ins.arg)
    _call(tx, args, names)


@opcode("CALL_KW", since=(3, 13))
def call_kw(tx: Frame, ins: Instruction) -> None:
    names = tx.pop().constant()
    args = tx.pop_n(ins.arg)
    _call(tx, args, names)


def _call(tx: Frame, args: list[Value], names: tuple[str, ...]) -> None:
    second, first = tx.pop_unseen(), tx.pop_unseen()
    if NULL_FIRST:  # [NULL, callable] or [method, self]
        fn, owner = (second, None) if first is NULL else (first, second)
    else:  # [callable, NULL or self]
        fn, owner = first, (None if second is NULL else second)
    if owner is not None:
        args = [owner, *args]
    n = len(args) - len(names)
    tx.push(call_function(tx, fn, args[:n], dict(zip(names, args[n:]))))


MAPPING_OR_NULL = VERSION >= (3, 14)  # CALL_FUNCTION_EX always has a slot for keyword arguments


@opcode("CALL_FUNCTION_EX")
def call_function_ex(tx: Frame, ins: Instruction) -> None:
    kwargs: dict[str, Value] = {}
    mapping: Value = NULL
    if MAPPING_OR_NULL or int(ins.arg) & 1:
        mapping = tx.pop_unseen()
    if mapping is not NULL:
        mapping = realize(tx, mapping)
        refuse_no_mapping(mapping)
        kwargs = pairs(tx, mapping)
        if not all(isinstance(key, str) for key in kwargs):
            raise tx.raised(TypeError, "keywords must be strings")
    given = tx.pop()
    if not can_be_iterated(given):
        raise Unsupported(f"{given.describe()} as a sequence of arguments")
    args = list(gathered_in_tuple(tx, given))
    if NULL_FIRST:
        fn = tx.pop()
        tx.pop()
    else:
        tx.pop()
        fn = tx.pop()
    tx.push(call_function(tx, fn, args, kwargs))


def call_function(tx: Frame, fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call, with the result of an inlined Python function being exactly the result of this instruction."""
    fn = realize(tx, fn)
    for _ in range(32):
        if isinstance(fn, MethodValue):
            args = [fn.owner, *args]
            fn = realize(tx, fn.function)
        elif isinstance(fn, PartialValue):
            args, kwargs = fn.arguments(args, kwargs)
            fn = realize(tx, fn.function)
        elif isinstance(fn, ModuleValue) and fn.forwards_directly(tx):
            fn = realize(tx, fn.getattr(tx, "forward"))
        elif isinstance(fn, ObjectValue) and isinstance(static_lookup(fn.cls, "__call__", None), types.FunctionType):
            fn = realize(tx, fn.special(tx, "__call__"))  # type: ignore[arg-type]
        else:
            break
    if isinstance(fn, CallableValue):
        if isinstance(fn, FunctionValue):
            known = call_known_function(tx, fn.fn, args, kwargs)
            if known is not None:
                return known
        return tx.inline(fn, bind(tx, fn, args, kwargs), breakable=True)
    return fn.call(tx, args, kwargs)


@opcode("CALL_INTRINSIC_1", since=(3, 12))
def call_intrinsic_1(tx: Frame, ins: Instruction) -> None:
    match ins.arg:
        case "INTRINSIC_LIST_TO_TUPLE":
            tx.push(TupleValue(list(tx.iterate(tx.pop()))))
        case "INTRINSIC_UNARY_POSITIVE":
            tx.push(tx.unary("+", tx.pop()))
        case "INTRINSIC_STOPITERATION_ERROR":
            stop_iteration_error(tx)
        case _:
            raise Unsupported(f"type parameters or the like, made here ({ins.arg})", "FJ160")
