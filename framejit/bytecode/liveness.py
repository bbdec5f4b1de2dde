"""Which variables may still be read, and which may hold something: dataflow over instructions (Aho et al., Compilers,
9.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction

RETURNS = frozenset(("RETURN_VALUE", "RETURN_CONST"))
NO_FALL_THROUGH = RETURNS | {
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
UNBINDS = {"DELETE_FAST", "LOAD_FAST_AND_CLEAR"}


def reads_and_writes(name: str, arg: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Variables an instruction reads, then those it overwrites.  A cell counts as read when written through."""
    return ((arg,) if name in _READS else ()), ((arg,) if name in _WRITES else ())


def live_before(instructions: list[Instruction], first_argument: str | None) -> list[frozenset[str]]:
    """For each instruction, the names that may be read from it on, exception handlers included.

    `super()` without arguments reads the function's first argument and its `__class__` cell.
    """
    n = len(instructions)
    effects = []
    for ins in instructions:
        reads, writes = reads_and_writes(ins.name, ins.arg)
        if ins.name == "LOAD_GLOBAL" and ins.arg[1] == "super" and first_argument is not None:
            reads = (*reads, "__class__", first_argument)
        effects.append((frozenset(reads), frozenset(writes)))
    successors = [_successors(ins, n) for ins in instructions]
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


def _successors(ins: Instruction, n: int) -> list[int]:
    after = [] if ins.name in NO_FALL_THROUGH else [ins.index + 1]
    if ins.target is not None:
        after.append(ins.target)
    return [s for s in after if s < n]


def bound_before(instructions: list[Instruction], arguments: tuple[str, ...]) -> list[frozenset[str]]:
    """For each instruction, the local variables that hold something on some way there."""
    n = len(instructions)
    names = list(dict.fromkeys((*arguments, *(ins.arg for ins in instructions if ins.name == "STORE_FAST"))))
    bit = {name: 1 << i for i, name in enumerate(names)}
    bound: list[int] = [0] * n  # sets of names as bits
    reached = [False] * n
    bound[0], reached[0] = sum(bit[name] for name in arguments), True
    todo = [0]
    while todo:
        ins = instructions[todo.pop()]
        before = after = bound[ins.index]
        if ins.name == "STORE_FAST":
            after |= bit[ins.arg]
        elif ins.name in UNBINDS:
            after &= ~bit.get(ins.arg, 0)
        ways = [(s, after) for s in _successors(ins, n)]
        if ins.handler is not None:
            ways.append((ins.handler.target, before))
        for successor, state in ways:
            joined = bound[successor] | state
            if joined != bound[successor] or not reached[successor]:
                bound[successor], reached[successor] = joined, True
                todo.append(successor)
    sets: dict[int, frozenset[str]] = {}
    for state in bound:
        if state not in sets:
            sets[state] = frozenset(name for name in names if state & bit[name])
    return [sets[state] for state in bound]
