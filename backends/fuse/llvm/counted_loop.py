"""A loop that counts."""
from __future__ import annotations

from collections.abc import Callable

from framejit.backends.fuse.llvm.assembler import Assembler, Block, Value, integer

Body = Callable[[Assembler, Value, list[Value]], list[Value]]
"""Writes a turn: given where to, the number that is counted and the registers that are carried around, gives what is
carried on."""


def counted_loop(
    blocks: list[Block], parent: Assembler, start: Value, stop: Value, step: int, state: list[Value], body: Body, *,
    may_be_empty: bool = False,
) -> list[Value]:
    """A loop from `start` to below `stop`, with registers carried around it; their values after it. `parent` goes on
    behind it."""
    header = Block(parent.module.fresh("loop"))
    blocks.append(header)
    asm = Assembler(parent.module, header)
    turn = Value(f"%i.{header.label}", "i64")
    carried = [Value(f"%{parent.module.fresh('c')}", value.type, value.lanes) for value in state]
    after = body(asm, turn, carried)
    following = asm.binary("add nuw nsw", turn, integer(step))
    again = asm.compare("slt", following, stop)
    leave = Block(parent.module.fresh("after"))
    blocks.append(leave)
    asm.do(f"br {again}, label %{header.label}, label %{leave.label}")
    before = parent.block
    if may_be_empty:
        some = parent.compare("slt", start, stop)
        parent.do(f"br {some}, label %{header.label}, label %{leave.label}")
    else:
        parent.do(f"br label %{header.label}")
    for register, first, last in zip([turn, *carried], [start, *state], [following, *after]):
        header.phis.append(
            f"{register.text} = phi {register.full_type} [ {first.text}, %{before.label} ], [ {last.text}, "
            f"%{asm.block.label} ]"
        )
    parent.block = leave
    if not may_be_empty:
        return after
    assert not state, "nothing is carried around a loop that may be empty"
    return []
