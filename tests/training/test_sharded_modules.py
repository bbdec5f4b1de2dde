"""Modules that FSDP2 shards: what runs between its hooks is a graph for all modules alike, and training gives what it
gives in eager."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

import framejit
from tests.training.two_processes import Block, Net, batches, in_two_processes, needs_gloo, records, whole

pytestmark = needs_gloo


def sharded(module, **settings):
    for block in module.blocks:
        fully_shard(block, **settings)
    return fully_shard(module, **settings)


def stepped(rank, called, module, steps=4):
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for x, y in batches(rank, steps):
        F.cross_entropy(called(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return whole(module.parameters())


class Prints(Net):
    """Breaks the graph in one of the processes."""

    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def forward(self, x):
        for position, block in enumerate(self.blocks):
            x = block(x)
            if self.rank and position == 1:
                print(end="")
        return self.head(x)


class Raises(Net):
    """Raises in one of the processes, behind a layer, and goes on."""

    def __init__(self, rank):
        super().__init__()
        self.rank, self.calls = rank, 0

    def forward(self, x):
        self.calls += 1
        first, second, third = self.blocks
        try:
            x = first(x)
            if self.rank and self.calls in (2, 4):
                raise ValueError
        except ValueError:
            x = x * 2
        return self.head(third(second(x)))


class Rows(Net):
    """Layers of torch's own modules."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(3))


class Checkpointed(Net):
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def _plain(make, **settings):
    def train(rank, compiled):
        module = sharded(make(rank), **settings)
        return stepped(rank, compiled(module), module)

    return train


def _mixed(rank, compiled):
    module = Net()
    for block in module.blocks:
        fully_shard(block, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    fully_shard(module, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32))
    return stepped(rank, compiled(module), module)


def _accumulated(rank, compiled):
    module = sharded(Net())
    called, optimizer, norms = compiled(module), torch.optim.AdamW(module.parameters(), 1e-2), []
    for step, (x, y) in enumerate(batches(rank, 6)):
        module.set_requires_gradient_sync(step % 2 == 1)
        F.cross_entropy(called(x), y).backward()
        if step % 2:
            norms.append(torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5))
            optimizer.step()
            optimizer.zero_grad()
    return whole((*module.parameters(), *norms))


def _whole_step(rank, compiled):
    module = sharded(Net())
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)

    @compiled
    def step(x, y):
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return [step(x, y) for x, y in batches(rank, 4)] + whole(module.parameters())


def _saved_and_loaded(rank, compiled):
    module = sharded(Net())
    called = compiled(module)
    stepped(rank, called, module, 2)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    saved = {name: value.clone() for name, value in get_model_state_dict(module, options=options).items()}
    own = {name: value.clone() for name, value in called.state_dict().items()}
    stepped(rank, called, module, 2)
    set_model_state_dict(module, saved, options=options)
    between = stepped(rank, called, module, 1)
    called.load_state_dict(own)
    with torch.no_grad():
        result = called(torch.ones(2, 16))
    return between + whole(module.parameters()) + [result]


KINDS = {
    "kept between forward and backward": _plain(lambda rank: Net(), reshard_after_forward=False),
    "the root alone": lambda rank, compiled: stepped(rank, compiled(module := fully_shard(Net())), module),
    "mixed precision": _mixed,
    "accumulated": _accumulated,
    "a whole step": _whole_step,
    "saved and loaded": _saved_and_loaded,
    "sequences": _plain(lambda rank: Rows()),
    "checkpoints": _plain(lambda rank: Checkpointed()),
    "one breaks": _plain(Prints),
    "one raises": _plain(Raises),
}


def _kinds(rank, names):
    for name in names:
        kind, found = KINDS[name], []
        framejit.reset()
        for compiled in (lambda function: function, framejit.optimize):
            torch.manual_seed(0)
            found.append(kind(rank, compiled))
        close = {"rtol": 1e-4, "atol": 1e-5} if name != "mixed precision" else {"rtol": 1e-2, "atol": 1e-3}
        torch.testing.assert_close(found[1], found[0], **close, msg=lambda text, name=name: f"{name}: {text}")
        assert any(record.graphs for record in framejit.status().functions), name


@pytest.mark.parametrize("first", range(0, len(KINDS), 3))
def test_what_sharded_modules_can_be_asked_for(first):
    in_two_processes(_kinds, [*KINDS][first : first + 3])


def _many(rank):
    torch.manual_seed(0)
    module = sharded(Net(20))
    stepped(rank, framejit.optimize(module), module, 3)
    layer = records()[f"{Block.__name__}.forward"]
    assert layer.graphs <= 2 and not layer.breaks and not layer.reason, layer


def test_layers_alike_share_their_graph():
    in_two_processes(_many)
