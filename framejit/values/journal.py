"""What a call does with lists and objects that captured code has made, and with whole numbers: each look and each
change, in order. Of what existed before the capture, guards say what was looked at; this says it of the rest.

While a call is followed, an int that it reads from what it is given is a `FollowedNumber`. What is only computed from
it, compared, or looked up by it is an event; where its value goes anywhere else, that is one, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from framejit.values.constant import ConstantValue

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.base import Value
    from framejit.values.containers.lists import ListValue
    from framejit.values.context import Frame
    from framejit.values.objects.user_object import ObjectValue

    Owner: TypeAlias = ListValue | ObjectValue


class Read(NamedTuple):
    """An item of a list, or an attribute of an object; None where there is none."""

    owner: Owner
    key: Value | str
    found: Value | None


class Held(NamedTuple):
    """All that an owner holds was looked at, or something in it in a manner that is not followed."""

    owner: Owner
    keys: tuple[str, ...]
    values: tuple[Value | None, ...]


class Length(NamedTuple):
    """The length of a list was asked for."""

    owner: Owner
    number: FollowedNumber


class Wrote(NamedTuple):
    """An item or attribute was given a value."""

    owner: Owner
    key: Value | str
    value: Value


class Appended(NamedTuple):
    """A value was put behind the items of a list."""

    owner: Owner
    value: Value


class Changed(NamedTuple):
    """An owner was changed in a manner that is not followed."""

    owner: Owner


class Named(NamedTuple):
    """A number was read from an existing object."""

    number: FollowedNumber
    source: Source


class Computed(NamedTuple):
    """A number was computed from others."""

    number: FollowedNumber
    function: Callable[[int, int], Any]
    operands: tuple[Value, Value]


class Compared(NamedTuple):
    """Numbers were compared."""

    outcome: bool
    function: Callable[[int, int], Any]
    operands: tuple[Value, Value]


class LookedAt(NamedTuple):
    """The value of a number went somewhere."""

    number: FollowedNumber


class Assumed(NamedTuple):
    """A guard was made of what is read at a source."""

    source: Source


Event = Read | Held | Length | Wrote | Appended | Changed | Named | Computed | Compared | LookedAt | Assumed


class Journal:
    """The events of one capture, while a call is followed."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._calls = 0
        self._owners: dict[int, Owner] = {}

    @property
    def is_kept(self) -> bool:
        """Whether a call is being followed."""
        return self._calls > 0

    def begin(self, owners: Iterable[Owner]) -> int:
        """Follow a call, which may come to these owners; gives the number of events before it."""
        self._calls += 1
        for owner in owners:
            self._owners[id(owner)] = owner
            owner.journal = self
        return len(self.events)

    def end(self) -> None:
        """The call has come to its end."""
        self._calls -= 1
        if not self._calls:
            for owner in self._owners.values():
                owner.journal = None
            self._owners.clear()
            self.events = []

    def add(self, event: Event) -> None:
        if self._calls:
            self.events.append(event)

    def read(self, owner: Owner, key: Value | str, found: Value | None) -> Value | None:
        """Note what was found, and give it: a number is followed from here on."""
        if found is not None:
            found = self.follow(found)
        self.add(Read(owner, key, found))
        return found

    def length(self, owner: Owner, length: int) -> Value:
        number = FollowedNumber(self, length)
        self.add(Length(owner, number))
        return number

    def named(self, known: int, source: Source) -> FollowedNumber:
        """An int that is read at a source."""
        number = FollowedNumber(self, known, source)
        self.add(Named(number, source))
        return number

    def follow(self, value: Value) -> Value:
        """The value; if it is a number, one that is followed."""
        if (
            self._calls
            and isinstance(value, ConstantValue)
            and not isinstance(value, FollowedNumber)
            and type(value.value) is int
        ):
            return FollowedNumber(self, value.value, value.source)
        return value


class FollowedNumber(ConstantValue):
    """An int of which is written down where its value goes."""

    def __init__(self, journal: Journal, known: int, source: Source | None = None) -> None:
        self.journal, self.known, self.source = journal, known, source

    @property
    def value(self) -> int:
        """What it is, for whoever is not followed."""
        self.journal.add(LookedAt(self))
        return self.known

    @property
    def enters_natively(self) -> bool:  # type: ignore[override]
        return False

    def python_type(self) -> type:
        return int

    def truth(self, frame: Frame) -> bool:
        self.journal.add(Compared(self.known != 0, operator.ne, (self, ConstantValue(0))))
        return self.known != 0

    def is_constant(self) -> bool:
        return True


_FOLLOWED: Final = frozenset((
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod,
    operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge,
))
"""Operators whose results are events."""


def int_of(value: Value) -> int | None:
    """The int that a value is known to be; None for others."""
    if isinstance(value, FollowedNumber):
        return value.known
    if isinstance(value, ConstantValue) and type(value.value) is int:
        return value.value
    return None


def of_followed(function: Callable[[int, int], Any], a: Value, b: Value) -> Value | None:
    """What an operator gives of ints of which one is followed, at least; None for others, and where it raises."""
    if function not in _FOLLOWED or not (isinstance(a, FollowedNumber) or isinstance(b, FollowedNumber)):
        return None
    journal = (a if isinstance(a, FollowedNumber) else b).journal  # type: ignore[attr-defined]
    first, second = int_of(a), int_of(b)
    if first is None or second is None or not journal.is_kept:
        return None
    try:
        result = function(first, second)
    except (ArithmeticError, ValueError):
        return None
    if type(result) is bool:
        journal.add(Compared(result, function, (a, b)))
        return ConstantValue(result)
    if type(result) is not int:
        return None
    number = FollowedNumber(journal, result)
    journal.add(Computed(number, function, (a, b)))
    return number
