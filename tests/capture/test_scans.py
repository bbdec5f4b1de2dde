"""torch's map and scan are nodes of one graph; what they compute is what a loop over the slices computes."""
import pytest
import torch
from torch._higher_order_ops.map import map as map_slices
from torch._higher_order_ops.scan import scan

import framejit
from framejit.errors import GraphBreakError

X = torch.arange(12.0).view(4, 3) / 7
W = torch.arange(3.0)
ONE_GRAPH = {"fullgraph": True, "backend": "eager"}


def mapped(x, k):
    return map_slices(lambda row, k: {"a": row[0].sin() + k, "b": (row[1] * W,)}, (x, x + 1), k)


def test_map():
    for x, k in ((X, W), (X + 2, W * 2), (X[:2], W)):
        got = framejit.optimize(mapped, **ONE_GRAPH)(x, k)
        torch.testing.assert_close(got, {"a": x.sin() + k, "b": ((x + 1) * W,)}, rtol=0, atol=0)


def scanned(x, dim, reverse):
    def step(carry, row):
        return {"total": carry["total"] + row * row}, [carry["total"] * W.sum(), row + 1]

    return scan(step, {"total": W[0:1] * 0}, x, dim=dim, reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_and_its_gradients(reverse):
    fast = framejit.optimize(scanned, **ONE_GRAPH)
    for n in (3, 5, 3):
        x = torch.rand(1, n, requires_grad=True)
        carry, (products, rows) = fast(x, 1, reverse)
        total, expected = torch.zeros(1), []
        for k in range(n)[:: -1 if reverse else 1]:
            expected.append(total * 3)
            total = total + x[:, k] * x[:, k]
        outs = torch.stack(expected[:: -1 if reverse else 1], 1)
        # a torch before 2.13 stacks what came along another dimension than the first along the first nevertheless
        _, (eagers, _) = scanned(x, 1, reverse)
        outs, result = outs.reshape(eagers.shape), (x + 1).reshape(eagers.shape)
        torch.testing.assert_close((carry["total"], products, rows), (total, outs, result))
        torch.testing.assert_close(
            *(torch.autograd.grad(t.sum() + o.sum(), x) for t, o in ((carry["total"], products), (total, outs)))
        )


def test_a_function_that_changes_something_is_left_to_python():
    seen = []

    def noting(x):
        return map_slices(lambda row: seen.append(1) or row * 2, x)

    with pytest.raises(GraphBreakError, match="changes something"):
        framejit.optimize(noting, **ONE_GRAPH)(X)
    assert not seen


def test_what_is_carried_keeps_its_kind():
    def growing(x):
        return scan(lambda carry, row: (torch.cat((carry, row)), row + 1), W, x)

    with pytest.raises(GraphBreakError, match="other shapes"):
        framejit.optimize(growing, **ONE_GRAPH)(X)
