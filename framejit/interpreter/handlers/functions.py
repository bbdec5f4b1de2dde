"""Making functions."""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from framejit.interpreter.opcodes import opcode
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.containers.mapping import DictValue
from framejit.values.objects.functions.function_values import CellValue, NestedFunctionValue

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame

# CPython: Python/compile.c, compiler_make_closure
DEFAULTS, KEYWORD_DEFAULTS, ANNOTATIONS, CLOSURE, ANNOTATE = 1, 2, 4, 8, 16


@opcode("MAKE_FUNCTION")
def make_function(frame: Frame, ins: Instruction) -> None:
    code = frame.pop().constant()
    flags = 0 if sys.version_info >= (3, 13) else int(ins.arg)
    parts: dict[int, Value] = {
        flag: frame.pop() for flag in (CLOSURE, ANNOTATIONS, KEYWORD_DEFAULTS, DEFAULTS) if flags & flag
    }
    fn = NestedFunctionValue(code, frame.globals, frame.globals_source(), None, None, [], None)
    for flag, part in parts.items():
        _set_part(frame, fn, flag, part)
    frame.push(fn)


def _set_part(frame: Frame, fn: NestedFunctionValue, flag: int, part: Any) -> None:
    if flag == CLOSURE:
        cells = list(frame.iterate(part))
        if not all(isinstance(c, CellValue) for c in cells):
            raise Unsupported("a closure that is not made of cells")
        fn.cells = cells  # type: ignore[assignment]
    elif flag == KEYWORD_DEFAULTS:
        assert isinstance(part, DictValue)
        fn.keyword = part
    elif flag == DEFAULTS:
        fn.positional = part
    elif flag == ANNOTATE:
        fn.annotate = part
    else:
        flat = list(frame.iterate(part))  # names and annotations in turn
        fn.annotations = DictValue(dict(zip(frame.constants(flat[::2]), flat[1::2])))


@opcode("SET_FUNCTION_ATTRIBUTE", since=(3, 13))
def set_function_attribute(frame: Frame, ins: Instruction) -> None:
    fn, part = frame.pop(), frame.pop()
    assert isinstance(fn, NestedFunctionValue)
    _set_part(frame, fn, int(ins.arg), part)
    frame.push(fn)
