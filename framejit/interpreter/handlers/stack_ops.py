"""Moving values on the stack."""
from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.interpreter.dropped_generators import check_end
from framejit.interpreter.opcodes import opcode

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


@opcode("POP_TOP")
def pop_top(frame: Frame, ins: Instruction) -> None:
    check_end(frame, frame.pop_unseen(), 0)


@opcode("COPY")
def copy(frame: Frame, ins: Instruction) -> None:
    frame.stack.append(frame.stack[-ins.arg])


@opcode("SWAP")
def swap(frame: Frame, ins: Instruction) -> None:
    frame.stack[-1], frame.stack[-ins.arg] = frame.stack[-ins.arg], frame.stack[-1]


@opcode("PUSH_NULL")
def push_null(frame: Frame, ins: Instruction) -> None:
    frame.push_null()


@opcode("END_FOR", since=(3, 12))
def end_for(frame: Frame, ins: Instruction) -> None:
    # Only reached from an exhausted FOR_ITER, which skips it (see iteration.for_iter).
    raise AssertionError("END_FOR is skipped by FOR_ITER")
