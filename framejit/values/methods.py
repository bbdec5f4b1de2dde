"""Methods of built-in types, each a function of the value's class that says which methods of the type it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from framejit.values.base import Value

if TYPE_CHECKING:
    from framejit.values.context import Frame

Function = TypeVar("Function", bound=Callable[..., Value])


class _Method(NamedTuple):
    function: Callable[..., Value]
    least: int
    most: float
    tells_name: bool
    takes_names: bool

    def fits(self, n_args: int, kwargs: dict[str, Value]) -> bool:
        return self.least <= n_args <= self.most and (not kwargs or self.takes_names)


def method(*names: str, tells_name: bool = False) -> Callable[[Function], Function]:
    """Mark a function as what methods of these names do. It gets the values they are called with, with `tells_name`
    after the name."""

    def mark(function: Function) -> Function:
        function._methods = names, tells_name  # type: ignore[attr-defined]
        return function

    return mark


def _described(function: Any, tells_name: bool) -> _Method:
    code, n_defaults = function.__code__, len(function.__defaults__ or ())
    most = code.co_argcount - 2 - tells_name
    takes_any, takes_names = bool(code.co_flags & inspect.CO_VARARGS), bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return _Method(function, most - n_defaults, float("inf") if takes_any else most, tells_name, takes_names)


class BuiltinMethods(Value):
    """A value of a built-in type whose methods are functions marked with `method`."""

    _methods: ClassVar[dict[str, _Method]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._methods = dict(cls._methods)
        for function in list(vars(cls).values()):
            names, tells_name = (
                getattr(function, "_methods", ((), False)) if inspect.isfunction(function) else ((), False)
            )
            cls._methods.update({name: _described(function, tells_name) for name in names})

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found = self._methods.get(name)
        if found is None or not found.fits(len(args), kwargs):
            return super().call_method(frame, name, args, kwargs)
        return (
            found.function(self, frame, name, *args, **kwargs)
            if found.tells_name
            else found.function(self, frame, *args, **kwargs)
        )
