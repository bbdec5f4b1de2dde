"""Objects in text that CPython puts together: `repr([config])`, `"%s: %r" % (name, config)`, `"{}".format(config)`.

CPython's own code works on copies of containers and text, in which a stand-in has the place of each object. Asked for
its text, the stand-in has what the class says of that captured. What asks for anything else breaks the graph.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.folding import plain
from framejit.values.inspection import is_a

if TYPE_CHECKING:
    from framejit.values.context import Frame

TextOf = Callable[["Frame", Any, "list[Value]"], Value]


class _Showing:
    """One function of CPython's that is given stand-ins, and what was raised by what they asked."""

    def __init__(self, frame: Frame, text_of: TextOf) -> None:
        self.frame, self.text_of = frame, text_of
        self.made = False
        self.raised: BaseException | None = None

    def ask(self, function: Any, args: list[Value]) -> Any:
        try:
            return self.text_of(self.frame, function, args).constant()
        except BaseException as e:
            self.raised = e
            raise


class ShownObject:
    """What stands for an object of the program."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[Any, list[Value]], Any]) -> None:
        object.__setattr__(self, "_ask", ask)

    def __str__(self) -> Any:
        return object.__getattribute__(self, "_ask")(str, [])

    def __repr__(self) -> Any:
        return object.__getattribute__(self, "_ask")(repr, [])

    def __format__(self, spec: str) -> Any:
        return object.__getattribute__(self, "_ask")(format, [ConstantValue(spec)])

    def __call__(self) -> NoReturn:
        raise TypeError  # it can be called where a defaultdict asks for that, and is not

    def __getattribute__(self, name: str) -> NoReturn:
        raise AttributeError(name)


_METHODS: Final = ("__repr__", "__str__", "__format__")
_LIBRARIES: Final = sys.stdlib_module_names | {"torch", "numpy"}


def writes_own_text(cls: type) -> bool:
    """Whether the program says what the text of a class's instances is: that is to run when the program does."""
    found = [static_lookup(cls, name, None) for name in _METHODS]
    return any(
        is_a(method, types.FunctionType)
        and str(method.__globals__.get("__name__")).partition(".")[0] not in _LIBRARIES
        for method in found
    )


def _check(obj: Any) -> None:
    """Break where CPython would run code of the program, now, for the text of an object or of what it holds."""
    if type(obj) is not ShownObject and writes_own_text(type(obj)):
        raise Unsupported(f"text of a {type(obj).__name__}", "FJ125")
    if is_a(obj, dict):
        for part in (*obj.keys(), *obj.values()):
            _check(part)
    elif is_a(obj, (tuple, list, set, frozenset, deque)):
        for part in obj:
            _check(part)


_now: list[_Showing] = []
_containers: list[Value] = []
"""Whose text is being made: CPython writes a container within itself as dots, of which copies know nothing."""


def stand_in(value: Value) -> ShownObject | None:
    """What has the place of an object in the copy of a container; None while no text is made of it."""
    if not _now:
        return None
    showing = _now[-1]
    showing.made = True
    return ShownObject(lambda function, args: showing.ask(function, [value, *args]))


def text_by_cpython(
    frame: Frame, text_of: TextOf, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """The text that a function makes of constants, containers and objects; `text_of` has `str()`, `repr()` and
    `format()` of an object."""
    showing = _Showing(frame, text_of)
    with _shown(args):
        _now.append(showing)
        try:
            given, named = [plain(frame, a) for a in args], {k: plain(frame, v) for k, v in kwargs.items()}
        except RecursionError:
            raise Unsupported("text of a container that holds itself", "FJ125") from None
        finally:
            _now.pop()
        _check((given, named))
        try:
            return ConstantValue(function(*given, **named))
        except Exception as e:
            if e is showing.raised:
                raise
            if showing.made:  # it may speak of the stand-in
                raise Unsupported(f"text of an object, which raises {type(e).__name__}", "FJ125") from None
            raise frame.raised_from(e) from None


@contextlib.contextmanager
def _shown(values: list[Value]) -> Iterator[None]:
    if any(value is known for value in values for known in _containers):
        raise Unsupported("text of a container that holds itself", "FJ125")
    before = len(_containers)
    _containers.extend(value for value in values if not value.is_constant())
    try:
        yield
    finally:
        del _containers[before:]
