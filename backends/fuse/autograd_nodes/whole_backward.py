"""The backward of all segments of a graph, which the node of its loss runs for them.

Each segment is a node of autograd, so that gradients can be asked for wherever eager has them: by hooks, by `inputs=`,
or by what else is made of a result. Where nobody does, which the node of the loss looks for when its gradient comes
(`node_watch.py`), it runs one backward for all, or one for each stage, hands nothing to the other nodes, and these give
out their share when autograd comes to them. What comes to one of them besides, from what the program made of its
result, goes backwards on its own: gradients add up.

Where somebody does ask, the graph is run again as ATen, and later calls have a backward for each segment
(`OtherBackwards.divided`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import torch

from framejit.backends.fuse.autograd_nodes.backward import Backward
from framejit.backends.fuse.autograd_nodes.half import Sizes
from framejit.backends.fuse.autograd_nodes.segment_nodes import SegmentNode, by_running_again, given_up
from framejit.backends.fuse.thread_state import default_dtype
from framejit.late_dataclass import dataclass


@dataclass(eq=False)
class Stage:
    """What one backward does: for all segments, or for those whose gradients are there at the end of a stage."""

    saved: Sequence[int]
    """Which it takes of what is kept, by their places there."""
    tangents: Sequence[int]
    """The numbers of what gradients come to, in order: the loss, or what earlier stages hand on."""
    inputs: Sequence[int]
    """The inputs that gradients go to, in order."""
    handed_on: Sequence[int]
    """The numbers of what it hands to later stages, in the order of the gradients behind those."""
    symbolic_backward: Backward

    backward: Backward = field(init=False)

    def at(self, sizes: Sizes) -> Stage:
        """A copy for these sizes."""
        made, usual = copy.copy(self), self.symbolic_backward
        made.backward = usual if usual.half.sizes == sizes else usual.at(sizes)
        return made


@dataclass(eq=False)
class WholeBackward:
    """The backward of a graph from its loss."""

    loss: int
    """The number of the loss, as segments count what crosses between them."""
    stages: Sequence[Stage]
    """In the order in which they run."""

    def at(self, sizes: Sizes) -> WholeBackward:
        """A copy for these sizes."""
        made = copy.copy(self)
        made.stages = [stage.at(sizes) for stage in self.stages]
        return made


class WholeRun:
    """One run of it, within one backward of autograd's."""

    def __init__(
        self, whole: WholeBackward, dtype: torch.dtype, saved: list[torch.Tensor], tangent: torch.Tensor
    ) -> None:
        """`dtype`: the default one of the forward. `tangent`: the gradient of the loss. `saved` is emptied."""
        self._dtype = dtype
        self.task = torch._C._current_graph_task_id()
        self._whole = whole
        self._saved = [[saved[place] for place in stage.saved] for stage in whole.stages]
        saved.clear()
        self._crossing = {whole.loss: tangent}
        self._gradients: list[dict[int, torch.Tensor]] = []

    def share(self, stage: int, inputs: Sequence[int]) -> list[torch.Tensor | None]:
        """The gradients of these inputs that a stage gives, each once. The stages up to that one run, if they have
        not."""
        while len(self._gradients) <= stage:
            self._run(self._whole.stages[len(self._gradients)])
        return [self._gradients[stage].pop(position, None) for position in inputs]

    def _run(self, stage: Stage) -> None:
        saved, self._saved[len(self._gradients)] = self._saved[len(self._gradients)], []
        tangents = [self._crossing.pop(number) for number in stage.tangents]
        with default_dtype(self._dtype):  # what is computed again is what it was
            found = stage.backward(saved, tangents)
        n_inputs = len(stage.inputs)
        self._gradients.append(
            {position: gradient for position, gradient in zip(stage.inputs, found) if gradient is not None}
        )
        for number, gradient in zip(stage.handed_on, found[n_inputs:]):
            assert gradient is not None
            known = self._crossing.get(number)
            self._crossing[number] = gradient if known is None else known + gradient


@dataclass(eq=False)
class JoinedSegment(SegmentNode):
    """A segment that has no backward of its own. Where it leads to the loss, its share is part of the whole one."""

    stage: int
    """Which stage its backward is part of."""
    owned: Sequence[int]
    """The inputs whose gradients, of that stage, it gives out."""
    is_loss: bool
    """Whether it gives the loss, and runs the whole backward."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_loss:
            self.unneeded.append(None)  # of the leaf that no program has

    def none_came(self, ctx: Any) -> Sequence[torch.Tensor | None]:
        """Its share, where the whole backward is run; else what goes out of any segment."""
        run = None if ctx.call is None else self._run(ctx.call)
        if run is None:
            return super().none_came(ctx)
        if self.keeps:
            given_up(ctx)
        return self._share(run)

    def backward(
        self, call: Any, saved: list[torch.Tensor], tangents: list[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        """As said of `SegmentNode`."""
        whole, fate = self.graph.whole, self.graph.fate
        assert whole is not None
        if self.is_loss and not fate.is_divided and call.watch is not None and call.watch.sees_nobody():
            (tangent,) = tangents
            assert tangent is not None
            fate.in_doubt = False
            call.whole = WholeRun(whole, self.graph.default_dtype, saved, tangent)
            tangents.clear()
            return self._share(call.whole)
        fate.is_divided = True
        with torch.enable_grad():
            found = by_running_again(call, self, tangents, differentiable=False)
        run = None if self.is_loss else self._run(call)
        if run is None:
            return found
        return [_sum(mine, other) for mine, other in zip(self._share(run), found)]

    def _run(self, call: Any) -> WholeRun | None:
        """The run of the whole backward that this backward of autograd's is part of, if it is."""
        run: WholeRun | None = call.whole
        return run if run is not None and run.task == torch._C._current_graph_task_id() else None

    def _share(self, run: WholeRun) -> list[torch.Tensor | None]:
        found = dict(zip(self.owned, run.share(self.stage, self.owned)))
        return [*(found.get(position) for position in self.inputs), *[None] * (len(self.leaving) - len(self.inputs))]


def _sum(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    return second if first is None else first if second is None else first + second
