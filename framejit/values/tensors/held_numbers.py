"""Numbers that a tensor of the graph holds, as those that were read from tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.values.base import Value

if TYPE_CHECKING:
    from framejit.values.tensors.tensor import TensorValue


class HeldNumber(Value):
    """A number that is known when the graph runs: `tensor`, without dimensions, holds it exactly. `is_either`: whether
    it may be an int though it is held as a float."""

    tensor: TensorValue
    is_either: bool

    def held_by(self, tensor: TensorValue) -> HeldNumber:
        """The same number, where another tensor holds it."""
        raise NotImplementedError
