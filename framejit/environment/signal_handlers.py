"""Handlers of the program's signals run between any two instructions of Python, and what they raise may leave half
done what is never to be: a mode of torch that is entered or left. So while framejit works, signals wait."""

from __future__ import annotations

# the module `signal` makes enums of all numbers, which takes a quarter of a millisecond
import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any, Final, NamedTuple


class _Signal(NamedTuple):
    number: int
    frame: FrameType | None


_came: Final[list[_Signal]] = []
_handlers_now: Final[dict[int, Callable[..., Any]]] = {}
"""The program's handlers, while signals wait."""


class _Raised(BaseException):
    """What a handler has raised, on its way past all that expects errors."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class SignalsWait:
    """In this block signals are noted only; at its end, and where `look_for_signals` is called, their handlers run.

    What one of them raises leaves the block as it is. A second interrupt does not wait: whoever sends it has seen that
    the first one does.
    """

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        """What leaves the block, if a handler has raised it."""
        self._is_outermost = False

    def __enter__(self) -> SignalsWait:
        # the main thread alone runs handlers
        if not _handlers_now and threading.get_ident() == threading.main_thread().ident:
            self._is_outermost = True
            try:
                _handlers_now.update(_handlers())
                for number in _handlers_now:
                    _signal.signal(number, _note)
            except BaseException:
                _put_back()
                raise
        return self

    def __exit__(self, cls: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._is_outermost:
            handlers, raised = _put_back()
            try:
                if raised is not None:
                    raise _Raised(raised)
                while _came:
                    _run(_came.pop(0), handlers)
            except _Raised as e:
                error = e
        if isinstance(error, _Raised):
            self.raised = error.error
            raise self.raised from None


def look_for_signals() -> None:
    """Run the handlers of signals that have come: called where nothing is half done."""
    while _came and _handlers_now:
        _run(_came.pop(0), _handlers_now)


def go_without_handlers() -> None:
    """In a forked process: none of the program's handlers ever runs, for signals that have come neither."""
    _came.clear()
    _handlers_now.clear()
    for number in range(1, signal.NSIG):
        if callable(_signal.getsignal(number)):
            _signal.signal(number, _signal.SIG_DFL)


def handlers_part(error: BaseException) -> TracebackType | None:
    """The part of a traceback that begins with a handler of a signal."""
    handlers = [*_handlers_now.values(), *(handler for _, handler in _handlers())]
    codes = {code for handler in handlers if (code := _code(handler)) is not None}
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code not in codes:
        found = found.tb_next
    return found


def _handlers() -> Iterator[tuple[int, Callable[..., Any]]]:
    for number in range(1, signal.NSIG):
        handler = _signal.getsignal(number)
        if callable(handler) and handler is not _note:
            yield number, handler


def _note(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT and any(other.number == number for other in _came):
        _run(_Signal(number, frame), _handlers_now)
    _came.append(_Signal(number, frame))


def _run(came: _Signal, handlers: dict[int, Callable[..., Any]]) -> None:
    try:
        handlers[came.number](came.number, came.frame)
    except BaseException as e:
        e.__traceback__ = e.__traceback__ and e.__traceback__.tb_next  # without this frame
        raise _Raised(e) from None


def _put_back() -> tuple[dict[int, Callable[..., Any]], BaseException | None]:
    """Have the program's handlers serve again. These, and what one of them has raised meanwhile."""
    handlers, left, raised = dict(_handlers_now), list(_handlers_now), None
    while left:
        try:
            while left:
                if _signal.getsignal(left[-1]) is _note:  # a handler may have set another
                    _signal.signal(left[-1], handlers[left[-1]])
                left.pop()
        except BaseException as e:  # of a handler that serves again
            raised = e
    _handlers_now.clear()
    return handlers, raised


def _code(handler: Any) -> CodeType | None:
    """The code that a handler runs, if that is Python's."""
    while isinstance(handler, (partial, MethodType)):
        handler = handler.func if isinstance(handler, partial) else handler.__func__
    if not isinstance(handler, FunctionType):
        handler = next((vars(cls)["__call__"] for cls in type(handler).__mro__ if "__call__" in vars(cls)), None)
    return handler.__code__ if isinstance(handler, FunctionType) else None
