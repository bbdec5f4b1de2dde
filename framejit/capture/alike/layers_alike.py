"""Layers alike are captured once: the call of a module that goes as an earlier one went is stamped out.

What captured code did in a call is known: nodes, guards, and what it left behind. Where that is guards and nodes alone,
the guards that lead through the module say what made the call go as it went. They are tried on another module of the
class, called at the same place; where they hold, its call has the same nodes with its own parameters, and the same
guards on its own sources. This is what an entry rests on, applied to a stretch of the capture. See "Layers alike" in
ARCHITECTURE.md for what must hold besides, each of which is checked here; where something does not, the call is
captured as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from framejit import _native as native
from framejit.backends.graph_identity import FIRST_VERSION, Layer
from framejit.backends.opaque_call import OpaqueCall
from framejit.capture.alike.followed_call import (
    Followed,
    Made,
    Reach,
    Repetition,
    as_realized,
    is_known_tuple,
    is_owner,
    is_plain_tuple,
    reach_of,
)
from framejit.capture.alike.stamped_history import StampedHistory
from framejit.fakes.repeated_calls import is_like
from framejit.guards.guard import Guard
from framejit.guards.lower import lower
from framejit.guards.sources import ArgSource, DictSource, IndexSource, KeySource, Source, Step
from framejit.late_dataclass import dataclass
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.journal import FollowedNumber, LookedAt, int_of
from framejit.values.lazy import LazyValue
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.module import ModuleValue
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import wrap

if TYPE_CHECKING:
    from framejit.capture.capture import Capture
    from framejit.capture.side_effects import InSight, SideEffects
    from framejit.interpreter.capturing import Frame
    from framejit.values.journal import Owner

    Ordinary = Callable[[Any, Value, list[Value], dict[str, Value]], Value]

LEAST_STEPS: Final = 100
"""Instructions that a call must have taken: trying the guards of a small one takes as long as capturing it."""
MOST_KINDS: Final = 4
"""Different layers called at one place that are kept for later ones to be like."""
PLAIN: Final = (type(None), bool, int, float, str)
_META: Final = frozenset(("val", "example_value", "stack_trace", "place", "written", FIRST_VERSION))
"""What a node that can be stamped out may carry."""


@dataclass(eq=False)
class _Layer:
    """A call that was captured."""

    root: Source
    place: list[tuple[CodeType, int]]
    """Where each frame stood, the innermost first."""
    given: list[Value]
    result: Value
    state: native.State
    in_sight: InSight
    seq: int
    steps: int
    n_ops: int
    nodes: list[fx.Node]
    guards: list[Guard]
    """All there were when it had been captured; once it is `prepared`, those that lead through the module."""
    tree: native.GuardTree | None = None
    """The guards, for a module that comes behind the arguments of the frame."""
    tensors: list[tuple[TensorValue, Guard]] = field(default_factory=list)
    """The inputs that were read from the module, and what guards them."""
    elsewhere: list[tuple[TensorValue, Guard]] = field(default_factory=list)
    """Those that had been read from elsewhere before, as an optimizer's list of parameters, and what guards that they
    are the same."""
    given_on: set[fx.Node] = field(default_factory=set)
    """The nodes whose results are the call's."""
    classes: set[type] = field(default_factory=set)
    """The classes of objects that were looked at in the module."""
    history: StampedHistory = field(init=False)
    usable: bool = True
    followed: Followed | None = None
    """What the call did with what captured code has made, where it could come to such."""
    free: set[Source] = field(default_factory=set)
    """Where in the module numbers were read that may be others."""


class LayersAlike:
    """The calls of modules in one capture."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._known: dict[Any, list[_Layer]] = {}
        self._reached: dict[Source, int] = {}
        """By the sources that others begin with the step at which what is there was last reached again."""
        self.stamped = 0

    def close(self) -> None:
        """At the end of the capture: let go of values and nodes."""
        self._known.clear()

    def reached(self, source: Source) -> None:
        """Note that a source was read again whose value is known."""
        if source.base is None:
            self._reached[source] = self._capture.seq

    def reached_since(self, seq: int) -> list[Source]:
        """The sources of which that was noted at a step or behind it."""
        return [source for source, at in self._reached.items() if at >= seq]

    def call(
        self, frame: Frame, module: ModuleValue, args: list[Value], kwargs: dict[str, Value], ordinary: Ordinary
    ) -> Value:
        """Call a module: as one before it, or by `ordinary`."""
        capture = self._capture
        in_sight = capture.effects.in_sight()
        if module.source is None or in_sight is None or not capture.may_stamp():
            return ordinary(frame, module, args, kwargs)
        known = self._known.setdefault((module.cls, frame.code, frame.pc, len(args), *kwargs), [])
        given = [*args, *kwargs.values()]
        for layer in known:
            result = self._stamped(layer, frame, module, given, in_sight)
            if result is not None:
                return result
        reach = None
        if len(known) < MOST_KINDS:
            reach = reach_of([*given, *in_sight.inside()], capture.effects) or reach_of(given, capture.effects)
        if reach is None or not reach.owners:
            return self._captured(known, frame, module, args, kwargs, ordinary, in_sight, None)
        journal = capture.journal
        start = journal.begin(reach.owners.values())
        try:
            args, kwargs = [*map(journal.follow, args)], {name: journal.follow(v) for name, v in kwargs.items()}
            follow = partial(self._followed, reach, start)
            return self._captured(known, frame, module, args, kwargs, ordinary, in_sight, follow)
        finally:
            journal.end()

    def _followed(self, reach: Reach, start: int, result: Value) -> Followed:
        return Followed(reach, self._capture.journal.events[start:], result, self._capture.effects)

    def _captured(
        self,
        known: list[_Layer],
        frame: Frame,
        module: ModuleValue,
        args: list[Value],
        kwargs: dict[str, Value],
        ordinary: Ordinary,
        in_sight: InSight,
        follow: Callable[[Value], Followed] | None,
    ) -> Value:
        """Call a module by `ordinary`; what it did is known then, if it can be done once more."""
        capture = self._capture
        given = [*args, *kwargs.values()]
        assert module.source is not None
        seq, n_ops, left, last = capture.seq, capture.graph.n_ops, capture.left_behind(), capture.graph.last_node()
        state, copies = native.snapshot_state(), len(capture.graph.copies)
        followed: Followed | None = None
        result = ordinary(frame, module, args, kwargs)
        steps = capture.seq - seq
        if (
            steps >= LEAST_STEPS
            and len(known) < MOST_KINDS
            and left == capture.left_behind()
            and copies == len(capture.graph.copies)
            and (_is_plain(result) if follow is None else (followed := follow(result)).is_repeatable)
            and self._reached.get(_first(module.source), -1) < seq
            and (after := capture.effects.in_sight()) is not None
            and after.is_as(in_sight, () if followed is None else followed.owners())
        ):
            nodes = capture.graph.nodes_behind(last)
            n_ops = capture.graph.n_ops - n_ops
            capture.graph.layers.append(Layer(nodes, nodes))
            known.append(
                _Layer(
                    module.source, _places(frame), given, result, state, in_sight, seq, steps, n_ops, nodes,
                    capture.guards_so_far(), followed=followed,
                )
            )
        return result

    # ---- is it alike ------------------------------------------------------------------------------

    def _stamped(
        self, layer: _Layer, frame: Frame, module: ModuleValue, given: list[Value], in_sight: InSight
    ) -> Value | None:
        """The result of a call that goes as that of a layer; None if it may go another way."""
        capture = self._capture
        if (
            not layer.usable
            or module.source is None
            or not in_sight.is_as(layer.in_sight, () if layer.followed is None else layer.followed.owners())
            or _places(frame) != layer.place
            or not native.state_matches(layer.state)
            or any(capture.seq < seq <= capture.seq + layer.steps for seq in capture.forced)
        ):
            return None
        taken = _Pairs(layer.root, layer.followed)
        if layer.followed is not None:
            taken.keep(value for value in in_sight.inside() if layer.followed.is_owner(value))
        if not all(taken.alike(a, b) for a, b in zip(layer.given, given, strict=True)):
            return None
        if layer.tree is None:
            self._prepare(layer, taken)
        if not layer.usable or layer.tree is None or _holds_any(layer, taken):
            return None
        if not in_sight.classes.isdisjoint(layer.classes):  # the guards would find it as it was
            return None
        if not layer.tree.check((*capture.flat_args, module.obj), capture.fn):
            return None
        named = {source: _number_at(source, layer.root, module.obj) for source in layer.free}
        repetition = None
        if layer.followed is not None:
            repetition = Repetition(layer.followed, taken, named)
            if None in named.values() or not repetition.fits():
                return None
        moved = _Moved(layer.root, module.source)
        nodes = dict(taken.nodes)
        tensors: dict[fx.Node, TensorValue] = {}
        for known, guard in layer.tensors:
            tensor = _read(guard.source, layer.root, module.obj)
            with capture.standing_for(guard.user_line):
                value = wrap(capture, tensor, moved[guard.source])
            if (
                not isinstance(value, TensorValue)
                or value.cls is not known.cls
                or value.attrs
                or not is_like(known.fake, value.fake)
            ):
                return None
            nodes[known.node], tensors[known.node] = value.node, value
        for known, guard in layer.elsewhere:
            other = capture.known(_read(guard.source, layer.root, module.obj))
            if not (isinstance(other, TensorValue) and self._is_plain_input(other) and self._is_plain_input(known)):
                return None
            if other.cls is not known.cls or not is_like(known.fake, other.fake):
                return None
            nodes[known.node], tensors[known.node] = other.node, other
        made = capture.graph.stamp(layer.nodes, nodes, layer.given_on, capture.seq - layer.seq, layer.history)
        if made is None:
            return None
        numbers: dict[Source, FollowedNumber] = {}
        for guard in layer.guards:
            if guard.check == native.C_EQUALS and guard.source in layer.free:
                number = named[guard.source]
                guard = Guard(guard.source, guard.check, number, (), guard.user_line)
                if capture.journal.is_kept:
                    assert number is not None
                    with capture.standing_for(guard.user_line):
                        numbers[guard.source] = capture.follow_number(number, moved[guard.source])
                    continue
            if guard.check != native.C_TENSOR:  # which those of the tensors are, that were made anew
                capture.take_guard(_guard_on(guard, moved))
        for known, guard in layer.elsewhere:
            same = tensors[known.node].source
            assert same is not None
            capture.take_guard(Guard(moved[guard.source], guard.check, None, (same,), guard.user_line))
        capture.seq += layer.steps
        capture.graph.n_ops += layer.n_ops
        self.stamped += 1
        counterparts = _Result(capture.effects, nodes | made, tensors, taken, layer.followed)
        for value in given:
            _look_at_numbers(value)
        if repetition is not None:
            repetition.carry_out(frame, counterparts.of, numbers)
        return counterparts.of(layer.result)

    def _prepare(self, layer: _Layer, taken: _Pairs) -> None:
        """Find what of the guards leads through the module, and whether the nodes can be stamped out."""
        through = _Through(layer.root)
        everything = layer.guards
        layer.guards = [
            guard for guard in everything if through[guard.source] or any(through[source] for source in guard.also)
        ]
        if any(_tells_of(guard, layer.root) for guard in everything) or self._names_own(layer, everything, through):
            layer.usable = False
            return
        inputs = {value.source: value for value in self._capture.graph.inputs if value.source is not None}
        for guard in [*layer.guards]:
            if guard.check == native.C_SAME and through[guard.source] and not through[guard.also[0]]:
                value = inputs.get(guard.also[0])
                if value is not None and _can_be_read(guard.source, layer.root):
                    layer.elsewhere.append((value, guard))
                    layer.guards.remove(guard)
            if guard.check == native.C_TENSOR and through[guard.source]:
                value = inputs.get(guard.source)
                if value is None or value.attrs or not _can_be_read(guard.source, layer.root):
                    layer.usable = False
                    return
                layer.tensors.append((value, guard))
        if layer.followed is not None:
            way = {*_steps_to(layer.root)}
            layer.free = {s for s in layer.followed.free if through[s] and _can_be_read(s, layer.root)}
            sources = [leaf.source for leaf in layer.followed.leaves if leaf.source is not None]
            if any(through[source] or source in way for source in sources):
                layer.usable = False
                return
        own = {*layer.nodes, *(value.node for value, _ in (*layer.tensors, *layer.elsewhere)), *taken.nodes}
        read = {value.node for value in inputs.values() if value.source is not None and not through[value.source]}
        for node in layer.nodes:
            for argument in node.all_input_nodes:
                if argument not in own and (argument.op == "placeholder" and argument not in read):
                    layer.usable = False
            if (
                node._erased
                or node.op not in ("call_function", "call_method")
                or isinstance(node.target, OpaqueCall)
                or not _META.issuperset(node.meta)
                or not _is_of_tensors(node.meta.get("val"))
            ):
                layer.usable = False
        if not layer.usable:
            return
        layer.history = StampedHistory(layer.nodes)
        layer.given_on = {*_nodes_of(layer.result)}
        if layer.followed is not None:
            layer.given_on |= {tensor.node for tensor in layer.followed.tensors()}
        layer.classes = {guard.payload for guard in layer.guards if guard.check == native.C_TYPE}
        behind = _Moved(layer.root, ArgSource(len(self._capture.flat_args), "layer"))
        layer.tree = lower([
            _guard_on(guard, behind)
            for guard in layer.guards
            if not (guard.check == native.C_EQUALS and guard.source in layer.free)
        ])

    def _is_plain_input(self, value: TensorValue) -> bool:
        """Whether it is an input that is as the program has it, of which nothing is known besides."""
        graph = self._capture.graph
        return not (
            graph.example_of(value) is None
            or value.attrs
            or value.made_as
            or value.node.op != "placeholder"
            or graph.writes.into(value.fake)
        )

    def _names_own(self, layer: _Layer, guards: list[Guard], through: _Through) -> bool:
        """Whether a guard that does not lead through the module names something in it, or on the way to it: a key of a
        table, or what is not in one."""
        way = {*_steps_to(layer.root)}
        own = {
            id(obj)
            for obj, value in self._capture.objects()
            if value.source is not None and (through[value.source] or value.source in way)
        }
        return any(
            any(id(part) in own for part in (guard.payload if type(guard.payload) is tuple else (guard.payload,)))
            or any(id(step.access()[1]) in own for source in (guard.source, *guard.also) for step in _steps_to(source))
            for guard in guards
            if not through[guard.source]
        )


class _Pairs:
    """The arguments of two calls, pair by pair."""

    def __init__(self, root: Source, followed: Followed | None) -> None:
        self._through = _Through(root)
        self._way = {*_steps_to(root)}
        self._followed = followed
        self.nodes: dict[fx.Node, fx.Node] = {}
        """By the node of a tensor the one that takes its place."""
        self.values: dict[int, Value] = {}
        """By the id of a value of the first call the one of the second."""
        self.owners: dict[int, Owner] = {}
        """By the id of a list or object that captured code has made the one that takes its place."""
        self._in_place: set[int] = set()
        self.numbers: dict[int, int] = {}
        """By the id of a number that is followed the one that takes its place."""

    def keep(self, owners: Iterable[Value]) -> None:
        """These are reached besides arguments, and are the same for both calls."""
        for owner in owners:
            if is_owner(owner):
                self.owners[id(owner)] = owner
                self._in_place.add(id(owner))

    def alike(self, first: Value, second: Value) -> bool:
        """Whether captured code can't tell the one argument from the other."""
        a, b = as_realized(first), as_realized(second)
        if isinstance(a, FollowedNumber):
            return self._numbers(a, b)
        self.values[id(a)] = b
        if a.source is not None and (self._through[a.source] or a.source in self._way):
            return False  # something of the module itself, which guards are moved away from
        if isinstance(a, LazyValue) or isinstance(b, LazyValue):
            return isinstance(a, LazyValue) and isinstance(b, LazyValue) and a.obj is b.obj and a.source == b.source
        if isinstance(a, TensorValue):
            return isinstance(b, TensorValue) and self._tensors(a, b)
        if is_known_tuple(a) and is_known_tuple(b):
            sizes = a.cls is torch.Size and b.cls is torch.Size
            return a.existing is b.existing or (sizes and a.existing == b.existing)
        if type(a) is TupleValue and type(b) is TupleValue:
            return (
                a.cls is b.cls
                and is_plain_tuple(a)
                and is_plain_tuple(b)
                and len(a.items) == len(b.items)
                and all(map(self.alike, a.items, b.items))
            )
        if isinstance(a, ConstantValue) and isinstance(b, ConstantValue):
            return type(a.value) is type(b.value) and (
                a.value is b.value or (isinstance(a.value, PLAIN) and repr(a.value) == repr(b.value))
            )
        if self._followed is not None and a.source is None and b.source is None:
            return self._made(a, b)
        return a is b and a.source is not None

    def _numbers(self, a: FollowedNumber, b: Value) -> bool:
        number = int_of(b)
        if self._followed is None:  # nobody has seen what the call did with it
            return number == a.known
        return number is not None and self.numbers.setdefault(id(a), number) == number

    def _made(self, a: Value, b: Value) -> bool:
        """Whether one may take the place of another in what captured code has made."""
        assert self._followed is not None
        if type(a) is ClassValue:
            return a is b
        holds = self._followed.held_by(a)
        if holds is not None:  # a dict that has stayed as it was
            return a is b and all(self.alike(part, part) for part in holds)
        if not self._followed.is_owner(a) or not is_owner(b) or a.python_type() is not b.python_type():
            return False
        known = self.owners.get(id(a))
        if known is not None:
            return known is b
        if id(b) in self._in_place:
            return False
        self.owners[id(a)] = b
        self._in_place.add(id(b))
        return True

    def _tensors(self, a: TensorValue, b: TensorValue) -> bool:
        if self.nodes.setdefault(a.node, b.node) is not b.node:
            return False
        if a is b:
            return True
        others = [one for one, other in self.nodes.items() if other is b.node]
        return (
            len(others) == 1
            and a.source is None
            and b.source is None
            and a.cls is b.cls
            and not (a.attrs or b.attrs or a.made_as or b.made_as or a.node._erased or b.node._erased)
            and a.node.op != "placeholder"
            and b.node.op != "placeholder"
            and _constant(a.fake) is None
            and _constant(b.fake) is None
            and is_like(a.fake, b.fake)
        )


class _Result:
    """What a stamped call gives."""

    def __init__(
        self,
        effects: SideEffects,
        nodes: dict[fx.Node, fx.Node],
        tensors: dict[fx.Node, TensorValue],
        taken: _Pairs,
        followed: Followed | None,
    ) -> None:
        self._effects, self._followed = effects, followed
        self._nodes, self._tensors, self._taken = nodes, tensors, taken
        self._made: dict[int, Value] = {}

    def of(self, value: Value) -> Value:
        value = as_realized(value)
        if isinstance(value, FollowedNumber):
            value.journal.add(LookedAt(value))  # who is followed around this call gets a plain number
            return ConstantValue(self._taken.numbers.get(id(value), value.known))
        owner = self._taken.owners.get(id(value))
        if owner is not None:
            return owner
        known = self._taken.values.get(id(value)) or self._made.get(id(value))
        if known is None:
            known = self._made[id(value)] = self._new(value)
        return known

    def _new(self, value: Value) -> Value:
        made = None if self._followed is None else self._followed.made.get(id(value))
        if made is not None:
            return self._once_more(made)
        if is_known_tuple(value) and value.cls is torch.Size:
            new = TupleValue(value.items, value.cls)
            new.existing = torch.Size(value.existing)  # each tensor gives others
            return new
        if is_plain_tuple(value):
            return TupleValue([self.of(item) for item in value.items], value.cls)
        if not isinstance(value, TensorValue) or value.node not in self._nodes:
            return value
        node = self._nodes[value.node]
        return self._tensors.get(value.node) or TensorValue(node, node.meta["val"], value.cls)

    def _once_more(self, made: Made) -> Value:
        """What takes the place of something that the call has made."""
        new: Value
        if isinstance(made.value, ObjectValue):
            self._made[id(made.value)] = new = ObjectValue(made.value.cls)
            new.attrs = {name: self.of(held) for name, held in zip(made.names, made.holds)}
        elif isinstance(made.value, ListValue):
            self._made[id(made.value)] = new = ListValue([])
            new.items = [*map(self.of, made.holds)]
        elif isinstance(made.value, DictValue):
            self._made[id(made.value)] = new = DictValue({})
            new.items.update(zip(made.names, map(self.of, made.holds)))
        else:
            assert isinstance(made.value, TupleValue)
            new = TupleValue([*map(self.of, made.holds)], made.value.cls)
        if made.was_changed:
            self._effects.changed(new)
        return new


class _Through(dict[Source, bool]):
    """Whether a source leads through another."""

    def __init__(self, root: Source) -> None:
        super().__init__({root: True})

    def __missing__(self, source: Source) -> bool:
        found = self[source] = source.base is not None and self[source.base]
        return found


class _Moved(dict[Source, Source]):
    """By each source the one that leads on from `to` as it does from `root`; itself, if it does not lead through
    that."""

    def __init__(self, root: Source, to: Source) -> None:
        super().__init__({root: to})

    def __missing__(self, source: Source) -> Source:
        moved = source
        if isinstance(source, Step):
            origin = self[source.origin]
            if origin is not source.origin:
                moved = source.after(origin)
        self[source] = moved
        return moved


def _first(source: Source) -> Source:
    """What the way to a source begins with."""
    while source.base is not None:
        source = source.base
    return source


def _steps_to(source: Source | None) -> Iterator[Source]:
    """A source and all on the way to it."""
    while source is not None:
        yield source
        source = source.base


def _tells_of(guard: Guard, root: Source) -> bool:
    """Whether a guard relates something to what lies on the way to a module: captured code that comes to this may come
    from there to the module, by the very source that is moved."""
    way = {*_steps_to(root.base)}
    return guard.check == native.C_SAME and any(s in way for s in (guard.source, *guard.also))


def _holds_any(layer: _Layer, taken: _Pairs) -> bool:
    """Whether what captured code may read besides its arguments holds one that another takes the place of, or something
    of the module."""
    through = _Through(layer.root)
    return any(
        (isinstance(value, TensorValue) and taken.nodes.get(value.node, value.node) is not value.node)
        or (isinstance(value, Value) and value.source is not None and through[value.source])
        for holding in layer.in_sight.made
        if layer.followed is None or not layer.followed.is_owner(holding[0])
        for value in holding
    )


def _constant(fake: Any) -> Any:
    return getattr(fake, "constant", None)


def _is_of_tensors(result: Any) -> bool:
    if isinstance(result, (tuple, list)):
        return all(map(_is_of_tensors, result))
    return isinstance(result, torch.Tensor) and not result._has_symbolic_sizes_strides


def _places(frame: Frame) -> list[tuple[CodeType, int]]:
    return [(each.code, each.pc) for each in frame.chain()]


def _is_plain(result: Value) -> bool:
    """Whether a result is one that can be made again."""
    if isinstance(result, TupleValue):
        return is_plain_tuple(result) and all(map(_is_plain, result.items))
    if isinstance(result, TensorValue):
        return not (result.attrs or result.made_as or result.fake._has_symbolic_sizes_strides)
    return isinstance(result, ConstantValue)


def _nodes_of(result: Value) -> Iterator[fx.Node]:
    if isinstance(result, TupleValue):
        for item in result.items:
            yield from _nodes_of(item)
    elif isinstance(result, TensorValue):
        yield result.node


def _look_at_numbers(value: Value) -> None:
    """Tell the journal that it matters which numbers an argument holds."""
    value = as_realized(value)
    if isinstance(value, FollowedNumber):
        value.journal.add(LookedAt(value))
    elif isinstance(value, TupleValue):
        for item in value.items:
            _look_at_numbers(item)


def _number_at(source: Source, root: Source, obj: Any) -> int | None:
    """The int that a source leads to, if `root` leads to `obj`."""
    try:
        number = _read(source, root, obj)
    except (KeyError, IndexError):
        return None
    return number if type(number) is int else None


def _steps_from(root: Source, source: Source) -> Iterator[Source]:
    """The sources on the way from one to another, that one left out; the last one first."""
    while source != root:
        yield source
        assert source.base is not None
        source = source.base


def _can_be_read(source: Source, root: Source) -> bool:
    return all(isinstance(step, DictSource | KeySource | IndexSource) for step in _steps_from(root, source))


def _read(source: Source, root: Source, obj: Any) -> Any:
    """What a source leads to, if `root` leads to `obj`."""
    for step in reversed(list(_steps_from(root, source))):
        if isinstance(step, DictSource):
            obj = obj.__dict__
        elif isinstance(step, KeySource):
            obj = dict.__getitem__(obj, step.key.value)
        else:
            assert isinstance(step, IndexSource)
            obj = obj[step.index]
    return obj


def _guard_on(guard: Guard, moved: _Moved) -> Guard:
    also = tuple(moved[source] for source in guard.also) if guard.also else ()
    return guard.on(moved[guard.source], also)
