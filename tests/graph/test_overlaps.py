"""Parts of a tensor that a write and a read share no memory with are known to be apart; others never are."""

import itertools

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.overlaps import overlaps
from framejit.backends.fuse.graph.value import Value

WHOLES = {
    "in order": lambda: torch.zeros(3, 4, 5),
    "transposed": lambda: torch.zeros(5, 4, 3).permute(2, 1, 0),
    "channels last": lambda: torch.zeros(2, 3, 2, 2).to(memory_format=torch.channels_last),
    "with gaps": lambda: torch.empty_strided((3, 4), (10, 2)),
    "one element wide": lambda: torch.zeros(3, 1, 4),
}
PARTS = [
    lambda x: x[:1], lambda x: x[1:], lambda x: x[..., :2], lambda x: x[..., 2:], lambda x: x[..., 1:2], lambda x: x,
    lambda x: x[:, :1], lambda x: x[:, -1:], lambda x: x[..., ::2], lambda x: x[0], lambda x: x.transpose(0, -1),
    lambda x: x[..., :1].expand(*x.shape[:-1], 2),
]


def elements(tensor):
    """The places of its elements."""
    return {
        tensor.storage_offset() + sum(i * stride for i, stride in zip(place, tensor.stride()))
        for place in itertools.product(*map(range, tensor.shape))
    }


@pytest.mark.parametrize("name", WHOLES)
def test_parts_that_share_elements_overlap(name):
    with FakeTensorMode():
        whole = WHOLES[name]()
    apart = known_apart = 0
    for one, other in itertools.product(PARTS, PARTS):
        written, read = one(whole), other(whole)
        first = Value(whole)
        target, source = Value(written, first.storage, first), Value(read, first.storage, first)
        node = Node(torch.ops.aten.add_.Tensor, (target, source), {}, target, "")
        shared = elements(written) & elements(read)
        same = (written.shape, written.stride(), written.storage_offset()) == (
            read.shape, read.stride(), read.storage_offset(),
        )
        found = overlaps(target, node)
        assert found or not shared or same
        if not shared and 0 not in written.stride():
            apart += 1
            known_apart += not found
    assert not apart or known_apart > apart * 0.7
