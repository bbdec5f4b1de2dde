"""A frame at a graph break, and what of it the rest of the program needs."""

from __future__ import annotations

from types import CodeType
from typing import Any

from framejit.bytecode.decode import Handler, Instruction, decode
from framejit.bytecode.liveness import UNBINDS
from framejit.bytecode.resume_code import Layout, Site, StackKinds, StackSlot
from framejit.capture.breaks.stack_effects import Exit, exits
from framejit.late_dataclass import dataclass


def stack_in_handler(handler: Handler, stack: StackKinds) -> StackKinds:
    """The kinds of stack slots once a handler took an exception that was raised over `stack`."""
    offset = (StackSlot.OFFSET,) if handler.push_lasti else ()
    return (*stack[: handler.depth], *offset, StackSlot.PREVIOUS, StackSlot.VALUE)


@dataclass
class BrokenFrame:
    """A frame at a graph break: where it stands and what it holds."""

    code: CodeType
    globals: dict[str, Any]
    builtins: dict[str, Any]
    instruction: Instruction
    stack: StackKinds  # kinds of slots before the instruction (for callers: without the call's operands)
    bound: frozenset[str]  # variables that have a value
    cells: tuple[str, ...]
    keyword_names: tuple[str, ...] = ()
    # variables and cells that nothing reads again, and that keep alive what they hold
    held: frozenset[str] = frozenset()

    def layout_before(self) -> Layout:
        """The arguments of the step: what the broken instruction, and all behind it, reads."""
        live = self._live_before()
        return Layout(
            self.stack, self._variables(live, self.bound), tuple(c for c in self.cells if c in live or c == "__class__")
        )

    def layout_resumed(self) -> Layout:
        """The arguments of the resume function that finishes the call which this frame makes."""
        return self._resumed(self.stack, self.instruction.index, self._live_before(), self.bound)

    def layout_at(self, index: int, stack: StackKinds) -> Layout:
        """The arguments of the resume function that goes on at instruction `index`, with this stack."""
        return self._resumed(stack, index, set(decode(self.code).live_at(index)), self.bound_after())

    def bound_after(self) -> frozenset[str]:
        """The variables that have a value once the instruction was carried out."""
        ins = self.instruction
        if ins.name == "STORE_FAST":
            return self.bound | {ins.arg}
        return self.bound - {ins.arg} if ins.name in UNBINDS else self.bound

    def not_read_again(self) -> list[str]:
        """Variables and cells that hold something and are not in `layout_before`."""
        before = self.layout_before()
        may_hold = self.bound & decode(self.code).bound_at(self.instruction.index) | set(self.cells)
        return sorted(may_hold.difference(before.variables, before.cells))

    def exits_of_instruction(self) -> list[Exit]:
        return exits(self.instruction, self.stack, decode(self.code).instructions)

    def resumed_at(self, is_innermost: bool) -> list[tuple[Site, StackKinds]]:
        """Where this frame may be resumed, and the kinds of stack slots there."""
        code, index = id(self.code), self.instruction.index
        if is_innermost:
            sites = [(Site(code, out.index, False), out.stack) for out in self.exits_of_instruction()]
        else:
            sites = [
                (Site(code, index, True), self.stack),
                (Site(code, index + 1, False), (*self.stack, StackSlot.RESULT)),
            ]
        for handler, stack in self.handlers(is_innermost):
            sites.append((Site(code, handler.target + 1, False), stack_in_handler(handler, stack)))
        return sites

    def handler_at(self, index: int) -> Handler | None:
        return decode(self.code).instructions[index].handler

    def handlers(self, is_innermost: bool) -> list[tuple[Handler, StackKinds]]:
        """The exception handlers of the instruction and, where this frame is the one that carries it out, of the
        instructions that it leads to; each with the stack it is found with."""
        places = [(self.instruction.index, self.stack)]
        if is_innermost:
            places += [(out.index, out.stack) for out in self.exits_of_instruction()]
        return [(handler, stack) for index, stack in places if (handler := self.handler_at(index)) is not None]

    def _live_before(self) -> set[str]:
        decoded = decode(self.code)
        live = set(decoded.live_at(self.instruction.index))
        if self.instruction.handler is not None:
            live |= decoded.live_at(self.instruction.handler.target)
        for out in self.exits_of_instruction():  # with their handlers
            live |= decoded.live_at(out.index)
        return live

    def _variables(self, names: set[str], bound: frozenset[str]) -> tuple[str, ...]:
        return self._as_they_end((names & bound) - set(self.cells))

    def _resumed(self, stack: StackKinds, index: int, live: set[str], bound: frozenset[str]) -> Layout:
        may_hold = decode(self.code).bound_at(index) - live - set(self.cells)
        return Layout(stack, self._as_they_end({*self._variables(live, bound), *may_hold}), self.cells)

    def _as_they_end(self, variables: set[str]) -> tuple[str, ...]:
        """Names of variables in the order in which a frame lets go of what they hold."""
        places = {name: i for i, name in enumerate(self.code.co_varnames)}
        return tuple(sorted(variables, key=lambda name: (places.get(name, len(places)), name)))
