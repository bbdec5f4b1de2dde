"""`torch.tensor([a, b])` of tensors without dimensions: the numbers are read in the graph, in the tensors' dtypes."""

import warnings

import pytest
import torch

import framejit

from support import ANY, check

X = torch.tensor([[1.5, -2.0], [3.0, 0.25]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32])
def test_of_one_dtype(dtype):
    def fn(x):
        made = torch.tensor([x.sum(), x.max()])
        return made, made.dtype, torch.as_tensor((x[0, 0], x[1, 1])) * 2

    check(fn, X.to(dtype), changed=[(X.to(dtype) * 2,)])


def test_of_several_and_of_numbers():
    def fn(x):
        place = x.argmax()
        return (
            torch.tensor([x.sum(), place]), torch.tensor([place, 1.5]), torch.tensor([place.int(), True]),
            torch.tensor([x.half().sum(), 1.5]), torch.tensor([x.sum() > 0, x.sum() < 0]),
            torch.tensor([place + 2**60 + 2**36 + 1, 0.5]),
        )

    check(fn, X, changed=[(X * -3,)])


def test_it_is_a_copy_without_history():
    def fn(x):
        part = x[0, 0]
        made = torch.tensor([part, part])
        x.zero_()
        return made, made.requires_grad

    check(fn, X)


def test_what_warns_or_raises_is_left_to_torch():
    compiled = framejit.optimize(lambda x: torch.tensor([x.sum(), x.max()]), backend="eager")
    for _ in range(2):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            assert compiled(X.clone().requires_grad_()).tolist() == [2.75, 3.0]
    check(lambda x: (x + 1, torch.tensor([x.sum(), x])), X, raises=ValueError)
    check(lambda x: (x + 1, torch.tensor([x.sum(), "one"])), X, raises=(TypeError, ValueError))
    check(lambda x: (x + 1, torch.tensor([x[0].sum(), x[:1, 0]])), X, breaks=1, graphs=ANY)
