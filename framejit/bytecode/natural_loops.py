"""The loops of a function's code, as its jumps make them."""

from __future__ import annotations

from collections.abc import Sequence

from framejit.bytecode.decode import Instruction
from framejit.bytecode.for_iterators import CLEARS_AWAY
from framejit.bytecode.liveness import NO_FALL_THROUGH


def natural_loops(instructions: Sequence[Instruction]) -> dict[int, set[int]]:
    """By head, the instructions that lead back to it without passing it."""
    heads: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    for ins in instructions:
        for place in successors(ins):
            before.setdefault(place, []).append(ins.index)
        if ins.target is not None and ins.target <= ins.index:
            heads.setdefault(ins.target, []).append(ins.index)
    loops: dict[int, set[int]] = {}
    for head, waiting in heads.items():
        inside = {head}
        while waiting:
            place = waiting.pop()
            if place not in inside:
                inside.add(place)
                waiting += before.get(place, ())
        loops[head] = inside
    return loops


def successors(ins: Instruction) -> list[int]:
    """Where the code may go on behind an instruction that raises nothing."""
    if ins.name == "FOR_ITER":
        assert ins.target is not None
        return [ins.index + 1, ins.target + len(CLEARS_AWAY)]
    after = [] if ins.name in NO_FALL_THROUGH else [ins.index + 1]
    return after if ins.target is None else [*after, ins.target]
