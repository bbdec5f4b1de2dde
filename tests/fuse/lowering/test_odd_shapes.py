"""Kernels for odd shapes and strides: none, overlapping, larger than 32 bits count."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.fuse.lowering.plan_checks import check, planned


@pytest.mark.parametrize("sizes", [(0,), (3, 0), (0, 3), (2, 0, 4)])
def test_no_elements(sizes):
    x = torch.randn(sizes)
    check(lambda x: (x.relu() * 2, x.sum(), x.sum(0), (x + 1).sum(-1), x.softmax(-1), x.transpose(0, -1).exp()), x)


def test_reductions_of_nothing_raise_as_eager_does():
    compiled, _ = planned(lambda x: (x * 2).amax(1))
    with pytest.raises(IndexError):
        compiled(torch.randn(3, 0))


def test_no_dimensions():
    x, y = torch.tensor(2.5), torch.randn(4)
    check(lambda x, y: (x * 2, x.exp() + y, x.sum(), (x + 1).reshape(1), (y * x).amax()), x, y)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.t(), lambda x: x[::2], lambda x: x[:, 1:], lambda x: x[1:, ::3], lambda x: x.expand(3, *x.shape),
        lambda x: x[:, :1].expand(-1, 7),
        lambda x: x.flip(0),
    ],
)
def test_strided_inputs(layout):
    x = layout(torch.randn(8, 10))
    check(
        lambda x: (
            x + 1, x.sin().sum(-1), x.t() * 2 if x.dim() == 2 else x * 2, x.contiguous() * 3,
            (x - x.mean(-1, keepdim=True)).relu(),
        ),
        x,
    )


def test_windows_that_overlap():
    x = torch.arange(20.0).as_strided((5, 8), (3, 1))
    check(lambda x: (x * 2, x.sum(0), x.softmax(1)), x)


def test_writing_through_overlapping_memory_is_an_error_as_in_eager():
    compiled, _ = planned(lambda x: x.add_(1))
    with pytest.raises(RuntimeError, match="single memory location"):
        compiled(torch.zeros(1).expand(4))


def test_channels_last():
    x = torch.randn(2, 4, 5, 6).to(memory_format=torch.channels_last)
    check(lambda x: (x.relu() + 1, (x * 2).sum((2, 3)), x.mean(1, keepdim=True) * x), x)


def test_an_offset_into_the_storage():
    x = torch.randn(40)[7:31].view(4, 6)
    check(lambda x: (x * 2, x[1:].exp(), x.view(24)[5:] + 1), x)


@pytest.mark.slow
def test_more_than_two_to_the_31_elements():
    """2 GiB of int8 at each end of an index that does not fit 32 bits."""
    n = (1 << 31) + 4096
    x = torch.zeros(n, dtype=torch.int8)
    x[-1], x[0], x[1 << 31] = 7, 3, 5
    compiled, graphs = planned(lambda x: ((x[-4096:] + 1), x[::1 << 20] * 2, x.amax()))
    tail, sparse, most = compiled(x)
    assert not graphs[0].reason
    assert torch.equal(tail, x[-4096:] + 1)
    assert torch.equal(sparse, x[:: 1 << 20] * 2)
    assert most == 7


def test_strides_that_reach_beyond_two_to_the_31():
    """One element a page of a memory that is never touched elsewhere."""
    base = torch.empty((1 << 32) + 64, dtype=torch.int8)
    x = base.as_strided((3, 4), (1 << 31, 1))
    x.copy_(torch.arange(12).view(3, 4))
    check_in_place = planned(lambda x: (x * 2, x.sum(0)))[0]
    doubled, total = check_in_place(x)
    assert torch.equal(doubled, x * 2)
    assert torch.equal(total, x.sum(0))


def test_strides_that_reach_beyond_two_to_the_31_on_a_gpu():
    from torch._subclasses.fake_tensor import FakeTensorMode

    from framejit.backends.fuse.schedule.make_kernels import schedule
    from framejit.backends.fuse.triton.kernel_source import triton_source
    from tests.fuse.stages import lower

    for step, is_wide in ((1 << 31, True), (1 << 20, False)):
        with FakeTensorMode(allow_fallback_kernels=False):
            fake = torch.empty_strided((3, 4), (step, 1), dtype=torch.int8, device="cuda")
        graph = torch.fx.Graph()
        node = graph.placeholder("x")
        node.meta["val"] = fake
        graph.output((graph.call_function(torch.mul, (node, 2)),))
        (kernel,) = schedule(lower(torch.fx.GraphModule(nn.Module(), graph), [fake]))
        assert ("int64" in triton_source(kernel).code) == is_wide
