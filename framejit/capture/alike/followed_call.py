"""What a call of a layer did with lists and objects that captured code has made, done once more with another layer's.

A call is followed (`values/journal.py`) where what it is given leads to such. Its events, in order, are gone through
with the values that take the place of its own: each look has to find what is like the first, each comparison to come
out as it did. Then the call would go the same way, and its changes are made once more.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard

import torch

from framejit.guards.sources import Source
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.journal import (
    Appended,
    Assumed,
    Changed,
    Compared,
    Computed,
    Event,
    FollowedNumber,
    Held,
    Length,
    LookedAt,
    Named,
    Read,
    Wrote,
    int_of,
)
from framejit.values.lazy import LazyValue
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.capture.side_effects import SideEffects
    from framejit.interpreter.capturing import Frame
    from framejit.values.journal import Journal, Owner


class Reach(NamedTuple):
    """What can be reached from a call's arguments of what captured code has made and may change."""

    owners: dict[int, Owner]
    """The lists and objects, by their ids: what happens to them is followed."""
    fixed: list[tuple[DictValue, tuple[Any, ...]]]
    """Dicts, with all that they hold: these have to stay as they are."""

    def is_fixed(self) -> bool:
        """Whether the dicts are as they were."""
        return all(_is_same(_content(table), holds) for table, holds in self.fixed)


def reach_of(given: list[Value], effects: SideEffects) -> Reach | None:
    """What a call can reach from its arguments; None if something in it can't be followed."""
    found = Reach({}, [])
    seen: set[int] = set()
    waiting = [*given]
    while waiting:
        value = as_realized(waiting.pop())
        if id(value) in seen or isinstance(value, (ConstantValue, LazyValue)):
            continue
        seen.add(id(value))
        if value.source is not None:
            if effects.has_changed(value):
                return None
        elif isinstance(value, TensorValue):
            if value.attrs or value.made_as:
                return None
        elif is_plain_tuple(value):
            waiting += value.items
        elif is_known_tuple(value):
            continue
        elif is_owner(value):
            found.owners[id(value)] = value
            waiting += value.children()
        elif is_plain_table(value):
            found.fixed.append((value, _content(value)))
            waiting += value.items.values()
        elif type(value) is not ClassValue:
            return None
    return found


def is_owner(value: Value) -> TypeGuard[Owner]:
    """Whether it is a list or object that captured code has made, and of which each look and change can be seen."""
    return value.source is None and (
        (type(value) is ObjectValue and value.obj is None and value.base is None)
        or (type(value) is ListValue and value.cls is list and value.is_known)
    )


def is_plain_table(value: Value) -> TypeGuard[DictValue]:
    """Whether it is a dict that captured code has made, whose keys are text and numbers."""
    return type(value) is DictValue and value.cls is dict and value.source is None and value.has_plain_keys()


def is_plain_tuple(value: Value) -> TypeGuard[TupleValue]:
    """Whether it is a tuple of which captured code can tell nothing but what it holds."""
    return (
        type(value) is TupleValue
        and value.cls in (tuple, torch.Size)
        and value.source is None
        and value.existing is None
        and not value.is_part
    )


def is_known_tuple(value: Value) -> TypeGuard[TupleValue]:
    """Whether it is a tuple of constants that is there already: one in the program's code, or sizes of a tensor."""
    return type(value) is TupleValue and value.cls in (tuple, torch.Size) and value.existing is not None


def as_realized(value: Value) -> Value:
    """What a value that is wrapped when it is looked at was found to be, if it was."""
    return value.realized or value if isinstance(value, LazyValue) else value


def _content(table: DictValue) -> tuple[Any, ...]:
    return (*table.items, *table.items.values())


def _is_same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others))


class Made(NamedTuple):
    """What a call has made, as it was at its end."""

    value: Value
    names: tuple[Any, ...]
    """Of attributes, or the keys of a dict."""
    holds: tuple[Value, ...]
    was_changed: bool


class Followed:
    """A call that was followed to its end."""

    def __init__(self, reach: Reach, events: list[Event], result: Value, effects: SideEffects) -> None:
        self._reach = reach
        looked_at = {id(event.number) for event in events if isinstance(event, LookedAt)}
        self.events = [event for event in events if self._is_of_others(event)]
        self.named = [event for event in self.events if isinstance(event, Named)]
        """The numbers that were read from existing objects."""
        self.free = {event.source for event in self.named}
        """Where numbers of these were read that may be others."""
        self.free -= {event.source for event in self.named if id(event.number) in looked_at}
        self.free -= {event.source for event in self.events if isinstance(event, Assumed)}
        self.numbers: list[FollowedNumber] = []
        """The numbers that are left behind."""
        self.leaves: list[Value] = []
        """What is left behind that was there before the capture."""
        self.left: list[Value] = [e.value for e in self.events if isinstance(e, (Wrote, Appended))]
        """The values that changes have put into what is reached."""
        self.made: dict[int, Made] = {}
        """What the call has made and left, by the ids."""
        self.is_repeatable = (
            reach.is_fixed()
            and not any(isinstance(event, Changed) for event in self.events)
            and all(self._note(value, effects) for value in (*self.left, result))
        )

    def is_owner(self, value: Value) -> bool:
        """Whether what happened to a list or object was followed."""
        return id(value) in self._reach.owners

    def owners(self) -> Container[int]:
        """The lists and objects that this holds of, by their ids."""
        return self._reach.owners

    def held_by(self, value: Value) -> tuple[Any, ...] | None:
        """What a dict held all the while; None for other values."""
        return next((tuple(table.items.values()) for table, _ in self._reach.fixed if table is value), None)

    def is_unchanged(self) -> bool:
        """Whether the dicts still hold what they held."""
        return self._reach.is_fixed()

    def _is_of_others(self, event: Event) -> bool:
        """Whether an event is not one of what the call has made itself."""
        owner = getattr(event, "owner", None)
        return owner is None or id(owner) in self._reach.owners

    def _note(self, value: Value, effects: SideEffects) -> bool:
        """Note what a value left behind is made of; whether it can be made again."""
        value = as_realized(value)
        if id(value) in self.made or id(value) in self._reach.owners or isinstance(value, ConstantValue):
            if isinstance(value, FollowedNumber):
                self.numbers.append(value)
            return True
        if isinstance(value, TensorValue):
            return not (value.attrs or value.made_as or value.fake._has_symbolic_sizes_strides)
        if value.source is not None or type(value) is ClassValue:
            self.leaves.append(value)
            return True
        if is_known_tuple(value) or any(value is table for table, _ in self._reach.fixed):
            return True
        names: tuple[Any, ...] = ()
        if is_plain_table(value):
            names, holds = tuple(value.items), tuple(value.items.values())
        elif is_owner(value) or is_plain_tuple(value):
            holds = tuple(value.children())
            if isinstance(value, ObjectValue):
                names = tuple(value.kept_attributes)
                if len(names) != len(holds):  # one was deleted that its class may have
                    return False
        else:
            return False
        self.made[id(value)] = Made(value, names, holds, effects.has_changed(value))
        return all(self._note(part, effects) for part in holds)

    def tensors(self) -> Iterator[TensorValue]:
        """The tensors that changes have left."""
        for value in (*self.left, *(part for made in self.made.values() for part in made.holds)):
            value = as_realized(value)
            if isinstance(value, TensorValue):
                yield value
            elif isinstance(value, TupleValue):
                yield from (item for item in value.items if isinstance(item, TensorValue))


class Pairs(Protocol):
    """The values of two calls, pair by pair."""

    owners: dict[int, Owner]
    numbers: dict[int, int]

    def alike(self, first: Value, second: Value) -> bool: ...


class _Own(NamedTuple):
    """What takes the place of a value that the call itself has put somewhere."""

    value: Value


class Repetition:
    """The events of a call with the values of another."""

    def __init__(self, followed: Followed, pairs: Pairs, named: dict[Source, int | None]) -> None:
        """`named`: the numbers that are read where the call read others."""
        self._followed, self._pairs, self._named = followed, pairs, named
        self._pending: dict[int, Any] = {}

    def fits(self) -> bool:
        """Whether all goes as it went."""
        return (
            self._followed.is_unchanged()
            and all(map(self._goes, self._followed.events))
            and all(self.number(number) is not None for number in self._followed.numbers)
        )

    def _goes(self, event: Event) -> bool:
        match event:
            case Read(owner, key, found):
                held, place = self._held(owner), self._key(owner, key)
                if held is None or place is None:
                    return False
                if isinstance(held, list):
                    return found is not None and -len(held) <= place < len(held) and self._matches(found, held[place])
                other = held.get(place)
                return other is None if found is None else other is not None and self._matches(found, other)
            case Held(owner, keys, values):
                held = self._held(owner)
                if held is None or len(held) != len(values):
                    return False
                others = list(held)
                if isinstance(held, dict):
                    if tuple(held) != keys:
                        return False
                    others = list(held.values())
                return all(a is not None and b is not None and self._matches(a, b) for a, b in zip(values, others))
            case Length(owner, number):
                held = self._held(owner)
                if held is None:
                    return False
                self._pairs.numbers[id(number)] = len(held)
                return True
            case Named(number, source):
                known = self._named.get(source, number.known)
                assert known is not None
                self._pairs.numbers[id(number)] = known
                return True
            case Computed(number, function, operands):
                result = self._result(function, operands)
                if type(result) is not int:
                    return False
                self._pairs.numbers[id(number)] = result
                return True
            case Compared(outcome, function, operands):
                return self._result(function, operands) is outcome
            case Assumed():
                return True
            case LookedAt(number):
                return self.number(number) == number.known
            case Appended(owner, value):
                held = self._written(owner)
                if held is None:
                    return False
                held.append(_Own(value))
                return True
            case Wrote(owner, key, value):
                held, place = self._written(owner), self._key(owner, key)
                if held is None or place is None or isinstance(held, list) and not -len(held) <= place < len(held):
                    return False
                held[place] = _Own(value)
                return True
        return False

    def number(self, value: Value) -> int | None:
        """The number that takes the place of one."""
        return self._pairs.numbers.get(id(value)) if isinstance(value, FollowedNumber) else int_of(value)

    def _result(self, function: Callable[[int, int], Any], operands: tuple[Value, Value]) -> Any:
        first, second = map(self.number, operands)
        if first is None or second is None:
            return None
        try:
            return function(first, second)
        except (ArithmeticError, ValueError):
            return None

    def _key(self, owner: Owner, key: Value | str) -> Any:
        return key if isinstance(key, str) else self.number(key)

    def _held(self, owner: Owner) -> Any:
        """What is held by now by what takes the place of an owner; None if that is not known."""
        other = self._pairs.owners.get(id(owner))
        if other is None:
            return None
        if id(other) in self._pending:
            return self._pending[id(other)]
        assert isinstance(other, (ListValue, ObjectValue))
        return other.kept_items if isinstance(other, ListValue) else other.kept_attributes

    def _written(self, owner: Owner) -> Any:
        """The same, to be written into."""
        held = self._held(owner)
        if held is None:
            return None
        return self._pending.setdefault(id(self._pairs.owners[id(owner)]), type(held)(held))

    def _matches(self, found: Value, other: Any) -> bool:
        if not isinstance(other, _Own):
            return self._pairs.alike(found, other)
        if not isinstance(found, FollowedNumber):
            return other.value is found
        known = self.number(other.value)
        if known is None:
            return False
        self._pairs.numbers[id(found)] = known
        return True

    def carry_out(
        self, frame: Frame, counterpart: Callable[[Value], Value], named: Mapping[Source, FollowedNumber]
    ) -> None:
        """Make the changes; `counterpart` gives the values that take the place of others, `named` the numbers that are
        followed in the place of those read from existing objects. Where the call is part of one that is followed, that
        one's journal is told all the events."""
        told = _Retold(self, frame.capture.journal, counterpart, named)
        for event in self._followed.events:
            if not isinstance(event, (Appended, Wrote)):
                told.tell(event)
                continue
            value, owner = counterpart(event.value), self.owner_for(event.owner)
            if isinstance(event, Appended):
                assert isinstance(owner, ListValue)
                owner.append(frame, value)
            elif isinstance(owner, ObjectValue):
                assert isinstance(event.key, str)
                owner.write(frame, event.key, value)
            else:
                assert isinstance(owner, ListValue) and isinstance(event.key, Value)
                place = self.number(event.key)
                assert place is not None
                owner.write(frame, place, told.of(event.key), value)
        told.leave(self._followed.numbers)

    def owner_for(self, owner: Owner) -> Owner:
        """What takes the place of a list or object."""
        return self._pairs.owners[id(owner)]


class _Retold:
    """The events of a call that is done once more, told to the journal of the call that it is part of."""

    def __init__(
        self, repetition: Repetition, journal: Journal, counterpart: Callable[[Value], Value],
        named: Mapping[Source, FollowedNumber],
    ) -> None:
        self._repetition, self._journal, self._counterpart, self._named = repetition, journal, counterpart, named
        self._numbers: dict[int, FollowedNumber] = {}
        """By the id of a number of the first call the one that is followed in its place."""

    def of(self, value: Value) -> Value:
        """What takes the place of a value. Numbers that the call was given are known."""
        return self._numbers.get(id(value)) or self._counterpart(value)

    def _followed(self, number: FollowedNumber) -> FollowedNumber:
        known = self._repetition.number(number)
        assert known is not None
        return self._numbers.setdefault(id(number), FollowedNumber(self._journal, known))

    def tell(self, event: Event) -> None:
        if not self._journal.is_kept:
            return
        add, owner_for = self._journal.add, self._repetition.owner_for
        match event:
            case Read(owner, key, found):
                known = self._followed(found) if isinstance(found, FollowedNumber) else found and self.of(found)
                add(Read(owner_for(owner), key if isinstance(key, str) else self.of(key), known))
            case Held(owner, keys, values):
                add(Held(owner_for(owner), keys, tuple(value and self.of(value) for value in values)))
            case Length(owner, number):
                add(Length(owner_for(owner), self._followed(number)))
            case Named(number, source):
                if source in self._named:  # which the journal was told when it was read
                    self._numbers[id(number)] = self._named[source]
                else:  # the number is the same for both calls
                    add(Assumed(source))
            case Computed(number, function, (first, second)):
                operands = self.of(first), self.of(second)
                add(Computed(self._followed(number), function, operands))
            case Compared(outcome, function, (first, second)):
                add(Compared(outcome, function, (self.of(first), self.of(second))))
            case LookedAt(number):
                self._look_at(number)

    def _look_at(self, number: FollowedNumber) -> None:
        if id(number) in self._numbers:
            self._journal.add(LookedAt(self._numbers[id(number)]))

    def leave(self, numbers: Iterable[FollowedNumber]) -> None:
        """What is left behind of the call holds these, as plain numbers."""
        for number in numbers:
            self._look_at(number)
