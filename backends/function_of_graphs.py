"""A `torch.autograd.Function` made of the graphs of another one's forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from framejit.backends.opaque_call import FunctionCall


class FunctionOfGraphs(torch.autograd.Function):
    """Runs the graphs of a call, and nothing of the program's: `apply(call, *tensors)` gives the tensors among the
    results."""

    @staticmethod
    def forward(ctx: Any, call: FunctionCall, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n_results = len(call.constant)
        made = call.forward.forward(*tensors)
        results, kept = made[:n_results], made[n_results:]
        ctx.mark_non_differentiable(*(result for result, constant in zip(results, call.constant) if constant))
        ctx.save_for_backward(*kept[: call.n_saved])
        ctx.call, ctx.kept = call, kept[call.n_saved :]
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        found = ctx.call.backward.forward(*ctx.saved_tensors, *ctx.kept, *gradients)
        return (None, *(None if place is None else found[place] for place in ctx.call.gradients))


def of_graphs(name: str, call: FunctionCall) -> Callable[..., Any]:
    """What does with the arguments of a call what its graphs say. `name`: of the class, after which autograd's node is
    called."""
    function: type[FunctionOfGraphs] = type(name, (FunctionOfGraphs,), {})

    def apply(*given: Any) -> Any:
        return call.form(iter(function.apply(call, *(given[place] for place in call.tensors))))

    return apply
