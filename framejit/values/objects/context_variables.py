"""`contextvars.ContextVar`: what a variable has in the context that runs is guarded like any object. What captured code
sets is kept aside and set behind the graph, if it was not reset before that."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.sources import CallSource
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE
from framejit.values.objects.inherited_methods import KNOWN_METHODS, written_in_c
from framejit.values.objects.user_object import ObjectValue
from framejit.values.wrap import wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Codegen, Frame


class _Unset:
    """What stands for a variable without a value."""


_UNSET: Final = _Unset()


def value_of(variable: contextvars.ContextVar[Any]) -> Any:
    """What a variable is set to, whatever default it has."""
    return variable.get(_UNSET)


class ContextVariableValue(ObjectValue):
    """A variable. `now` is what captured code has set it to; None where it has what it had before."""

    now: Value | None = None

    def children(self) -> Iterator[Value]:
        yield from super().children()
        if self.now is not None:
            yield self.now

    def get(self, frame: Frame, default: list[Value]) -> Value:
        if self.now is not None:
            return self.now
        assert self.source is not None
        variable, own = self.obj, CallSource(self.source, value_of)
        found = value_of(variable)
        if found is not _UNSET:
            return frame.wrap(found, own)
        frame.capture.add_guard(own, native.C_ID, _UNSET)
        if default:
            return default[0]
        try:
            known = variable.get()
        except LookupError as e:
            raise frame.raised(LookupError, *e.args) from None
        return frame.wrap(known, CallSource(self.source, contextvars.ContextVar.get))

    def set(self, frame: Frame, value: Value) -> Value:
        token = TokenValue(self, self.now, frame.seq)
        frame.capture.effects.changed(self)
        self.now = value
        return token

    def reset(self, frame: Frame, token: Value) -> Value:
        token = realize(frame, token)
        if not isinstance(token, TokenValue) or token.variable is not self or token.is_used:
            raise written_in_c(self, "reset")  # which raises, or goes back to before the captured code
        frame.capture.effects.changed(self)
        self.now, token.is_used = token.before, True
        return NONE

    def replay(self, cg: Codegen) -> None:
        if self.now is not None:
            cg.call_method(self, "set", self.now)
            cg.em.pop()


class TokenValue(Value):
    """What setting a variable in captured code gives: it is good for resetting the variable there, and for no more."""

    def __init__(self, variable: ContextVariableValue, before: Value | None, made_at: int) -> None:
        self.variable, self.before, self._made_at = variable, before, made_at
        self.is_used = False

    def python_type(self) -> type:
        return contextvars.Token

    def describe(self) -> str:
        return f"the token of setting {self.variable.describe()}"

    def children(self) -> Iterator[Value]:
        yield self.variable
        if self.before is not None:
            yield self.before

    def reconstruct(self, cg: Codegen) -> None:
        cg.capture.break_at(self._made_at, Unsupported(f"{self.describe()} leaves captured code", "FJ111"))


def _call(frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not isinstance(owner, ContextVariableValue) or kwargs:
        raise written_in_c(owner, name)
    if name == "get" and len(args) < 2:
        return owner.get(frame, args)
    if name == "set" and len(args) == 1:
        return owner.set(frame, args[0])
    if name == "reset" and len(args) == 1:
        return owner.reset(frame, args[0])
    raise written_in_c(owner, name)


KNOWN_METHODS[contextvars.ContextVar] = _call


@wraps(contextvars.ContextVar)
def _variable(capture: Capture, obj: contextvars.ContextVar[Any], source: Source) -> Value:
    capture.add_guard(source, native.C_ID, obj)
    return ContextVariableValue(contextvars.ContextVar, obj, source)
