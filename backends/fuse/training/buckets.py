"""Gradients that are wanted before the backward is over.

`DistributedDataParallel` averages gradients over processes in buckets, each as soon as all of its gradients are there,
while the backward goes on (S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
2020). A node of autograd hands out its gradients at its end. So the backward of a graph that runs inside of such a
module is divided into stages, one for the gradients that fill a bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from framejit.backends.fuse.autograd_nodes.gradient_edges import gradient_edges
from framejit.backends.fuse.autograd_nodes.segments import nodes_of
from framejit.late_dataclass import dataclass

MOST: Final = 16
"""The most stages that a backward is divided into: with more buckets than that, a stage fills several."""


@dataclass(frozen=True)
class Buckets:
    """Which inputs of a graph are parameters whose gradients go into buckets."""

    parameters: dict[int, int]
    """Their positions, with their sizes in bytes."""
    first: int
    """Bytes that fill the bucket which is full first."""
    others: int
    """Bytes that fill each of the others."""


def buckets_of(examples: Sequence[torch.Tensor]) -> Buckets | None:
    """The buckets of the module of DDP that runs now, for a graph with these inputs; None where none runs, or where it
    waits for the end of the backward."""
    module = DistributedDataParallel._get_active_ddp_module() if torch.distributed.is_available() else None
    if module is None:
        return None
    own = {id(parameter) for parameter in module._module_parameters}
    parameters = {
        position: example.numel() * example.element_size()
        for position, example in enumerate(examples)
        if id(example) in own
    }
    others = max(module.bucket_bytes_cap, sum(parameters.values()) // MOST)
    is_default = module.bucket_bytes_cap_default
    first = torch.distributed._DEFAULT_FIRST_BUCKET_BYTES if is_default else others  # type: ignore[attr-defined]
    return Buckets(parameters, first, others)


def stages_of(buckets: Buckets, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> dict[int, int]:
    """By the position of a parameter the stage at whose end its gradient is there. Nothing where one stage is enough.

    Eager's engine runs what was made last first, and DDP fills its buckets in the order in which gradients come in the
    first backward.
    """
    edges = gradient_edges([inputs[position] for position in buckets.parameters])
    leaves = {edge.node: position for edge, position in zip(edges, buckets.parameters)}
    first_uses: dict[int, int] = {}
    for node in nodes_of(results):
        for before, _ in node.next_functions:
            if before in leaves:
                position = leaves[before]
                first_uses[position] = min(node._sequence_nr(), first_uses.get(position, node._sequence_nr()))
    stages: dict[int, int] = {}
    stage, filled, limit = 0, 0, buckets.first
    for position in sorted(first_uses, key=lambda position: -first_uses[position]):
        if filled >= limit:
            stage, filled, limit = stage + 1, 0, buckets.others
        stages[position] = stage
        filled += buckets.parameters[position]
    return stages if stage else {}
