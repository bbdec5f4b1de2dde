"""Which variables may still be read: backward dataflow over instructions (Aho et al., Compilers, 9.2.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction

NO_FALL_THROUGH = {
    "RETURN_VALUE",
    "RETURN_CONST",
    "RAISE_VARARGS",
    "RERAISE",
    "JUMP_FORWARD",
    "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT",
    "INTERPRETER_EXIT",
}

# LOAD_CLOSURE and MAKE_CELL keep the cell alive; DELETE needs it bound.
_READS = {
    "LOAD_FAST",
    "LOAD_FAST_CHECK",
    "LOAD_FAST_AND_CLEAR",
    "LOAD_DEREF",
    "LOAD_CLASSDEREF",
    "LOAD_FROM_DICT_OR_DEREF",
    "LOAD_CLOSURE",
    "DELETE_FAST",
    "DELETE_DEREF",
    "STORE_DEREF",
}
_WRITES = {"STORE_FAST", "LOAD_FAST_AND_CLEAR"}


def reads_and_writes(name: str, arg: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Variables an instruction reads, then those it overwrites.  A cell counts as read when written through."""
    return ((arg,) if name in _READS else ()), ((arg,) if name in _WRITES else ())


def live_before(instructions: list[Instruction], first_argument: str | None) -> list[frozenset[str]]:
    """For each instruction, the names that may be read from it on, exception handlers included.

    `super()` without arguments reads the function's first argument and its `__class__` cell.
    """
    n = len(instructions)
    effects = []
    successors: list[list[int]] = []
    for i, ins in enumerate(instructions):
        reads, writes = reads_and_writes(ins.name, ins.arg)
        if ins.name == "LOAD_GLOBAL" and ins.arg[1] == "super" and first_argument is not None:
            reads = (*reads, "__class__", first_argument)
        effects.append((frozenset(reads), frozenset(writes)))
        after = [] if ins.name in NO_FALL_THROUGH else [i + 1]
        if ins.target is not None:
            after.append(ins.target)
        successors.append([s for s in after if s < n])
    live: list[frozenset[str]] = [frozenset()] * n
    changed = True
    while changed:
        changed = False
        for i in range(n - 1, -1, -1):
            out: frozenset[str] = frozenset().union(*(live[s] for s in successors[i]))
            read, written = effects[i]
            new = read | (out - written)
            handler = instructions[i].handler
            if handler is not None:  # the handler sees the state before any write of this instruction
                new |= live[handler.target]
            if new != live[i]:
                live[i], changed = new, True
    return live
