"""Tensors made of numpy's arrays by `torch.tensor`, `torch.as_tensor` and the classes of tensors, and functions of
numpy that are known of known arrays only."""

import numpy as np
import pytest
import torch

from support import ANY, Pair, check

X = torch.arange(12.0).reshape(3, 4)


MAKERS = {
    "tensor": torch.tensor, "as_tensor": torch.as_tensor, "Tensor": torch.Tensor, "LongTensor": torch.LongTensor,
    "tensor in halves": lambda array: torch.tensor(array, dtype=torch.float16),
    "as_tensor in doubles": lambda array: torch.as_tensor(array, dtype=torch.float64),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
def test_copies_and_shared_memory(dtype, maker):
    make = MAKERS[maker]

    def fn(x, array):
        made = make(array)
        array[0] = 0
        return made, made * 1, x + 1

    check(fn, X, np.array([3, 1, 2], dtype), changed=[(X, np.array([1, 1, 0], dtype))])


def test_of_arrays_made_here():
    def fn(x):
        scale = np.array([1.5, 2.0, 2.5, 3.0])
        made = torch.Tensor(scale), torch.tensor(scale), torch.tensor(scale, device=x.device), torch.DoubleTensor(scale)
        made[3].add_(1)
        return made, scale, x * made[0]

    check(fn, X)


def test_other_layouts():
    def fn(x, array):
        return torch.tensor(array.T), torch.tensor(array.T).stride(), torch.Tensor(array[:, 1:]), x + 1

    check(fn, X, np.arange(6.0).reshape(2, 3))


def test_a_mask():
    def fn(x):
        mask = torch.from_numpy(np.triu(np.ones((1, 4, 4)), k=1).astype("uint8")) == 0
        lower = np.tril(np.arange(9).reshape(3, 3), -1)
        return x.masked_fill(mask[0, 1:], -9.0), lower, np.append(lower, [1, 2]), np.pad(np.array([1, 2]), 1)

    check(fn, X)


def test_a_mask_that_was_written_into():
    def fn(x):
        base = np.ones((3, 4))
        base[0] = x.numpy()[1]
        return np.triu(base), x + 1

    check(fn, X, graphs=ANY, breaks=None, changed=[(X * 2,)])


def test_what_numpy_refuses():
    check(lambda x: (x + 1, np.pad(np.array([1, 2]), -1)), X, raises=ValueError)


TENSORS_IN_LISTS = {
    "rows": lambda x: torch.tensor([[x[0, 0], x[0, 1]], [x[1, 0], 1.0]]),
    "one tensor": lambda x: torch.tensor([[x.sum(), 1], [2, 3]]), "tuples": lambda x: torch.tensor(((x[0, 0],), (2,))),
    "several dtypes": lambda x: torch.tensor([[x.sum().int(), True], [2, x[0, 1].bool()]]),
    "three dimensions": lambda x: torch.tensor([[[x[0, 0]], [x[0, 1]]], [[1], [x[0, 2]]]]),
    "a dtype": lambda x: (
        torch.tensor([x.sum(), 1.0], dtype=torch.float64), torch.as_tensor([[x.sum().int(), 1]], dtype=torch.float16),
        torch.tensor([x.sum().long(), 2], dtype=torch.int64), torch.tensor([[x.sum()]], dtype=None),
    ),
    "a device": lambda x: (
        torch.tensor([[x.sum(), 1.0]], device="cpu"), torch.tensor([x.sum(), 2], device=x.device, dtype=torch.float64),
    ),
    "written into": lambda x: torch.tensor([[x[0, 0], x[0, 1]], [x[1, 0], x[1, 1]]]).add_(1),
}
LISTS_LEFT_TO_TORCH = {
    "rows that are not alike": lambda x: torch.tensor([[x[0, 0], x[0, 1]], [x[1, 0]]]),
    "a number among rows": lambda x: torch.tensor([[x[0, 0]], x[0, 1]]),
    "an empty row": lambda x: torch.tensor([[x[0, 0]], []]),
    "a vector in a row": lambda x: torch.tensor([[x[0, :1], 2.0]]),
    "floats as ints": lambda x: torch.tensor([x.sum(), 1], dtype=torch.int64),
    "gradients": lambda x: torch.tensor([[x.sum()]], requires_grad=True),
    "no dtype": lambda x: torch.tensor([[x.sum()]], dtype=3),
    "no device": lambda x: torch.tensor([[x.sum()]], device="no"),
}


@pytest.mark.parametrize("make", TENSORS_IN_LISTS.values(), ids=TENSORS_IN_LISTS)
def test_tensors_in_lists_of_lists(make):
    check(lambda x: (make(x), x + 1), X, changed=[(X * 2,)], breaks=0)


@pytest.mark.parametrize("make", LISTS_LEFT_TO_TORCH.values(), ids=LISTS_LEFT_TO_TORCH)
def test_lists_of_tensors_that_are_left_to_torch(make):
    pair = Pair(lambda: lambda x: (x + 1, make(x)))
    for x in (X, X, X * 2):
        pair.call(x)
