"""From the steps of a graph with a few layers alike to those of the graph with all of them.

Of the units that were compiled (`KEPT`), the second and the third have come to steps that are alike: the same kernels
and calls, where what the second reads of the first the third reads of the second, and inputs of the one unit are those
of the next. So one more unit is the third's steps once more, each name moved on by one unit, and what comes behind
reads the last one's. The steps of a unit are those from where one of its inputs is read first to where one of the next
unit's is: as what is done at a layer's end may be part of a kernel with the next layer's beginning, these need not be
all steps of a layer and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from framejit.backends.fuse.layers.renaming import Step, Unlike, again, layout_again, number_of, pairs
from framejit.backends.fuse.layers.repetition import KEPT
from framejit.backends.fuse.layers.shortened import Shortened
from framejit.backends.fuse.loop_ir.nodes import Buffer, Kernel, Layout, LoweredGraph


class Uneven(Exception):
    """The units of a graph have not come to steps that are alike."""


def expanded(short: Shortened, lowered: LoweredGraph, steps: Sequence[Step]) -> tuple[LoweredGraph, list[Step]]:
    """The whole graph's buffers and outputs, and its steps, given those of the shortened one. Raises Uneven."""
    expansion = _Expansion(short, lowered.buffers, steps)
    made = expansion.steps()
    outputs: dict[int, Layout] = {}
    for output in lowered.outputs:
        if isinstance(output, Layout) and id(output) not in outputs:
            outputs[id(output)] = layout_again(output, expansion.behind)
    whole = LoweredGraph(
        expansion.buffers(), [], [outputs.get(id(output), output) for output in lowered.outputs], len(short.names),
        None, lowered.plain,
    )
    return whole, made


class _Expansion:
    def __init__(self, short: Shortened, buffers: Mapping[str, Buffer], steps: Sequence[Step]) -> None:
        self.short, self.given = short, buffers
        self.given_at = {
            short.positions[buffer.input]: buffer for buffer in buffers.values() if buffer.input is not None
        }
        """The shortened graph's inputs, by their positions in the whole one."""
        self.unit_of = {
            self.given_at[position].name: (unit, at)
            for unit, inputs in enumerate(short.units[:KEPT])
            for at, position in enumerate(inputs)
        }
        """By the name of an input the unit whose it is, and its place there."""
        self.more = len(short.units) - KEPT
        """Units that are to be added."""
        _, second, third, last = self._starts(steps)
        if third - second != last - third:
            raise Uneven
        self.before, self.second = steps[:second], steps[second:third]
        self.third, self.after = steps[third:last], steps[last:]
        self.next: dict[str, str] = {}
        """By a name that the second unit's steps have the one that the third's have in its place."""
        self._pair()
        self.made, self.made_behind = self._made_by(self.third), self._made_by(self.after)
        numbers = {
            number_of(like) - number_of(step)
            for step, like in zip(self.second, self.third)
            if isinstance(step, Kernel) and isinstance(like, Kernel)
        }
        if len(numbers) > 1:
            raise Uneven
        self.nodes = numbers.pop() if numbers else len(self.third)
        """How many nodes of the schedule a unit has."""
        self.inputs = self._inputs()
        self.added: dict[tuple[str, int], Buffer] = {}
        self.names = {*buffers, *(buffer.name for buffer in self.inputs)}

    def _starts(self, steps: Sequence[Step]) -> list[int]:
        """For each unit the first step that reads one of its inputs."""
        starts = [len(steps)] * KEPT
        for position, step in reversed([*enumerate(steps)]):
            for name in step.reads:
                if name in self.unit_of:
                    starts[self.unit_of[name][0]] = position
            if any(self.given[name].memory != name and not self.given[name].whole for name in step.writes):
                raise Uneven  # it writes in place
        if sorted({*starts, len(steps)}) != [*starts, len(steps)]:
            raise Uneven
        return starts

    def _pair(self) -> None:
        """Find what the names of the second unit's steps are in the third's."""
        made, later = self._made_by(self.second), self._made_by(self.third)
        try:
            for step, like in zip(self.second, self.third):
                for name, other in pairs(step, like):
                    self._note(name, other)
        except Unlike:
            raise Uneven from None
        if len({*self.next.values()}) != len(self.next):
            raise Uneven
        for name, other in self.next.items():
            if name in made or self.given[name].input is not None or self.given[name].constant is not None:
                continue
            # made before: the same for all units, or what a unit hands to the next
            if other in later or (other != name and other not in made):
                raise Uneven

    def _made_by(self, steps: Sequence[Step]) -> set[str]:
        """What steps write, and what that is a part of."""
        return {made for step in steps for name in step.writes for made in (name, self.given[name].memory)}

    def _note(self, name: str, other: str) -> None:
        if name in self.next:
            if self.next[name] != other:
                raise Uneven
            return
        buffer, like = self.given[name], self.given[other]
        unit = self.unit_of.get(name)
        if (
            (buffer.sizes, buffer.strides, buffer.dtype, buffer.device, buffer.offset)
            != (like.sizes, like.strides, like.dtype, like.device, like.offset)
            or len(buffer.parts) != len(like.parts)
            or bool(buffer.whole) != bool(like.whole)
            or not _is_same_constant(buffer, like)
            or (unit is None and (buffer.input, like.input) != (None, None) and name != other)
            or (unit is not None and self.unit_of.get(other) != (unit[0] + 1, unit[1]))
        ):
            raise Uneven
        self.next[name] = other
        for part, of_other in zip((buffer.memory, *buffer.parts), (like.memory, *like.parts)):
            self._note(part, of_other)

    # ---- the whole ----

    def steps(self) -> list[Step]:
        """The steps of the whole graph."""
        made = [*self.before, *self.second, *self.third]
        for unit in range(1, self.more + 1):
            made += [again(step, partial(self.later, units=unit), unit * self.nodes) for step in self.third]
        return [*made, *(again(step, self.behind, self.more * self.nodes) for step in self.after)]

    def later(self, name: str, units: int) -> Buffer:
        """What the name in the third unit's steps stands for so many units later."""
        buffer = self.given[name]
        if not units or self.next.get(name) == name:
            return buffer
        if name in self.unit_of:
            unit, at = self.unit_of[name]
            return self.inputs[self.short.units[unit + units][at]]
        if name in self.made or buffer.constant is not None:
            return self._added(buffer, units)
        if name in self.next:  # made by the second unit
            return self.later(self.next[name], units - 1)
        raise Uneven

    def behind(self, name: str) -> Buffer:
        """What the name in what comes behind the units stands for, in the whole graph."""
        buffer = self.given[name]
        if name in self.made_behind or buffer.constant is not None:
            return buffer
        if buffer.input is not None and name not in self.unit_of:
            return buffer
        return self.later(name, self.more)

    def _added(self, buffer: Buffer, units: int) -> Buffer:
        made = self.added.get((buffer.name, units))
        if made is None:
            name = self._free(f"{buffer.name}_{units}")
            made = self.added[buffer.name, units] = replace(buffer, name=name, memory=name)
            if buffer.memory != buffer.name:
                made.memory = self._added(self.given[buffer.memory], units).name
            if buffer.whole:
                made.whole = self._added(self.given[buffer.whole], units).name
            made.parts = tuple(self._added(self.given[part], units).name for part in buffer.parts)
        return made

    def _free(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def _inputs(self) -> list[Buffer]:
        """The whole graph's inputs, in order."""
        made: list[Buffer] = []
        like = {
            position: self.given_at[kept]
            for inputs in self.short.units[KEPT:]
            for position, kept in zip(inputs, self.short.units[KEPT - 1])
        }
        for position, name in enumerate(self.short.names):
            buffer = self.given_at.get(position)
            if buffer is None:
                name = name if name not in self.given else f"{name}_of_{position}"
                buffer = replace(like[position], name=name, memory=name)
            buffer.input = position
            made.append(buffer)
        return made

    def buffers(self) -> dict[str, Buffer]:
        """The whole graph's buffers, inputs first."""
        others = (buffer for buffer in self.given.values() if buffer.input is None)
        return {buffer.name: buffer for buffer in (*self.inputs, *others, *self.added.values())}


def _is_same_constant(buffer: Buffer, other: Buffer) -> bool:
    """Whether neither is a constant, or both are the same one."""
    if buffer.constant is None or other.constant is None:
        return buffer.constant is other.constant
    return buffer.constant.data_ptr() == other.constant.data_ptr()
