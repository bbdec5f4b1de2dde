"""A `torch.autograd.Function` of the program's, of which forward and backward are known as graphs: a node of autograd
whose operations are recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from framejit.backends.fuse.not_fusable import NeedsGradients
from framejit.backends.opaque_call import FunctionCall

RunInside = Callable[[fx.GraphModule, Sequence[Any]], tuple[Any, ...]]


class TracedFunction(torch.autograd.Function):
    """Runs the graphs of a call on fakes."""

    @staticmethod
    def forward(ctx: Any, call: FunctionCall, run: RunInside, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n_results = len(call.constant)
        made = run(call.forward, tensors)
        results, kept = made[:n_results], made[n_results:]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(result for result, constant in zip(results, call.constant) if constant))
        ctx.save_for_backward(*kept[: call.n_saved])  # by which it is known what eager keeps
        ctx.call, ctx.run, ctx.kept, ctx.results = call, run, kept, results
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NeedsGradients(f"gradients are wanted of the backward of {ctx.call.__name__}")
        given = [
            torch.zeros(result.shape, dtype=result.dtype, device=result.device) if gradient is None else gradient
            for gradient, result in zip(gradients, ctx.results)
        ]
        found = ctx.run(ctx.call.backward, (*ctx.kept, *given))
        return (None, None, *(None if place is None else found[place] for place in ctx.call.gradients))
