"""Products whose sizes are no multiple of 16 bytes are made larger; here on the CPU, as if it were a GPU."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.backends.fuse.graph.passes import odd_products
from framejit.backends.fuse.training import recorder


@pytest.fixture
def as_on_gpus(monkeypatch):
    def prefers(a, b):
        return a.dtype == b.dtype == torch.bfloat16

    monkeypatch.setattr(odd_products, "WIDE", 16)
    for module in (odd_products, recorder):
        monkeypatch.setattr(module, "prefers_even_sizes", prefers)


def loss_of_classes(h, weight, bias, target):
    return F.cross_entropy(F.linear(h, weight, bias).float(), target, ignore_index=-1)


def logits_too(h, weight, bias, target):
    logits = F.linear(h, weight, bias)
    return logits, F.cross_entropy(logits.float(), target)


@pytest.mark.parametrize("fn", [loss_of_classes, logits_too])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("sizes", [(16, 8, 19), (17, 16, 24), (21, 19, 27), (24, 17, 32)])
def test_equal_to_eager(as_on_gpus, fn, with_bias, sizes):
    rows, inner, classes = sizes
    compiled = framejit.optimize(fn, backend="fuse")
    for number in range(3):
        torch.manual_seed(number)
        h, weight = torch.randn(rows, inner, dtype=torch.bfloat16), torch.randn(classes, inner, dtype=torch.bfloat16)
        bias, target = (
            torch.randn(classes, dtype=torch.bfloat16) if with_bias else None,
            torch.randint(0, classes, (rows,)),
        )
        outcomes = []
        for call in (fn, compiled):
            given = [None if t is None else t.clone().requires_grad_() for t in (h, weight, bias)]
            out = call(*given, target)
            outs = out if isinstance(out, tuple) else (out,)
            grads = torch.autograd.grad(
                sum(o.float().square().mean() for o in outs), [t for t in given if t is not None]
            )
            outcomes.append([*outs, *grads])
        for expected, got in zip(*outcomes):
            assert (expected.shape, expected.stride(), expected.dtype) == (got.shape, got.stride(), got.dtype)
            torch.testing.assert_close(expected.float(), got.float(), rtol=3e-2, atol=3e-2)
    graphs = framejit.inspect(compiled).graphs
    assert {graph.reason for graph in graphs} == {""}
    larger = sum(
        f"bfloat16[{size}" in graph.after_fusion or f", {size}]" in graph.after_fusion
        for graph in graphs
        for size in (24, 32)
    )
    assert larger or not any(size % 8 and size >= 16 for size in sizes)


def test_logits_lie_in_longer_rows_between_forward_and_backward(as_on_gpus):
    compiled = framejit.optimize(loss_of_classes, backend="fuse")
    layer = nn.Linear(16, 19).bfloat16()
    loss = compiled(torch.randn(16, 16, dtype=torch.bfloat16), layer.weight, layer.bias, torch.randint(0, 19, (16,)))
    assert any(tensor.shape == (16, 19) and tensor.stride() == (24, 1) for tensor in loss.grad_fn.saved_tensors)
