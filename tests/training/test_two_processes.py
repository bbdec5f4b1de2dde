"""Two processes that train one model by gloo: parameters become eager's, collectives happen once in each process
whatever one of them compiles, and gradients are averaged while the backward goes on."""

import os
import socket
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import multiprocessing, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import framejit

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")

STEPS = 20
LIMIT = timedelta(seconds=60)
"""After that a collective that other processes do not take part in raises."""
# which torch, and what compiles, are imported once for all of them
multiprocessing.set_forkserver_preload([
    __name__, "torch._dynamo", "framejit.capture.miss", "framejit.backends.fuse.training.halves",
    "framejit.backends.fuse.lowering.lower_graph", "framejit.backends.fuse.llvm.kernel",
])
WORLD = "0"
"""The name of the group of all processes."""


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(16) for _ in range(3))
        self.head = nn.Linear(16, 4)
        self.scale = 1.0

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x) * self.scale


def sharded(module):
    for block in module.blocks:
        fully_shard(block)
    return fully_shard(module)


def data_parallel(module, **settings):
    return DistributedDataParallel(module, bucket_cap_mb=0.01, **settings)


WRAPPED = {
    "ddp around": lambda module, compiled: data_parallel(compiled(module)),
    "ddp inside": lambda module, compiled: compiled(data_parallel(module)),
    "ddp that looks for what is unused": lambda module, compiled: data_parallel(
        compiled(module), find_unused_parameters=True
    ),
    "fsdp around": lambda module, compiled: sharded(compiled(module)),
    "fsdp inside": lambda module, compiled: compiled(sharded(module)),
}


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


def trained(rank, how, compiled, changes):
    """The parameters after some steps. `changes`: one process has to compile anew in the midst of them."""
    torch.manual_seed(0)
    net = Net()
    module = WRAPPED[how](net, compiled)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    draw = torch.Generator().manual_seed(5 + rank)
    for step in range(STEPS):
        if changes and rank == 1 and step in (5, 11):
            net.scale += 0.5
        x, y = torch.randn(8, 16, generator=draw), torch.randint(0, 4, (8,), generator=draw)
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [(p.full_tensor() if hasattr(p, "full_tensor") else p).detach() for p in module.parameters()]


def _train(rank, how, changes):
    expected = trained(rank, how, lambda module: module, changes)
    found = trained(rank, how, framejit.optimize, changes)
    assert framejit.status().functions, "nothing was compiled"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changes", [False, True], ids=["alike", "one compiles anew"])
@pytest.mark.parametrize("how", WRAPPED)
def test_parameters_become_eagers(how, changes):
    in_two_processes(_train, how, changes)


def _buckets(rank, compiled):
    torch.manual_seed(0)
    net, order = Net(), []
    for name, parameter in net.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
    module = data_parallel(compiled(net))

    def averaged(_, bucket):
        order.append("bucket")
        work = dist.all_reduce(bucket.buffer().div_(2), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    module.register_comm_hook(None, averaged)
    for _ in range(3):
        order.clear()
        module(torch.randn(8, 16)).sum().backward()
    return order


def _overlap(rank):
    eager, found = (_buckets(rank, compiled) for compiled in (lambda module: module, framejit.optimize))
    assert found.count("bucket") == eager.count("bucket") > 1
    first = eager.index("bucket")
    assert {*found[: found.index("bucket")]} == {*eager[:first]}


def test_buckets_leave_before_the_backward_is_over():
    in_two_processes(_overlap)


def summed_and_written(x, k):
    """Makes a number of x that all processes know, writes it into x, and makes something of that."""
    total = torch.ops._c10d_functional.all_reduce(x.sum(), "sum", WORLD)
    x.add_(torch.ops._c10d_functional.wait_tensor(total) * k)
    return torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(x.cos(), "sum", WORLD))


def _collectives(rank):
    compiled = framejit.optimize(summed_and_written)
    for call in range(6):
        torch.manual_seed(2 * call + rank)
        expected = torch.randn(4, 5, dtype=torch.float64)
        given = expected.clone()
        k = 1.5 if rank == 1 or call < 2 else call
        torch.testing.assert_close(compiled(given, k), summed_and_written(expected, k))
        torch.testing.assert_close(given, expected)


def test_collectives_happen_once_where_one_process_compiles_anew():
    in_two_processes(_collectives)
