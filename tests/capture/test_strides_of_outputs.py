"""Strides of tensors that operations are given for their results (`out=`), asked for while capturing and later."""

import pytest
import torch

import framejit

pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")


def places(x):
    return torch.zeros(x.shape, dtype=torch.long)


OPERATIONS = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "add, of a row": lambda x, out: torch.add(torch.ones(x.shape[-1]), x, out=out),
    "a power": lambda x, out: torch.pow(x, 2, out=out),
    "where": lambda x, out: torch.where(x > 0, x, x, out=out),
    "clamp": lambda x, out: torch.clamp(x, 0, out=out),
    "lerp": lambda x, out: torch.lerp(x, x * 2, 0.5, out=out),
    "nan_to_num": lambda x, out: torch.nan_to_num(x, out=out),
    "rounded quotient": lambda x, out: torch.div(x, x, rounding_mode="floor", out=out),
    "a sum": lambda x, out: torch.sum(x, -1, out=out),
    "sums on the way": lambda x, out: torch.cumsum(x, -1, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "softmax": lambda x, out: torch.softmax(x, -1, out=out),
    "sort": lambda x, out: torch.sort(x, out=(out, places(x)))[0],
    "the largest": lambda x, out: torch.max(x, -1, out=(out, torch.empty(0, dtype=torch.long)))[0],
    "a product": lambda x, out: torch.bmm(x, x.transpose(1, 2), out=out),
    "a triangle": lambda x, out: torch.tril(x, out=out),
}
INPUTS = {
    "dense": lambda: torch.randn(2, 3, 4),
    "permuted": lambda: torch.randn(2, 3, 4).permute(0, 2, 1),
    "turned": lambda: torch.randn(4, 3, 2).permute(2, 0, 1),
    "sliced": lambda: torch.randn(2, 3, 8)[:, :, ::2],
    "repeated": lambda: torch.randn(1, 3, 1).expand(2, 3, 4),
}
OUTPUTS = {
    "nothing": lambda x: torch.empty(0),
    "too small": lambda x: torch.empty(1, 2),
    "fitting": lambda x: torch.empty(x.shape),
    "fitting, and permuted": lambda x: torch.empty([*x.shape[::-1]]).permute(2, 1, 0),
}


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_strides(operation, make):
    def step(x, out):
        result = operation(x, out)
        return result.stride(), out.stride(), out.shape, out.is_contiguous(), result is out, result

    optimized = framejit.optimize(step)
    for given in OUTPUTS.values():
        x = make()
        expected, got = step(x, given(x)), optimized(x, given(x))
        assert expected[:-1] == got[:-1]
        assert expected[-1].stride() == got[-1].stride()
        torch.testing.assert_close(expected[-1], got[-1])
