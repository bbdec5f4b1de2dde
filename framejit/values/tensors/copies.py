"""Copies that a graph makes in the place of what the program has: a view of an element that data decides, one of two
tensors that an `if` leaves.

A copy does as long as nothing can tell: nothing writes into it, nor into what it is a copy of before it is used, and it
does not leave captured code. Otherwise the capture starts again, and breaks at the step that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from framejit.signals import Unsupported
    from framejit.values.context import Capture, Codegen
    from framejit.values.tensors.tensor import TensorValue


class Copy:
    """A copy in the graph where the program has the memory itself, in one of the storages `of`. Views of it are the
    same copy."""

    def __init__(self, capture: Capture, seq: int, refusal: Unsupported, of: set[int]) -> None:
        self.capture, self.seq, self.refusal, self.of = capture, seq, refusal, of
        self.is_stale = False
        self.candidates: list[TensorValue] | None = []
        """The tensors that the program may have there, besides new ones; None where they are not known."""

    def refuse(self) -> NoReturn:
        self.capture.break_at(self.seq, self.refusal)

    def note_written(self, storages: set[int]) -> None:
        """Something was written into these storages."""
        self.is_stale = self.is_stale or not self.of.isdisjoint(storages)

    def hand_out(self, cg: Codegen, tensor: TensorValue) -> None:
        """Push what the program has in the place of `tensor`, this copy or a view of it."""
        self.refuse()


class SameObject(Copy):
    """No copy when the graph runs, but the very object that the program has there; which one it is, is not known while
    capturing. So it may leave captured code, though it is a copy for all that may be told of it before."""

    def hand_out(self, cg: Codegen, tensor: TensorValue) -> None:
        cg.load_graph_output(tensor)
