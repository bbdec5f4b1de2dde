"""Writes down the operations of a forward and its backward, as all graphs for training are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.passes.odd_products import is_odd, is_product, longer_row, prefers_even_sizes
from framejit.backends.fuse.graph.record import Recorder
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.lowering.whole import keeps
from framejit.backends.fuse.not_fusable import NeedsGradients


class TrainingRecorder(Recorder):
    """Writes down operations of a forward and its backward."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, keeps)
        self.is_backward = False
        self.is_asked = False
        """Whether what arrives is the backward that the program itself asks for, in its forward."""

    @contextmanager
    def asked(self) -> Iterator[None]:
        """The program asks for gradients, for the duration of the block."""
        self.is_asked = True
        try:
            with torch.autograd.set_multithreading_enabled(False):
                yield
        finally:
            self.is_asked = False

    def carry_out(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.is_backward and not kwargs and _has_odd_columns(func, args):
            return self._in_longer_rows(func, args)
        if self.is_missing(func, args):
            nothing = (None,) * len(func._schema.returns)
            return nothing if len(nothing) != 1 else None
        return super().carry_out(func, args, kwargs)

    def is_missing(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether autograd calls an operation where no gradient comes."""
        return (self.is_backward or self.is_asked) and is_without_gradient(func, args)

    def known(self, fake: torch.Tensor) -> Value:
        """The value of a fake that was given or made."""
        value = self._values.get(id(fake))
        if value is None:
            raise NeedsGradients("autograd works with a tensor that was not seen to be made")
        return value

    def _in_longer_rows(self, func: Any, args: tuple[Any, ...]) -> torch.Tensor:
        """A product whose rows lie a little apart, so that `odd_products` can make it larger."""
        rows, columns = args[-2].shape[0], args[-1].shape[1]
        with self.graph.fake_mode:
            result = torch.empty_strided(
                (rows, columns), (longer_row(columns), 1), dtype=args[-1].dtype, device=args[-1].device
            )
        self._write_down(func, args, {}, result)
        return result


def is_without_gradient(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether autograd calls an operation where no gradient comes, as behind the border of a segment. Its kernel gives
    none then; its fake would make some up.

    A gradient is what comes first, or is called one (`grad_output` of cudnn's batch norm is its second argument). Other
    arguments may be missing though schemas do not say so: the lengths of sequences among those of attention on GPUs.
    """
    return any(
        given is None and isinstance(argument.type, torch.TensorType) and (not position or "grad" in argument.name)
        for position, (given, argument) in enumerate(zip(args, func._schema.arguments))
    )


def _has_odd_columns(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operation is a product that is quicker with a few more columns."""
    return (
        is_product(func)
        and prefers_even_sizes(*args[-2:])
        and is_odd(args[-1].shape[1])
        and (len(args) == 2 or args[0].dim() == 1)
    )
