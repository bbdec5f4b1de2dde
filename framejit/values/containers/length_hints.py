"""What `list`, `tuple` and the like do before they take the items of an object: they ask how many there may be, and
that runs code of its class."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.signals import Raised, Unsupported
from framejit.values.base import Value, is_user_object, realize
from framejit.values.constant import ConstantValue
from framejit.values.inspection import is_a
from framejit.values.sym_int import SymIntValue

if TYPE_CHECKING:
    from framejit.values.context import Frame
    from framejit.values.objects.user_object import ObjectValue

_WRITTEN_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType)


def gathered(frame: Frame, iterable: Value) -> Iterator[Value]:
    """The items of a finite iterable whose length is asked for first."""
    iterable = realize(frame, iterable)
    if not is_user_object(iterable) or not any(
        _asks_the_program(iterable.cls, name) for name in ("__len__", "__length_hint__")
    ):
        return frame.iterate(iterable)
    iterator = frame.get_iter(iterable)
    _ask(frame, iterable)
    return frame.drain(iterator)


class _Probe:
    asked = False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        self.asked = True
        return 0


_probe = _Probe()
tuple(_probe)


def gathered_in_tuple(frame: Frame, iterable: Value) -> Iterator[Value]:
    """The items of a finite iterable that CPython makes a tuple of; since a late release of 3.14 it does not ask for
    their number."""
    return gathered(frame, iterable) if _probe.asked else frame.iterate(iterable)


def _asks_the_program(cls: type, name: str) -> bool:
    found = static_lookup(cls, name, None)
    return found is not None and not is_a(found, _WRITTEN_IN_C)


def _ask(frame: Frame, value: ObjectValue) -> None:
    """What `operator.length_hint` does. A TypeError means that there is no such length."""
    for name in ("__len__", "__length_hint__"):
        if not _asks_the_program(value.cls, name):
            if name == "__len__" and static_lookup(value.cls, name, None) is not None:
                return
            continue
        try:
            with frame.catching():
                answer = realize(frame, frame.call(value.special(frame, name), [], {}))  # type: ignore[arg-type]
        except Raised as e:
            if not issubclass(e.value.cls, TypeError):
                raise
            continue
        is_length = (
            isinstance(answer, SymIntValue)
            or isinstance(answer, ConstantValue)
            and isinstance(answer.value, int)
            and 0 <= answer.value <= _LARGEST
        )
        if not is_length and not (
            name == "__length_hint__" and isinstance(answer, ConstantValue) and answer.value is NotImplemented
        ):
            raise Unsupported(f"{name}() of {value.describe()} gives something that is no length", "FJ161")
        return


_LARGEST = 2**31
