"""What may stand as an argument of a tensor operation besides tensors and numbers."""
import collections
import enum

import numpy as np
import pytest
import torch

from support import check

X = torch.arange(24.0).reshape(4, 6)
Size = collections.namedtuple("Size", "height width")


class Axis(enum.IntEnum):
    ROWS = 0


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 5).to(bool).to(float) + 1,
        lambda x: x + torch.zeros(6, dtype=float),
        lambda x: (x.sum(dtype=int), torch.zeros_like(x, dtype=complex)),
        lambda x: x.clone().uniform_(**{"from": -1.0, "to": 1.0}),
        lambda x: torch.Tensor.uniform_(x.clone(), **{"from": 2.0, "to": 3.0}),
        lambda x: x.clone().random_(**{"from": 1, "to": 9}),
        lambda x: x.type(torch.DoubleTensor),
        lambda x: x.type("torch.DoubleTensor"),
        lambda x: x.to(torch.complex64) * complex(float("inf"), 1),
        lambda x: torch.full((2,), float("nan"), dtype=float),
        lambda x: x.sum(Axis.ROWS),
        lambda x: x.reshape(Size(6, 4)),
        lambda x: torch.tensor(range(3)) + x[0, :3],
    ],
)
def test_in_one_graph(fn):
    check(fn, X, graphs=1, calls=3)


class Half(float):
    pass


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * np.float64(3.0),
        lambda x: x[np.int64(1)],
        lambda x: x * Half(0.5),
        lambda x: x.type(float),
        lambda x: x.to(torch.complex64) * complex(0, float("inf")),
        lambda x: x.to(torch.complex64) + complex(1, float("nan")),
        lambda x: torch.tensor([True, 1.5, Half(3)]),
    ],
)
def test_as_in_eager(fn):
    try:
        fn(X)
        raises = None
    except Exception as e:
        raises = type(e)
    check(fn, X, graphs=None, breaks=None, ops=None, raises=raises)
