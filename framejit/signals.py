"""Control flow between the interpreter and the values, as exceptions."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.objects.exception_values import ExceptionValue


class Unsupported(Exception):
    """Raised where an instruction can't be captured, and the graph breaks. `code` is the stable finding code."""

    def __init__(self, reason: str, code: str = "FJ199", hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.code, self.hint = reason, code, hint
        self.operands: list[tuple[str, Any]] | None = None  # what the instruction worked on, set where the graph breaks
        # guards (source, check, payload) without which there might be no break
        self.assumes: list[tuple[Source, int, Any]] = []

    def again(self) -> Unsupported:
        """A signal of its own with this reason, for another place; raising one object twice would tie the frames of
        both places together."""
        return Unsupported(self.reason, self.code, self.hint)


class AsksForNumber(Unsupported):
    """An operation asks a tensor for the number in it."""


class LooksAtFrame(Unsupported):
    """The program looks at the frame that executes this instruction, so that function has to run as a whole."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "FJ201", "call it outside the compiled function")


class SkipFrame(Exception):
    """Raised where a frame is left to plain Python, for the reason given."""

    def __init__(self, reason: str, code: str = "FJ299") -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


class NotYet(SkipFrame):
    """Raised where a call is left to plain Python, which changes what stands in the way; the next one is worth another
    attempt."""


class CostsTooMuch(NotYet):
    """Compiling would take longer than the program has run, which may be over before that has paid back. `seconds` from
    now it will have run for as long."""

    def __init__(self, seconds: float) -> None:
        super().__init__("compiling would take longer than the program has run", "FJ212")
        self.seconds = seconds


class ImportUnderWay(NotYet):
    """Another thread is importing what captures need; that ends, however many calls there are until then."""


class ResultPlace(NamedTuple):
    """A result of a node: the step of the capture that made it, the node's number among those of that step, and which
    of its results it is."""

    seq: int
    number: int
    item: int


class Restart(Exception):
    """Capture again from the start and break the graph at step `seq`, because its effects can't be kept."""

    def __init__(self, seq: int, reason: Unsupported) -> None:
        super().__init__(reason.reason)
        self.seq, self.reason = seq, reason


class SizesMustBeKnown(Exception):
    """Capture again, and break the graph where numbers are read that were taken for sizes."""


class FunctionStaysWhole(Exception):
    """Capture again, and leave calls of an `autograd.Function` whole: its backward can't be traced."""

    def __init__(self, function: type) -> None:
        super().__init__(function.__qualname__)
        self.function = function


class NeedsHistories(Exception):
    """Capture again, with a history of its own for each layer that is stamped out: captured code asks for gradients of
    gradients."""


class NeedsStandIns(Exception):
    """Capture again, with leaves of the graph in the place of the tensors that these sources lead to, for hooks to be
    called where their gradients come; None: with no such leaves at all."""

    def __init__(self, names: frozenset[str] | None) -> None:
        super().__init__(names)
        self.names = names


class NeedsCuts(Exception):
    """Capture again, and cut off the histories of the results at these places when they are made: hooks are put on them
    once they are used; None: cut off none so early."""

    def __init__(self, places: frozenset[ResultPlace] | None) -> None:
        super().__init__(places)
        self.places = places


class RaisesAsCompiled(Exception):
    """Capture again, and tell libraries that nothing is compiled: what they do for a compiler raises."""


class Selecting(NamedTuple):
    """Both branches of an `if` are being captured: a break in one of them is one of step `seq`, for `refusal`, and so
    is growing beyond `most_operations` of the graph."""

    seq: int
    refusal: Unsupported
    most_operations: int


class Raised(Exception):
    """The captured program raises `value`."""

    def __init__(self, value: ExceptionValue) -> None:
        super().__init__(value)
        self.value = value


class Exhausted(Exception):
    """An iterator has no more items; `value` is what its StopIteration carries, if anything."""

    def __init__(self, value: Any = None) -> None:
        super().__init__()
        self.value = value


class NotConstant(Unsupported):
    """The value is not known to be a constant; where nobody deals with that, the graph breaks."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} must be known before the program runs", "FJ121")
        self.what = what


def forget_frames(signal: BaseException) -> None:
    """Let go of the frames a signal went through, once nobody looks at it any more.

    They hold the captured program's values, and often the signal itself: such a cycle would keep the user's objects
    until a collection.
    """
    signal.__traceback__ = signal.__context__ = signal.__cause__ = None
