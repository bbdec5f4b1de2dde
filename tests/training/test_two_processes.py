"""Two processes that train one model by gloo: parameters become eager's, whatever one of them compiles, and gradients
are averaged while the backward goes on."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import framejit
from tests.training.two_processes import Net, batches, in_two_processes, needs_gloo, whole

pytestmark = needs_gloo

STEPS = 20


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


def trained(rank, how, compiled, changes):
    """The parameters after some steps. `changes`: one process has to compile anew in the midst of them."""
    torch.manual_seed(0)
    net = Net()
    module = WRAPPED[how](net, compiled)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    for step, (x, y) in enumerate(batches(rank, STEPS)):
        if changes and rank == 1 and step in (5, 11):
            net.scale += 0.5
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return whole(module.parameters())


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


class Uneven(Net):
    """Which parameters a call takes differs from call to call, and between the processes."""

    def __init__(self, rank):
        super().__init__()
        self.other, self.calls = nn.Linear(16, 4), rank

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        self.calls += 1
        return self.head(x) if self.calls % 3 else self.other(x)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4)

    def forward(self, x):
        return self.b(F.relu(self.norm(self.a(x))))


def _accumulated(rank, compiled, **settings):
    """Gradients of three batches, averaged with those of the last."""
    module = data_parallel(compiled(Net()), **settings)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for step, (x, y) in enumerate(batches(rank, 9)):
        if step % 3 < 2:
            with module.no_sync():
                F.cross_entropy(module(x), y).backward()
            continue
        F.cross_entropy(module(x), y).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return whole(module.parameters())


def _stepped(rank, module):
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for x, y in batches(rank, 6):
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return whole((*module.parameters(), *module.buffers()))


def _compressed(rank, compiled):
    module = data_parallel(compiled(Net()))
    module.register_comm_hook(None, fp16_compress_hook)
    return _stepped(rank, module)


def _inner_module_called(rank, compiled):
    """A backward that DDP waits for, though its forward was not called by it."""
    module = data_parallel(Net())
    optimizer = torch.optim.SGD(module.parameters(), 0.1)

    @compiled
    def added(x, y):
        F.cross_entropy(module.module(x), y).backward()

    for x, y in batches(rank, 4):
        loss = F.cross_entropy(module(x), y) / 2
        added(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return whole(module.parameters())


class AllGiven(Net):
    """Gives its loss with what that is made of; the first layer's weight is the last's, too."""

    def forward(self, x, y):
        states = []
        for block in self.blocks:
            x = block(x)
            states.append(x)
        logits = self.head(x) + x @ self.blocks[0].up.weight[:4].t()
        return F.cross_entropy(logits, y), logits, states


def _all_given(rank, compiled, asks):
    """`asks`: whether the program asks for a gradient at one of the results in some steps."""
    inner = AllGiven()
    order = []
    for name, parameter in inner.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
    module = data_parallel(compiled(inner))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for step, (x, y) in enumerate(batches(rank, 6)):
        loss, logits, states = module(x, y)
        if asks and step in (2, 4):
            states[0].register_hook(lambda gradient: gradient * 2)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [*whole(module.parameters()), torch.tensor([order.count(name) for name in sorted({*order})])]


KINDS = {
    "all results": lambda rank, compiled: _all_given(rank, compiled, False),
    "all results, gradients asked for": lambda rank, compiled: _all_given(rank, compiled, True),
    "static graph": lambda rank, compiled: _stepped(rank, data_parallel(compiled(Net()), static_graph=True)),
    "other parameters in each process": lambda rank, compiled: _stepped(
        rank, data_parallel(compiled(Uneven(rank)), find_unused_parameters=True)
    ),
    "no_sync": _accumulated,
    "no_sync, gradients are views": lambda rank, compiled: _accumulated(rank, compiled, gradient_as_bucket_view=True),
    "compressed": _compressed,
    "buffers": lambda rank, compiled: _stepped(rank, data_parallel(compiled(Normed()))),
    "buffers, ddp inside": lambda rank, compiled: _stepped(rank, compiled(data_parallel(Normed()))),
    "the module inside": _inner_module_called,
}


def _kinds(rank):
    for name, kind in KINDS.items():
        found = []
        for compiled in (lambda function: function, framejit.optimize):
            torch.manual_seed(0)
            found.append(kind(rank, compiled))
        message = f"{name}: {{}}".format
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5, msg=message)


def test_what_ddp_can_be_asked_for():
    in_two_processes(_kinds)
