"""Moving values on the stack."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING

from framejit.interpreter.opcodes import opcode
from framejit.values.signals import Unsupported

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


@opcode("POP_TOP")
def pop_top(tx: Frame, ins: Instruction) -> None:
    value = tx.pop_unseen()
    if isinstance(getattr(value, "obj", None), types.GeneratorType) and value.source is not None:
        raise Unsupported("letting go of a generator, which may go on with its finally blocks", "FJ150")


@opcode("COPY")
def copy(tx: Frame, ins: Instruction) -> None:
    tx.stack.append(tx.stack[-ins.arg])


@opcode("SWAP")
def swap(tx: Frame, ins: Instruction) -> None:
    tx.stack[-1], tx.stack[-ins.arg] = tx.stack[-ins.arg], tx.stack[-1]


@opcode("PUSH_NULL")
def push_null(tx: Frame, ins: Instruction) -> None:
    tx.push_null()


@opcode("END_FOR", since=(3, 12))
def end_for(tx: Frame, ins: Instruction) -> None:
    # Only reached from an exhausted FOR_ITER, which skips it (see iteration.for_iter).
    raise AssertionError("END_FOR is skipped by FOR_ITER")
