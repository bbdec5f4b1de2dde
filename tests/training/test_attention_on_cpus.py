"""The backward of attention in half precision is computed in float32 on CPUs where that is quicker, and its gradients
are as near to the exact ones as eager's."""

import pytest
import torch
import torch.nn.functional as F

import framejit

HALVES = (torch.bfloat16, torch.float16)


def gradients(fn, inputs, dtype):
    leaves = [tensor.to(dtype).requires_grad_() for tensor in inputs]
    out = fn(*leaves)
    return out, torch.autograd.grad(out.float().square().sum(), leaves)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "numbers", "scale", "cross"])
@pytest.mark.parametrize("layout", ["heads first", "heads last"])
def test_gradients_are_eagers(dtype, kind, layout):
    torch.manual_seed(0)
    length = 9 if kind == "cross" else 6
    if layout == "heads first":
        inputs = [torch.randn(2, 3, 6, 8), torch.randn(2, 3, length, 8), torch.randn(2, 3, length, 8)]
    else:
        inputs = [torch.randn(2, n, 3, 8).transpose(1, 2) for n in (6, length, length)]
    passes = torch.rand(6, length) > 0.3
    passes[:, 0] = True

    def fn(q, k, v):
        options = {
            "plain": {}, "causal": {"is_causal": True}, "mask": {"attn_mask": passes}, "scale": {"scale": 0.7},
            "numbers": {"attn_mask": passes.to(q.dtype)}, "cross": {},
        }[kind]
        return F.scaled_dot_product_attention(q * 1.5, k, v, **options)

    compiled = framejit.optimize(fn)
    _, exact = gradients(fn, inputs, torch.float64)
    for _ in range(3):
        out, expected = gradients(fn, inputs, dtype)
        ours, found = gradients(compiled, inputs, dtype)
        torch.testing.assert_close(ours, out)
        for mine, theirs, right in zip(found, expected, exact):
            assert mine.dtype == dtype and mine.stride() == theirs.stride()
            worst = (theirs.double() - right).abs().max()
            assert (mine.double() - right).abs().max() <= 2 * worst
    assert runs_in(compiled) == "f32"


def runs_in(compiled):
    """The dtype that the backward of attention is recorded in."""
    graphs = framejit.inspect(compiled).graphs
    assert not any(graph.reason for graph in graphs)
    (line,) = [
        line for graph in graphs for line in graph.recorded.splitlines() if "flash_attention_for_cpu_backward" in line
    ]
    return line.split(": ")[1].split("[")[0]


def test_long_sequences_stay_in_bfloat16():
    """Where products are large, the CPU's own are quicker."""
    torch.manual_seed(0)

    def fn(q, k, v):
        return F.scaled_dot_product_attention(q * 1.5, k, v)

    for length, dtype, expected in (
        (128, torch.bfloat16, "f32"), (256, torch.bfloat16, "bf16"), (256, torch.float16, "f32"),
    ):
        compiled = framejit.optimize(fn)
        gradients(compiled, [torch.randn(1, 1, length, 64) for _ in range(3)], dtype)
        assert runs_in(compiled) == expected


def test_where_no_gradient_comes():
    """The backward of a loss goes to the border of what the logits are made by, behind which autograd calls the
    backward of attention without a gradient."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, 5, 8) for _ in range(3)]

    def fn(q, k, v):
        seen = F.scaled_dot_product_attention(q * 1.5, k, v) * 2
        return seen, seen.float().square().sum()

    def losses(fn):
        leaves = [tensor.bfloat16().requires_grad_() for tensor in inputs]
        seen, loss = fn(*leaves)
        (loss + seen.float().sum()).backward()
        return [seen, loss, *(leaf.grad for leaf in leaves)]

    compiled = framejit.optimize(fn)
    for _ in range(2):
        torch.testing.assert_close(losses(compiled), losses(fn), rtol=2e-2, atol=2e-2)
    assert runs_in(compiled) == "f32"
