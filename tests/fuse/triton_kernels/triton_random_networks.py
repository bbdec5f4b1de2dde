"""Random networks as a GPU would train them, forward and backward by Triton's interpreter: prints as JSON for each how
many kernels there are, and what is not as eager has it. The CPU stands for a GPU (joint_graphs.py).

    python triton_random_networks.py FIRST COUNT

A program of its own: TRITON_INTERPRET must be set before Triton is imported.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.passes.pipeline import run_passes
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.lowering.lower_graph import lower_graph
from framejit.backends.fuse.schedule.make_kernels import schedule
from framejit.backends.fuse.targets.lookup import standing_in
from framejit.backends.fuse.training.partition import parted
from tests.fuse.joint_graphs import AbsentGpu, joint_graph
from tests.fuse.triton_kernels import triton_standins
from tests.fuse.triton_kernels.triton_run import TritonRun, first_tile, in_many_blocks
from tests.training.random_networks import Network

CLOSE = 1e-6
OF_THEIR_OWN = ("dropout", "rand_like")
"""Numbers that eager draws otherwise."""
DATA_DECIDES = ("gaussian_nll_loss",)
"""Functions of torch that look at the data."""

Function = Callable[..., torch.Tensor]


def numbered(x: torch.Tensor) -> torch.Tensor:
    """A sum in which each element counts for something else."""
    return (x * torch.linspace(-2, 2, x.numel(), dtype=x.dtype).view(x.shape)).sum()


CASES: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "a turned order, moved on": (lambda x: numbered(x.flip(0).roll(1, 0)), ((5, 3),)),
    "moved on both ways": (lambda x: numbered(x.roll(2, 1).flip(1).roll(-1, 1).flip(0)), ((4, 7),)),
    "moved on within a row of all": (lambda x: numbered(x.flip(0, 1).roll(4).view(-1, 2)), ((4, 3),)),
    "gradients of a product with zeros": (lambda x: numbered(x.relu().prod(0)), ((5, 3),)),
    "gradients of the greater of two that are equal": (lambda x: numbered(torch.maximum(x, x).prod(0)), ((5, 3),)),
    "gradients that lie as no operand": (
        lambda x: numbered(torch.minimum(x.transpose(0, 1), x.transpose(0, 1).contiguous() * 0.5)), ((2, 3, 4),)
    ),
    "rows of the greatest, and their labels": (
        lambda x, w: F.nll_loss(F.embedding(x.argmax(-1), w), (x + 1).argmax(-1)), ((4, 3), (3, 5))
    ),
    "a complex number of the program": (
        lambda x: numbered(torch.view_as_real(torch.complex(x, x.cos()) * (0.5 + 1j)).sum(-1).sin()), ((4, 3),)
    ),
}


def of_case(name: str) -> tuple[Function, list[torch.Tensor]]:
    function, shapes = CASES[name]
    torch.manual_seed(0)
    return function, [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def of_network(seed: int) -> tuple[Function, list[torch.Tensor]] | None:
    network = Network(seed)
    if any(name in network.source for name in (*OF_THEIR_OWN, *DATA_DECIDES)):
        return None
    return lambda x, *parameters: network.function(x, parameters), [network.input(0), *network.own_parameters()]


class Half:
    """Forward or backward, scheduled once."""

    def __init__(self, graph: Graph) -> None:
        lowered = lower_graph(run_passes(graph, None, ()), False)
        self.scheduled = replace(lowered, nodes=list(schedule(lowered)))
        self.kernels = sum(isinstance(node, Kernel) for node in self.scheduled.nodes)

    def run(self, tile: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return TritonRun(self.scheduled, tile, lambda source: None).run([x.clone() for x in inputs])


def compared(function: Function, inputs: Sequence[torch.Tensor]) -> list[Any] | None:
    """[the number of kernels, what differs in words]; None where eager refuses to find gradients."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    loss = function(*leaves)
    wanted = [loss.detach()]
    if loss.requires_grad:
        try:
            loss.backward()
        except RuntimeError:
            return None
        wanted += [x.grad for x in leaves if x.grad is not None]
    partition = parted(joint_graph(function, inputs))
    given = [x.detach() for x in inputs]
    forward = Half(partition.forward())
    parts = [*partition.backwards.values()] if loss.requires_grad else []
    backward = [(part, Half(part.graph())) for part in parts]
    far = ""
    for tile in (first_tile, in_many_blocks):
        results = forward.run(tile, given)
        joint = partition.joint
        known = dict(zip([*joint.inputs, *joint.outputs, *partition.made()], [*given, *results]))
        found = results[:1]
        for part, half in backward:
            made = half.run(tile, [*(known[value] for value in part.saved), torch.ones_like(loss)])
            found += [gradient for gradient in made if gradient is not None]
        if len(found) != len(wanted):
            return [forward.kernels, f"{len(found)} results for {len(wanted)}"]
        for position, (got, plain) in enumerate(zip(found, wanted)):
            off = ((got - plain).abs() / plain.abs().max().clamp(min=1)).max() if plain.numel() else torch.zeros(())
            if (got.dtype, got.shape) != (plain.dtype, plain.shape) or off > CLOSE:
                far += f"{tile.__name__}: result {position} is off by {float(off)}\n"
    return [forward.kernels + sum(half.kernels for _, half in backward), far]


def main(first: int, count: int) -> None:
    triton_standins.install()
    made: dict[str, Callable[[], Any]] = {name: lambda name=name: of_case(name) for name in CASES}
    made |= {f"network {seed}": lambda seed=seed: of_network(seed) for seed in range(first, first + count)}
    found: dict[str, list[Any] | None] = {}
    with standing_in("cpu", AbsentGpu):
        for name, make in made.items():
            case = make()
            if case is None:
                continue
            try:
                found[name] = compared(*case)
            except Exception:
                found[name] = [0, traceback.format_exc()]
    json.dump({name: report for name, report in found.items() if report is not None}, sys.stdout)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
