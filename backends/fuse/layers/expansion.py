"""From the steps of a graph with a few layers alike to those of the graph with all of them.

Of the units that were compiled (`KEPT`), the second and the third have come to steps that are alike: the same kernels
and calls, where what the second reads of the first the third reads of the second, and inputs of the one unit are those
of the next. So one more unit is the third's steps once more, each name moved on by one unit, and what comes behind
reads the last one's. The steps of a unit are those from where one of its inputs is read first to where one of the next
unit's is: as what is done at a layer's end may be part of a kernel with the next layer's beginning, these need not be
all steps of a layer and no others.

What comes behind may read what stood before all units, which stays where it is, or what a unit made, which moves on.
And it may hold what all units have in common in one expression, such as a sum over them, which grows with each. The
same graph with one unit fewer tells: what comes behind there has to be alike, and where both read the very same buffer
it stays, where the one reads the next unit's it moves on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Any

from framejit.backends.fuse.cache.plan_key import bytes_of
from framejit.backends.fuse.graph.known import MOST_BYTES
from framejit.backends.fuse.layers.renaming import Step, Unlike, again, layout_again, number_of, pairs
from framejit.backends.fuse.layers.units import UnitOutput, Units
from framejit.backends.fuse.loop_ir.nodes import Buffer, Kernel, Layout, LoweredGraph
from framejit.late_dataclass import dataclass


class Uneven(Exception):
    """The units of a graph have not come to steps that are alike."""


@dataclass(frozen=True, eq=False)
class ScheduledUnits:
    """A shortened graph, lowered and scheduled."""

    units: Units
    lowered: LoweredGraph
    steps: list[Step]


def expanded(short: ScheduledUnits, fewer: ScheduledUnits) -> tuple[LoweredGraph, list[Step]]:
    """The whole graph's buffers and outputs, and its steps, given those of the shortened one, and of one with a unit
    fewer. Raises Uneven."""
    expansion = _Expansion(_Parts(short), _Parts(fewer))
    made = expansion.steps()
    outputs, units = expansion.outputs(), short.units
    whole = LoweredGraph(
        expansion.buffers(), [], outputs, len(units.names), units.own_inputs, short.lowered.plain
    )
    return whole, made


class _Parts:
    """The steps of a shortened graph unit by unit: those of the first with what comes before, those of the last with
    what comes behind."""

    def __init__(self, short: ScheduledUnits) -> None:
        self.units, self.outputs = short.units, short.lowered.outputs
        self.buffers: Mapping[str, Buffer] = short.lowered.buffers
        positions = short.units.positions
        self.position = {
            buffer.name: positions[buffer.input] for buffer in self.buffers.values() if buffer.input is not None
        }
        """By the names of inputs where they are among the whole graph's."""
        self.input_at = {position: self.buffers[name] for name, position in self.position.items()}
        self.unit_of = {
            self.input_at[position].name: (unit, at)
            for unit, inputs in enumerate(short.units.units[: short.units.kept])
            for at, position in enumerate(inputs)
        }
        """By the name of an input the unit whose it is, and its place there."""
        _, *starts = self._starts(short.steps)
        ends = [*starts, len(short.steps)]
        self.steps = [short.steps[start:end] for start, end in zip([0, *starts], ends)]
        self.made = [self._made_by(steps) for steps in self.steps]

    def _starts(self, steps: Sequence[Step]) -> list[int]:
        """For each unit the first step that reads one of its inputs."""
        starts = [len(steps)] * self.units.kept
        for position, step in reversed([*enumerate(steps)]):
            for name in step.reads:
                if name in self.unit_of:
                    starts[self.unit_of[name][0]] = position
            if any(self.buffers[name].memory != name and not self.buffers[name].whole for name in step.writes):
                raise Uneven  # it writes in place
        if sorted({*starts, len(steps)}) != [*starts, len(steps)]:
            raise Uneven
        return starts

    def _made_by(self, steps: Sequence[Step]) -> set[str]:
        """What steps write, and what that is a part of."""
        return {made for step in steps for name in step.writes for made in (name, self.buffers[name].memory)}


class _Reference(Enum):
    """What a name stands for, where what comes behind all units has it, with more units than were compiled."""

    STAYS = auto()
    MOVES_ON = auto()
    """For what so many units later has the place."""
    MADE_BEHIND = auto()


class _Expansion:
    def __init__(self, parts: _Parts, fewer: _Parts) -> None:
        self.short, self.given = parts.units, parts.buffers
        self.unit_of, self.given_at = parts.unit_of, parts.input_at
        self.more = len(self.short.units) - self.short.kept
        """Units that are to be added."""
        self.before, self.second, self.third, self.after = parts.steps
        _, self.made_second, self.made, self.made_behind = parts.made
        if len(self.second) != len(self.third):
            raise Uneven
        self.next: dict[str, str] = {}
        """By a name that the second unit's steps have the one that the third's have in its place."""
        self._pair()
        self.behind_all = _Behind(parts, fewer, self.next)
        numbers = {
            number_of(like) - number_of(step)
            for step, like in zip(self.second, self.third)
            if isinstance(step, Kernel) and isinstance(like, Kernel)
        }
        if len(numbers) > 1:
            raise Uneven
        self.nodes = numbers.pop() if numbers else len(self.third)
        """How many nodes of the schedule a unit has."""
        self.given_outputs = parts.outputs
        self.inputs = self._inputs()
        self.added: dict[tuple[str, int], Buffer] = {}
        self.names = {*self.given, *(buffer.name for buffer in self.inputs)}

    def _pair(self) -> None:
        """Find what the names of the second unit's steps are in the third's."""
        try:
            for step, like in zip(self.second, self.third):
                for name, other in pairs(step, like):
                    self._note(name, other)
        except Unlike:
            raise Uneven from None
        if len({*self.next.values()}) != len(self.next):
            raise Uneven
        for name, other in self.next.items():
            if name in self.made_second or self.given[name].input is not None or self.given[name].constant is not None:
                continue
            # made before: the same for all units, or what a unit hands to the next
            if other in self.made or (other != name and other not in self.made_second):
                raise Uneven

    def _note(self, name: str, other: str) -> None:
        if name in self.next:
            if self.next[name] != other:
                raise Uneven
            return
        buffer, like = self.given[name], self.given[other]
        unit = self.unit_of.get(name)
        if (
            not _are_alike(buffer, like)
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

    def outputs(self) -> list[Layout | Any]:
        """The whole graph's outputs."""
        given = self.given_outputs
        found: dict[tuple[int, int], Any] = {}

        def once(key: tuple[int, int], make: Callable[[], Any]) -> Any:
            """One object for one output, however often it is returned."""
            if key not in found:
                found[key] = make()
            return found[key]

        made: list[Layout | Any] = []
        for output in range(len(given)) if self.short.outputs is None else self.short.outputs:
            if isinstance(output, UnitOutput):
                layouts = [None if place is None else given[place] for place in output.places]
                key = next(id(layout) for layout in layouts if layout is not None)
                made.append(once((key, output.unit), partial(self._of_unit, output.unit, layouts)))
            elif isinstance(given[output], Layout):
                made.append(once((id(given[output]), -1), partial(layout_again, given[output], self.behind)))
            else:
                made.append(given[output])
        return made

    def _of_unit(self, unit: int, layouts: Sequence[Layout | Any | None]) -> Layout:
        """What a unit gives, where `layouts` are what the units kept give in its place."""
        for own, layout in enumerate(layouts):
            if not isinstance(layout, Layout):
                continue
            name, later = layout.buffer.name, unit - own
            if name in self.made_behind:
                if later == self.more:
                    return layout_again(layout, self.behind)
            elif later == 0:
                return layout
            elif 0 < later <= self.more and (name in self.made or name in self.unit_of):
                return layout_again(layout, partial(self.later, units=later))
        raise Uneven

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
        if self.behind_all.reference(name) is _Reference.MOVES_ON:
            return self.later(name, self.more)
        return self.given[name]

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
        units, kept = self.short.units, self.short.kept
        like = {
            position: self.given_at[of_kept]
            for inputs in units[kept:]
            for position, of_kept in zip(inputs, units[kept - 1])
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


class _Behind:
    """The names that the last unit's steps, and what comes behind, have, beside those of the graph with a unit
    fewer."""

    def __init__(self, parts: _Parts, fewer: _Parts, following: Mapping[str, str]) -> None:
        self.parts, self.fewer = parts, fewer
        self.before = {name: other for other, name in following.items()}
        """By a name that the third unit's steps have the one that the second's have in its place."""
        self.same: dict[str, str] = {}
        """By a name of what stands in both graphs, before all units, in the first or the second, the other's."""
        self.other: dict[str, str] = {}
        """By a name behind the one in its place with a unit fewer."""
        self._references: dict[str, _Reference] = {}
        try:
            for at in (0, 1):
                if len(parts.steps[at]) != len(fewer.steps[at]):
                    raise Uneven
                for step, like in zip(parts.steps[at], fewer.steps[at]):
                    for name, other in pairs(step, like):
                        self._note_same(name, other)
            if len(parts.steps[-1]) != len(fewer.steps[-1]):
                raise Uneven
            for step, like in zip(parts.steps[-1], fewer.steps[-1]):
                for name, other in pairs(step, like):
                    self._note(name, other)
        except Unlike:
            raise Uneven from None
        self._compare_outputs()
        if len({*self.other.values()}) != len(self.other):
            raise Uneven

    def reference(self, name: str) -> _Reference:
        """What a name behind all units stands for."""
        return self._references[name]

    def _note_same(self, name: str, other: str) -> None:
        if self.same.setdefault(name, other) != other or not _are_alike(
            self.parts.buffers[name], self.fewer.buffers[other]
        ):
            raise Uneven
        if self.parts.position.get(name) != self.fewer.position.get(other):
            raise Uneven

    def _note(self, name: str, other: str) -> None:
        if name in self.other:
            if self.other[name] != other:
                raise Uneven
            return
        buffer, like = self.parts.buffers[name], self.fewer.buffers[other]
        if not _are_alike(buffer, like):
            raise Uneven
        self.other[name], self._references[name] = other, self._found(name, other)
        for part, of_other in zip((buffer.memory, *buffer.parts), (like.memory, *like.parts)):
            self._note(part, of_other)

    def _found(self, name: str, other: str) -> _Reference:
        parts, fewer = self.parts, self.fewer
        if name in parts.made[-1] or other in fewer.made[-1]:
            if name not in parts.made[-1] or other not in fewer.made[-1]:
                raise Uneven
            return _Reference.MADE_BEHIND
        if name in parts.position or other in fewer.position:
            own, its = parts.unit_of.get(name), fewer.unit_of.get(other)
            if own is not None and its is not None and own == (its[0] + 1, its[1]):
                return _Reference.MOVES_ON
            if parts.position.get(name) != fewer.position.get(other):
                raise Uneven
            return _Reference.STAYS
        if parts.buffers[name].constant is not None and name not in self.same:
            return _Reference.STAYS  # it is the same one: see `_are_alike`
        if self.same.get(name) == other:
            return _Reference.STAYS
        if self.same.get(self.before.get(name, "")) == other:
            return _Reference.MOVES_ON
        raise Uneven

    def _compare_outputs(self) -> None:
        units, its = self.parts.units.outputs, self.fewer.units.outputs
        given, other = self.parts.outputs, self.fewer.outputs
        if units is None or its is None:
            if len(given) != len(other):
                raise Uneven
            units = its = [*range(len(given))]
        for output, like in zip(units, its, strict=True):
            if not isinstance(output, UnitOutput) and not isinstance(like, UnitOutput):
                self._compare(given[output], other[like])
            elif isinstance(output, UnitOutput) and isinstance(like, UnitOutput):
                for place, one_fewer in zip(output.places[1:], like.places, strict=True):
                    layout = None if place is None else given[place]
                    if isinstance(layout, Layout) and layout.buffer.name in self.parts.made[-1]:
                        self._compare(layout, None if one_fewer is None else other[one_fewer])
            else:
                raise Uneven

    def _compare(self, output: Layout | Any, like: Layout | Any) -> None:
        if not isinstance(output, Layout) or not isinstance(like, Layout):
            if isinstance(output, Layout) or isinstance(like, Layout):
                raise Uneven
            return
        if (output.sizes, output.strides, output.offset) != (like.sizes, like.strides, like.offset):
            raise Uneven
        self._note(output.buffer.name, like.buffer.name)


def _are_alike(buffer: Buffer, like: Buffer) -> bool:
    """Whether two buffers differ in nothing but their names."""
    return (
        (buffer.sizes, buffer.strides, buffer.dtype, buffer.device, buffer.offset)
        == (like.sizes, like.strides, like.dtype, like.device, like.offset)
        and len(buffer.parts) == len(like.parts)
        and bool(buffer.whole) == bool(like.whole)
        and (buffer.input is None) == (like.input is None)
        and _is_same_constant(buffer, like)
    )


def _is_same_constant(buffer: Buffer, other: Buffer) -> bool:
    """Whether neither is a constant, or both are the same one. Small ones are worked out for each graph."""
    one, two = buffer.constant, other.constant
    if one is None or two is None:
        return one is two
    if one.data_ptr() == two.data_ptr():
        return True
    return max(one.nbytes, two.nbytes) <= MOST_BYTES and one.device == two.device and bytes_of(one) == bytes_of(two)
