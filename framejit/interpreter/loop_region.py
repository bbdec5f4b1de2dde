"""The instructions of a loop that a jump goes on with or leaves, found in the code as it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from framejit.bytecode.for_iterators import ITERATOR_SLOTS
from framejit.bytecode.liveness import NO_FALL_THROUGH, RETURNS
from framejit.bytecode.natural_loops import natural_loops, successors
from framejit.interpreter.raising_branches import surely_raises

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame

_INSIDE: Final = frozenset("""
    NOP RESUME CACHE EXTENDED_ARG NOT_TAKEN PUSH_NULL PRECALL KW_NAMES CALL CALL_KW LOAD_FAST LOAD_FAST_CHECK LOAD_CONST
    LOAD_GLOBAL LOAD_DEREF LOAD_ATTR LOAD_METHOD STORE_FAST POP_TOP COPY SWAP BINARY_OP BINARY_SUBSCR BINARY_SLICE
    COMPARE_OP IS_OP UNARY_NEGATIVE UNARY_INVERT UNARY_NOT TO_BOOL BUILD_TUPLE BUILD_LIST BUILD_SLICE UNPACK_SEQUENCE
    GET_ITER FOR_ITER END_FOR POP_ITER JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT
    POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE
    POP_JUMP_BACKWARD_IF_FALSE JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP
""".split())
_IDLE: Final = ("NOP", "CACHE", "EXTENDED_ARG", "NOT_TAKEN")
_LONGEST: Final = 400
"""How many instructions a loop may have."""
_LONGEST_END: Final = 12
"""How many instructions are looked at that end a function behind a loop: the compiler gives a short end to each way
out, which makes one place several."""


class Exit(NamedTuple):
    """Where a way out of a loop leads to."""

    place: int
    popped: int
    """How many values of the stack are taken away until there."""
    key: Any
    """Equal for places with the same code."""


class Region(NamedTuple):
    """A loop, with the instructions that lead into it from the jump that was asked about."""

    inside: frozenset[int]
    counted: int | None
    """The FOR_ITER that steps the loop's own iterator, which lies on the stack; None for a `while`."""
    exit: Exit
    """Where all ways out lead to."""
    asserted: frozenset[int]
    """The conditional jumps of which a way out surely raises: the graph asserts that it is not taken."""

    def leads_out(self, ins: Instruction) -> bool | None:
        """For which truth a conditional jump leaves the loop; None if it stays, whatever the truth."""
        if not is_conditional(ins) or ins.target is None or ins.index in self.asserted:
            return None
        by_jump, by_falling = ins.target not in self.inside, ins.index + 1 not in self.inside
        if by_jump == by_falling:
            return None
        return by_jump == ins.name.endswith("TRUE")


def is_conditional(ins: Instruction) -> bool:
    """Whether a jump goes by the truth of the value that it takes from the stack."""
    return "POP_JUMP" in ins.name and ins.name.endswith(("TRUE", "FALSE"))


def loop_region(frame: Frame, index: int) -> Region | None:
    """The innermost loop that the jump at `index` goes on with or leaves, if its code is of the kind that a graph may
    repeat, and all ways out of it lead to one place."""
    jump = frame.instructions[index]
    if jump.target is None or not is_conditional(jump):
        return None
    loops = natural_loops(frame.instructions)
    for head, loop in sorted(loops.items(), key=lambda found: len(found[1])):
        way_in = _way_in(frame, loop, head, index)
        if way_in is None or any(place in other for place in way_in for other in loops.values() if index not in other):
            continue
        inside = loop.union(way_in)
        if len(inside) > _LONGEST:
            continue
        if any(frame.instructions[place].name not in _INSIDE for place in inside):
            continue
        counted = head if frame.instructions[head].name == "FOR_ITER" else None
        if counted is not None and index not in loop:
            continue  # its iterator is made on the way
        exit = _only_exit(frame, inside, index, counted)
        if exit is not None:
            region = Region(frozenset(inside), counted, exit, _asserted(frame, inside))
            return None if region.leads_out(jump) is None else region
    return None


def _way_in(frame: Frame, loop: set[int], head: int, index: int) -> set[int] | None:
    """The instructions between the jump and the head of a loop that lead there; None if the jump has nothing to do with
    it."""
    jump = frame.instructions[index]
    if index in loop:
        return set() if sum(place in loop for place in successors(jump)) == 1 else None
    if head <= index:
        return None
    inside = {head}
    for place in range(head - 1, index, -1):
        if not inside.isdisjoint(successors(frame.instructions[place])):
            inside.add(place)
    return None if inside.isdisjoint(successors(jump)) else inside - {head}


def _only_exit(frame: Frame, inside: set[int], index: int, counted: int | None) -> Exit | None:
    """Where all ways lead to that leave the instructions `inside`, and the jump at `index`; None if there are several
    such places. Ways that surely raise are none."""
    found, asserted = dict[Any, Exit](), _asserted(frame, inside)
    for place in (*sorted(inside), index):
        ins = frame.instructions[place]
        if ins.name in RETURNS:
            return None
        for successor in successors(ins):
            if successor not in inside and place not in asserted:
                is_end = ins.index == counted
                exit = _exit(frame, successor, ITERATOR_SLOTS if is_end else 0)
                found.setdefault((exit.popped, exit.key), exit)
    if len(found) != 1:
        return None
    [exit] = found.values()
    return exit if exit.popped == (0 if counted is None else ITERATOR_SLOTS) else None


def _asserted(frame: Frame, inside: set[int]) -> frozenset[int]:
    return frozenset(
        place for place in inside if is_conditional(frame.instructions[place]) and any(
            successor not in inside and surely_raises(frame, successor)
            for successor in successors(frame.instructions[place])
        )
    )


def first_done(frame: Frame, place: int) -> int:
    """The first instruction from a place on that does anything but jump."""
    for _ in range(_LONGEST):
        ins = frame.instructions[place]
        if ins.name in _IDLE:
            place += 1
        elif ins.name in ("JUMP_FORWARD", "JUMP_BACKWARD"):
            assert ins.target is not None
            place = ins.target
        else:
            break
    return place


def _exit(frame: Frame, place: int, popped: int) -> Exit:
    place = first_done(frame, place)
    while popped < ITERATOR_SLOTS and (name := frame.instructions[place].name) in ("POP_TOP", "POP_ITER"):
        popped += 1 if name == "POP_TOP" else ITERATOR_SLOTS
        place = first_done(frame, place + 1)
    return Exit(place, popped, _end_of_function(frame, place) or place)


def _end_of_function(frame: Frame, place: int) -> tuple[Any, ...]:
    """The code from a place on, if it goes straight to a return."""
    code: list[Any] = []
    for ins in frame.instructions[place : place + _LONGEST_END]:
        if ins.name not in _IDLE:
            # of a `for` that ran out a variable may be unbound, of one that was left it is not
            code.append((ins.name.removesuffix("_CHECK"), type(ins.arg), repr(ins.arg)))
        if ins.name in RETURNS:
            return tuple(code)
        if ins.target is not None or ins.name in NO_FALL_THROUGH:
            break
    return ()
