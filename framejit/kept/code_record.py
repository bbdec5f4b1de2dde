"""Replacement code as plain data: what marshal writes, with what it refers to beside it."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from framejit import _native as native
from framejit.environment.torch_compile import kept_from_dynamo
from framejit.kept.not_kept import DoesNotFit, NotKept


def written_code(code: CodeType, slots: Sequence[native.Slot]) -> list[Any]:
    """The record of a code object that calls these slots. Raises NotKept."""
    numbers = {id(slot): number for number, slot in enumerate(slots)}
    constants: list[Any] = []
    others: list[list[Any]] = []
    for place, constant in enumerate(code.co_consts):
        if id(constant) in numbers:
            others.append([place, "slot", numbers[id(constant)]])
        elif not _is_plain(constant):
            name = getattr(constant, "__name__", "")
            if getattr(native, name, None) is not constant:
                raise NotKept(f"replacement code refers to an object of type {type(constant).__name__}")
            others.append([place, "native", name])
        else:
            constants.append(constant)
            continue
        constants.append(None)
    return [marshal.dumps(code.replace(co_consts=tuple(constants))), others]


def _is_plain(constant: Any) -> bool:
    """Whether a constant is one that a compiler makes, code of functions inside of the program's among them."""
    from framejit.bytecode.emitter import is_plain_constant  # processes that find entries need none

    if type(constant) in (tuple, frozenset):
        return all(map(_is_plain, constant))
    if type(constant) is slice:  # compilers make them from CPython 3.14 on, whose marshal knows them
        return marshal.version >= 5 and all(map(_is_plain, (constant.start, constant.stop, constant.step)))
    return all(map(_is_plain, constant.co_consts)) if type(constant) is CodeType else is_plain_constant(constant)


def read_code(record: list[Any], slots: Sequence[native.Slot]) -> CodeType:
    """The code object, calling these slots. Raises whatever data that is none leads to."""
    code = marshal.loads(record[0])
    if type(code) is not CodeType:
        raise DoesNotFit("what should be code is none")
    constants = [*code.co_consts]
    for place, kind, which in record[1]:
        constants[place] = slots[which] if kind == "slot" else _native_function(which)
    return kept_from_dynamo(code.replace(co_consts=tuple(constants)))


def _native_function(name: str) -> Callable[..., Any]:
    found = getattr(native, name, None)
    if not callable(found):
        raise DoesNotFit(f"the core has no function {name}")
    made: Callable[..., Any] = found
    return made
