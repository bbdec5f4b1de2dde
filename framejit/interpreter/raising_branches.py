"""Jumps by the truth of a value; where one branch surely raises, the truth of data is asserted by the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.bytecode.natural_loops import natural_loops, successors
from framejit.values.base import Value
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.asserted_truth import assert_truth, can_be_asserted

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame

_LONGEST = 100
_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "RERAISE")
_JUMPS = ("POP_JUMP_IF", "POP_JUMP_FORWARD_IF", "POP_JUMP_BACKWARD_IF")


def asserted_truth(frame: Frame, value: Value, index: int) -> bool | None:
    """The truth of what the jump at `index` goes by, where the other one surely raises: the graph asserts it. None
    where both branches go on, and in a loop that nothing else ends."""
    asked = value.tensor if isinstance(value, ReadNumberValue) else value
    if not can_be_asserted(asked):
        return None
    expected = _without_raising(frame, index)
    if expected is not None and _only_raising_ends(frame, index):
        return None
    if expected is not None:
        assert_truth(frame, asked, expected)
    return expected


def _without_raising(frame: Frame, index: int) -> bool | None:
    """The truth for which the program goes on, where it surely raises for the other; None where both branches go on, or
    no jump stands there."""
    jump = frame.instructions[index]
    if jump.target is None or not jump.name.startswith(_JUMPS) or not jump.name.endswith(("TRUE", "FALSE")):
        return None
    by_jump, by_falling = surely_raises(frame, jump.target), surely_raises(frame, index + 1)
    return None if by_jump == by_falling else jump.name.endswith("TRUE") == by_falling


def _only_raising_ends(frame: Frame, index: int) -> bool:
    """Whether an instruction is in a loop that ends in no other way than by raising."""
    return any(
        index in loop and all(
            place in loop or surely_raises(frame, place)
            for inside in loop for place in successors(frame.instructions[inside])
        )
        for loop in natural_loops(frame.instructions).values()
    )


def surely_raises(frame: Frame, index: int) -> bool:
    """Whether the code from here on goes straight to a raise."""
    for ins in frame.instructions[index : index + _LONGEST]:
        if ins.name == "RAISE_VARARGS":
            return True
        if ins.target is not None or ins.name in _LEAVES:
            return False
    return False
