"""Readings of clocks, `time.perf_counter()` or `datetime.now()`: the graph reads the clock (`backends/clock_reads.py`),
and what it shows is used as a number that is read from a tensor."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from framejit.backends.clock_reads import CLOCK_READ, CLOCKS, MOST, gives_int
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue, is_none
from framejit.values.handlers import HANDLERS
from framejit.values.runtime_numbers.number_texts import text_made_of
from framejit.values.runtime_numbers.python_random import place_of_numbers
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_HINT: Final = "read it outside the compiled function, or compile the parts before and after on their own"


def _read(name: str, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`time.perf_counter()` and the like."""
    capture = frame.capture
    if args or kwargs or capture.transforms or capture.overrides.modes:
        return None
    shown = capture.graph.call(CLOCK_READ, [ConstantValue(name), place_of_numbers(frame)])
    assert isinstance(shown, TensorValue)
    capture.reads_numbers = True
    refusal = Unsupported(f"time.{name}() gives a number that only the program's run tells", "FJ110", _HINT)
    bounds = (0, MOST if gives_int(name) else math.inf)
    return ReadNumberValue(capture, shown, frame.seq, refusal, bounds)


class MomentValue(Value):
    """What `datetime.now()` gives: the moment that a number of seconds says."""

    built_once = True

    def __init__(self, seconds: ReadNumberValue) -> None:
        self.seconds = seconds

    def python_type(self) -> type:
        return datetime.datetime

    def describe(self) -> str:
        return "the time of datetime.now()"

    def children(self) -> Iterator[Value]:
        return iter((self.seconds,))

    def text(self, method: str, args: Sequence[Value]) -> Value | None:
        """What a method writes of it, where the arguments are known."""
        if not all(isinstance(arg, ConstantValue) for arg in args):
            return None
        return text_made_of(_text_of_moment, [ConstantValue(method), self.seconds, *args])

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        written = self.text(name, [realize(frame, arg) for arg in args]) if name in _TEXTS and not kwargs else None
        return super().call_method(frame, name, args, kwargs) if written is None else written

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(datetime.datetime.fromtimestamp, lambda: cg.load(self.seconds))


_TEXTS: Final = frozenset(("isoformat", "strftime", "ctime", "__format__", "__str__", "__repr__"))


def _text_of_moment(method: str, seconds: float, *args: Any) -> str:
    text: str = getattr(datetime.datetime.fromtimestamp(seconds), method)(*args)
    return text


def _now(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`datetime.now()`."""
    given = [realize(frame, value) for value in (*args, *kwargs.values())]
    if not all(is_none(value) for value in given):
        return None
    seconds = _read("time", frame, [], {})
    return MomentValue(seconds) if isinstance(seconds, ReadNumberValue) else None


def _local_text(template: str, seconds: float) -> str:
    return time.strftime(template, time.localtime(seconds))


def _write(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`time.strftime(template)`."""
    template = realize(frame, args[0]) if len(args) == 1 and not kwargs else None
    if not isinstance(template, ConstantValue) or type(template.value) is not str:
        return None
    seconds = _read("time", frame, [], {})
    return None if seconds is None else text_made_of(_local_text, [template, seconds])


for _name, _clock in CLOCKS.items():
    HANDLERS[_clock] = partial(_read, _name)
HANDLERS[datetime.datetime.now], HANDLERS[time.strftime] = _now, _write
