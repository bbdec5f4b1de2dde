"""Forward and backward of a graph whose kernels make random numbers, by Triton's interpreter: what each gives is what
ATen's operations give of the same key, and the forward keeps the key in the place of what was drawn. Print what each
takes as JSON. The CPU stands for a GPU, since autograd records nothing on devices that are not there.

A program of its own: TRITON_INTERPRET must be set before Triton is imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from framejit.backends.fuse.graph.execute import execute
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.passes.pipeline import run_passes
from framejit.backends.fuse.loop_ir.nodes import ExternNode, Kernel
from framejit.backends.fuse.lowering.lower_graph import lower_graph
from framejit.backends.fuse.schedule.make_kernels import schedule
from framejit.backends.fuse.targets.lookup import standing_in
from framejit.backends.fuse.training.partition import parted
from tests.fuse.joint_graphs import AbsentGpu, joint_graph
from tests.fuse.triton_kernels import triton_standins
from tests.fuse.triton_kernels.triton_run import TritonRun, first_tile, in_many_blocks

aten = torch.ops.aten
ROWS, WIDTH = 48, 32


def network(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """As `F.dropout` is recorded on GPUs."""
    h = aten.native_dropout(torch.tanh(x @ w), 0.3, True)[0]
    y = aten.native_dropout((h @ w).softmax(-1), 0.1, True)[0]
    return ((y @ w) * torch.randn_like(y) + torch.rand_like(y)).sum()


def checked(half: Graph, inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[str]]:
    """What a half gives by ATen, and the steps that it takes. Raises AssertionError where kernels give something
    else."""
    torch.manual_seed(1)
    expected = list(execute(half, inputs))
    lowered = lower_graph(run_passes(half, None, ()), False)
    steps = schedule(lowered)
    scheduled = replace(lowered, nodes=list(steps))
    for tile in (first_tile, in_many_blocks):
        torch.manual_seed(1)
        got = TritonRun(scheduled, tile, lambda source: None).run([tensor.clone() for tensor in inputs])
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        for one, other in zip(got, expected):
            assert one.is_floating_point() or torch.equal(one, other)
    return expected, [
        getattr(step.function, "__name__", "") if isinstance(step, ExternNode) else "kernel"
        for step in steps
        if isinstance(step, (ExternNode, Kernel))
    ]


def main() -> None:
    """Print the steps of both halves, and what of the forward's own results is kept: dtypes and numbers of
    elements."""
    triton_standins.install()
    with standing_in("cpu", AbsentGpu):
        partition = parted(joint_graph(network, [torch.empty(ROWS, WIDTH), torch.empty(WIDTH, WIDTH)]))
        joint, (part,) = partition.joint, partition.backwards.values()
        torch.manual_seed(0)
        given = [torch.randn(ROWS, WIDTH), torch.randn(WIDTH, WIDTH) / 5]
        with torch.no_grad():
            results, forward = checked(partition.forward(), given)
            known = dict(zip([*joint.inputs, *joint.outputs, *partition.made()], [*given, *results]))
            saved = [known[value] for value in part.saved]
            _, backward = checked(part.graph(), [*saved, torch.ones(())])
        kept = [[str(known[value].dtype), known[value].numel()] for value in partition.made()]
    json.dump({"forward": forward, "backward": backward, "kept": kept}, sys.stdout)


if __name__ == "__main__":
    main()
