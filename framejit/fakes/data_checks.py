"""Operations of torch that look at data only to refuse what is wrong: their results have the same sizes whatever the
data is.

Fakes can't answer such a question. Here they are given the answer that lets the operation go on; when the graph runs,
the operation asks the real data and raises if it has to.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

_aten: Any = torch.ops.aten


def only_checks_data(target: Any) -> bool:
    """Whether an operation looks at data only to refuse what is wrong, and `run_unchecked` knows its results."""
    return callable(target) and target in _UNCHECKED


def run_unchecked(target: Any, args: Any, kwargs: Any) -> Any:
    """The result on fakes of an operation that `only_checks_data`, as if nothing were wrong with its data."""
    return _UNCHECKED[target](target, args, kwargs)


def _passing(answer: bool) -> Callable[[Any, Any, Any], Any]:
    """The operation itself, whose checks find what they hope for."""

    def run(target: Any, args: Any, kwargs: Any) -> Any:
        with warnings.catch_warnings(), _Passing(answer):
            warnings.simplefilter("ignore")  # of what the answers look like
            return target(*args, **kwargs)

    return run


class _Passing(TorchDispatchMode):
    def __init__(self, answer: bool) -> None:
        super().__init__()
        self.answer = answer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (_aten.equal.default, _aten.is_nonzero.default, _aten._local_scalar_dense.default):
            return self.answer
        return func(*args, **(kwargs or {}))


def _ctc_loss(target: Any, args: Any, kwargs: Any) -> Any:
    def like(
        log_probs: torch.Tensor, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0,
        reduction: Any = "mean", zero_infinity: bool = False
    ) -> torch.Tensor:
        losses = log_probs.sum((0, -1))  # one for each sequence
        return losses if reduction in ("none", 0) else losses.sum()

    return like(*args, **kwargs)


_UNCHECKED: dict[Callable[..., Any], Callable[[Any, Any, Any], Any]] = {
    F.gaussian_nll_loss: _passing(False),
    torch.cov: _passing(True),
    torch.corrcoef: _passing(True),
    F.ctc_loss: _ctc_loss,
}
