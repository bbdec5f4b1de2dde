"""`with warnings.catch_warnings():` in captured code, and the filters that are set inside.

At its end all filters are as they were, so that a block in which nothing warns leaves one trace: what was shown once
may be shown again. Where something in the block may warn, and where captured code ends inside of it, plain Python
enters it.
"""
from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from torch import fx

from framejit.backends.may_raise import may_warn, operation_name, warns_at_times
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.handlers import handles
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.context_managers import ManagerValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_ACTIONS: Final = frozenset(("default", "error", "ignore", "always", "module", "once"))
_WARN_ONCE: Final = frozenset(("meshgrid", "cross"))
"""Operations of which torch warns once in a process, for how they are called."""


def forget_what_was_shown() -> None:
    """Filters have changed and changed back: Python no longer knows which warnings it has shown."""
    with warnings.catch_warnings():
        pass


class Forgets(Value):
    """What has Python forget which warnings it has shown."""

    def python_type(self) -> type:
        return type(forget_what_was_shown)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(forget_what_was_shown)


class CaughtWarningsValue(ManagerValue):
    """A `warnings.catch_warnings()` that captured code has made, which records nothing."""

    def __init__(self, made_at: int) -> None:
        self.made_at = made_at
        self._begin: fx.Node | None = None
        """The last node before it was entered."""
        self._is_entered = False

    def python_type(self) -> type:
        return warnings.catch_warnings

    def enter(self, frame: Frame) -> Value:
        capture = frame.capture
        if self._is_entered:
            capture.break_at(self.made_at, _refusal("is entered twice"))
        self._is_entered, self._begin = True, capture.graph.last_node()
        capture.caught_warnings.append(self)
        capture.effects.version += 1
        return NONE

    def leave(self, frame: Frame) -> Value:
        capture = frame.capture
        if not capture.caught_warnings or capture.caught_warnings.pop() is not self:
            capture.break_at(self.made_at, _refusal("is left out of its order"))
        assert self._begin is not None
        if any(map(_may_warn, capture.graph.nodes_behind(self._begin))):
            capture.break_at(self.made_at, _refusal("is around what may warn"))
        capture.effects.call_behind(Forgets(), [], {})
        return NONE

    def reconstruct(self, cg: Codegen) -> None:
        cg.capture.break_at(self.made_at, _refusal("has a graph break inside"))


def _refusal(what: str) -> Unsupported:
    return Unsupported(f"warnings.catch_warnings() {what}", "FJ126")


def _may_warn(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method"):
        return False
    name = operation_name(node.target)
    if name is None or name in _WARN_ONCE:  # code of the program, say
        return True
    if not warns_at_times(node.target):
        return False
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda given: given.meta.get("val"))
    return may_warn(node.target, args, kwargs)


_SIMPLE: Final = ("action", "category", "lineno", "append")
_FILTERS: Final = {
    warnings.simplefilter: _SIMPLE,
    warnings.filterwarnings: ("action", "message", "category", "module", "lineno", "append"),
    warnings.resetwarnings: (),
}
"""What takes filters, with the names of its arguments."""


@handles(warnings.catch_warnings)
def _catch_warnings(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    others = {name: kwargs[name] for name in kwargs if name not in _SIMPLE}
    filters = {name: kwargs[name] for name in kwargs if name in _SIMPLE}
    usual = {"record": False, "module": None}
    is_usual = all(name in usual and _constant(frame, value) is usual[name] for name, value in others.items())
    if args or not is_usual or filters and ("action" not in filters or not _are_known(frame, filters)):
        return None
    return CaughtWarningsValue(frame.seq)


def _set_inside(names: tuple[str, ...], frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What sets filters, which are as they were when the block around is left."""
    given = dict(zip(names, args)) | kwargs
    is_call = len(args) + len(kwargs) == len(given) and given.keys() <= {*names} and ("action" in given or not names)
    return NONE if frame.capture.caught_warnings and is_call and _are_known(frame, given) else None


for _function, _names in _FILTERS.items():
    handles(_function)(partial(_set_inside, _names))


def _are_known(frame: Frame, filters: dict[str, Value]) -> bool:
    """Whether arguments for filters are known, and surely accepted."""
    found = {name: _constant(frame, value) for name, value in filters.items()}
    return all(_CHECKS[name](value) for name, value in found.items())


def _constant(frame: Frame, value: Value) -> Any:
    """What a value is known to be; else something that nothing accepts."""
    value = realize(frame, value)
    return value.constant() if isinstance(value, (ClassValue, ConstantValue)) else object()


def _is_pattern(text: Any) -> bool:
    try:
        return type(text) is str and re.compile(text) is not None
    except re.error:
        return False


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "action": lambda action: type(action) is str and action in _ACTIONS,
    "category": lambda cls: isinstance(cls, type) and issubclass(cls, Warning),
    "message": _is_pattern,
    "module": _is_pattern,
    "lineno": lambda line: type(line) is int and line >= 0,
    "append": lambda last: type(last) is bool,
}
