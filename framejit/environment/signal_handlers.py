"""Exceptions that the program's handlers of signals raise: they come in the midst of our own work, and are none of its
errors."""

from __future__ import annotations

# the module `signal` makes enums of all numbers, which takes a quarter of a millisecond
import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any


class Interrupted(BaseException):
    """What a handler has raised, on its way past all that expects errors of other kinds."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@contextmanager
def handlers_told_apart() -> Iterator[None]:
    """Inside, an error that a handler raises is an `Interrupted`. Interrupts and exits are what they are."""
    if threading.get_ident() != threading.main_thread().ident:  # which alone runs handlers
        yield
        return
    # the handler that raises KeyboardInterrupt raises no Exception
    stand_ins = {n: _stand_in(handler) for n, handler in _handlers() if handler is not signal.default_int_handler}
    before = {number: _signal.signal(number, stand_in) for number, stand_in in stand_ins.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if _signal.getsignal(number) is stand_ins[number]:  # a handler may have set another
                _signal.signal(number, handler)


def handlers_part(error: BaseException) -> TracebackType | None:
    """The part of a traceback that begins with a handler of a signal."""
    codes = {code for _, handler in _handlers() if (code := _code(handler)) is not None}
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code not in codes:
        found = found.tb_next
    return found


def _handlers() -> Iterator[tuple[int, Callable[..., Any]]]:
    for number in range(1, signal.NSIG):
        handler = _signal.getsignal(number)
        if callable(handler):
            yield number, handler


def _stand_in(handler: Callable[..., Any]) -> Callable[[int, FrameType | None], None]:
    def told_apart(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except Exception as e:
            raise Interrupted(e) from None

    return told_apart


def _code(handler: Any) -> CodeType | None:
    """The code that a handler runs, if that is Python's."""
    while isinstance(handler, (partial, MethodType)):
        handler = handler.func if isinstance(handler, partial) else handler.__func__
    if not isinstance(handler, FunctionType):
        handler = next((vars(cls)["__call__"] for cls in type(handler).__mro__ if "__call__" in vars(cls)), None)
    return handler.__code__ if isinstance(handler, FunctionType) else None
