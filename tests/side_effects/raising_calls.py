"""Calls of functions whose operations raise for the numbers in their tensors, on both sides and in both orders."""
import pytest
import torch

import framejit

from support import ANY, Pair

X = torch.tensor([1.0, 2.0, 3.0])
GOOD, BAD = torch.tensor([0, 2]), torch.tensor([0, 9])
TABLE = torch.arange(6.0).reshape(3, 2)


def follow(make, *calls, graphs=ANY, **options):
    """Both sides do the calls in order, and then all once more."""
    pair = Pair(make if make.__name__ == "make" else lambda: make, **options)
    for args in (*calls, *calls):
        pair.call(*args)
    pair.expect(graphs=graphs)
    return pair


SEQUENCES = [((X, GOOD), (X, BAD), (X, BAD), (X, BAD), (X, GOOD)), ((X, BAD), (X, GOOD), (X, BAD), (X, GOOD), (X, BAD))]
either_way = pytest.mark.parametrize("calls", SEQUENCES, ids=["good first", "bad first"])


class Manager:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, cls, exc, tb):
        self.log.append(("exit", cls, str(exc)))
        return self.swallow


def graph_break():
    framejit.graph_break()
