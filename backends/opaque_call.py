"""A node of a graph that calls a Python function as a whole, for what is no list of tensor operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from torch import fx

RECURRENT: Final = frozenset(("gru", "lstm", "rnn_relu", "rnn_tanh"))
"""Layers that are ATen's where gradients are wanted. Below autograd they are operations for each step, of which there
are thousands (30 seconds of compiling for 32 steps of a GRU of two layers), or one that keeps for its backward what
only its library knows."""
BETWEEN_PARTS: Final = RECURRENT | {"ctc_loss", "embedding_bag"}
"""Operations between which a backend may compile parts of a graph. How much `ctc_loss` keeps for its backward numbers
of tensors say; fakes of what `embedding_bag` gives have other sizes than the real ones."""
_numbers = count(1)


class OpaqueCall:
    """The target of a graph's node that calls a Python function: it runs for real when the graph runs, in its place
    among the operations.

    `why` says why no backend can look inside. `operation` is the name of the operation of torch's that it amounts to,
    if there is one.
    """

    def __init__(self, function: Callable[..., Any], name: str, why: str, operation: str | None = None) -> None:
        self.function, self.why, self.operation = function, why, operation
        # as it is called in the text of graphs
        self.__module__, self.__name__ = "python_call", f"{name}_{next(_numbers)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class CheckpointCall(OpaqueCall):
    """A checkpoint of torch's: a graph inside of the graph of which gradients are to keep nothing but what it is given.

    `module` is that graph. `keeps_random_state`: computed again, it draws the random numbers that it drew before.
    """

    def __init__(self, function: Callable[..., Any], module: fx.GraphModule, keeps_random_state: bool) -> None:
        super().__init__(function, "checkpoint", "a part of it is computed again for gradients")
        self.module, self.keeps_random_state = module, keeps_random_state


class TraceableCall(OpaqueCall):
    """A call of a function that a backend may write down as the operations that it consists of."""

    def untraced(self) -> OpaqueCall:
        """The same call as one that no backend can look into."""
        return OpaqueCall(self.function, self.__name__, self.why)


class FunctionCall(TraceableCall):
    """A call of a `torch.autograd.Function` of which forward and backward are known as graphs.

    It is called with the arguments of `apply`, and behind them other tensors that `forward` takes. `tensors`: which of
    all these are tensors; of them `forward` makes the tensors among the results, and what is kept of them for
    `backward`, `n_saved` of it by `save_for_backward`. `backward` takes what is kept, and a gradient for each result;
    `gradients` says which of what it gives belongs to which tensor. `constant`: which results have no gradient.
    `form`: what `apply` gives, of its tensors.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, why: str, tensors: list[int], forward: fx.GraphModule,
        backward: fx.GraphModule, n_saved: int, gradients: list[int | None], constant: list[bool],
        form: Callable[[Iterator[Any]], Any]
    ) -> None:
        super().__init__(function, name, why)
        self.form = form
        self.tensors, self.forward, self.backward = tensors, forward, backward
        self.n_saved, self.gradients, self.constant = n_saved, gradients, constant


class TransformCall(TraceableCall):
    """A call of a function, known as a graph, that torch.func transforms. It does nothing but call operations of
    torch's, so that it may run on fakes, too: the operations that arrive below torch.func are what it does.

    What `torch.func.vjp` gives besides tensors, the function that pulls gradients back, another such call takes.
    """
