"""Moving values on the stack."""
from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.interpreter.dropped_generators import check_end
from framejit.interpreter.opcodes import opcode

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


@opcode("POP_TOP")
def pop_top(tx: Frame, ins: Instruction) -> None:
    check_end(tx, tx.pop_unseen(), 0)


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
