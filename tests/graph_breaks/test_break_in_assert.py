"""`assert` on tensors and on Python values. (PYTEST_DONT_REWRITE: the asserts here belong to the code under test.)"""
import torch

from support import check

X = torch.tensor([1.0, 2.0, 3.0])


def test_assert_on_a_tensor():
    def fn(x):
        y = x + 1
        assert (y > 0).all(), "must be positive"
        return y * 2

    check(fn, X, fullgraph=True, changed=[(-X,)])


def test_assert_with_a_computed_message():
    def fn(x):
        y = x * 2
        assert y.sum() < 100, f"too large: {y.sum()}"
        return y + 1

    check(fn, X, fullgraph=True, changed=[(X * 100,)])


def test_assert_on_python_values_does_not_break():
    def fn(x, n):
        assert x.shape[0] == n, (n, "wrong length")
        assert isinstance(n, int)
        return x * n

    check(fn, X, 3, changed=[(X, 4)])
