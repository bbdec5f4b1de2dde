"""Two processes that exchange tensors by gloo, and a small model for them."""

import os
import socket
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import multiprocessing, nn

import framejit

needs_gloo = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
LIMIT = timedelta(seconds=60)
"""After that a collective that other processes do not take part in raises."""
# which torch, and what compiles, are imported once for all of them
multiprocessing.set_forkserver_preload([
    __name__, "torch._dynamo", "torch.distributed.fsdp", "framejit.capture.miss",
    "framejit.backends.fuse.training.halves", "framejit.backends.fuse.lowering.lower_graph",
    "framejit.backends.fuse.llvm.kernel",
])


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(16) for _ in range(layers))
        self.head = nn.Linear(16, 4)
        self.scale = 1.0

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x) * self.scale


def batches(rank, steps):
    """What a process trains on."""
    draw = torch.Generator().manual_seed(5 + rank)
    for _ in range(steps):
        yield torch.randn(8, 16, generator=draw), torch.randint(0, 4, (8,), generator=draw)


def whole(tensors):
    """Copies of tensors, put together of what the processes have."""
    return [(t.full_tensor() if hasattr(t, "full_tensor") else t).detach().clone() for t in tensors]


def records():
    """What `framejit.status()` says, by the names of functions."""
    return {record.function: record for record in framejit.status().functions}


def _in_process(rank, port, body, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=LIMIT)
    try:
        body(rank, *args)
    finally:
        dist.destroy_process_group()


def in_two_processes(body, *args):
    """Runs `body(rank, *args)` in both; raises what it raises."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.start_processes(_in_process, (port, body, args), nprocs=2, start_method="forkserver")
