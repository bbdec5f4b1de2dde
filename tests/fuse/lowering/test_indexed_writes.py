"""Writes at computed places, as for a GPU: values, what is left in the arguments, and counts of writes are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from framejit.backends.fuse.schedule.make_kernels import schedule
from tests.fuse.interpreter import Interpreter
from tests.fuse.lowering.cuda_graphs import lowered_for_cuda
from tests.fuse.lowering.lowering_checks import compare, externs, kernels
from tests.graph.test_layouts import lowered, on_gpu

torch.manual_seed(0)
CACHE = torch.randn(2, 3, 16, 8)
ROW, ROWS = torch.randn(2, 3, 1, 8), torch.randn(2, 3, 4, 8)
ONE, FOUR, BACK = torch.tensor([5]), torch.tensor([9, 0, 15, 4]), torch.tensor([-16, 3, -1, 0 + 1])


put = torch.ops.aten.index_put_.default


def rotated(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat([-right, left], -1) * 0.5 + x


def read_before_and_after(cache, row, place):
    before = cache * 2
    cache.index_copy_(2, place, rotated(row))
    return before, cache.sum(-1), cache.index_select(2, place)


def twice(cache, row, place):
    cache.index_copy_(2, place, row)
    middle = cache + 1
    cache.index_copy_(2, place - 1, row * 2)
    return middle, cache + 1


def through_a_view(cache, row, place):
    part = cache.narrow(1, 1, 2).transpose(0, 1)
    part.index_copy_(2, place, row.narrow(1, 1, 2).transpose(0, 1))
    return cache * 3


def of_what_it_writes(cache, row, place):
    cache.index_copy_(2, place, cache.mean(2, keepdim=True) + row)
    return cache.sum(1)


def returned(cache, row, place):
    return cache.index_copy_(2, place + 1, row), row


def with_brackets(cache, row, place):
    put(cache, [None, None, place], row + 1)
    return cache.amax(2)


def one_for_all(cache, row, place):
    put(cache, [None, None, place], row.narrow(0, 0, 1).narrow(1, 0, 1) * 2)
    return cache.amax(2)


def first_dimension(cache, row, place):
    put(cache, [place % 2], row.narrow(0, 0, 1))
    return cache - 1


WRITES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "a row of a cache": (read_before_and_after, (CACHE, ROW, ONE)),
    "several rows": (read_before_and_after, (CACHE, ROWS, FOUR)),
    "two writes": (twice, (CACHE, ROW, ONE)),
    "through a view": (through_a_view, (CACHE, ROW, ONE)),
    "of what it writes": (of_what_it_writes, (CACHE, ROW, ONE)),
    "returned": (returned, (CACHE, ROW, ONE)),
    "brackets": (with_brackets, (CACHE, ROW, ONE)),
    "brackets from behind": (with_brackets, (CACHE, ROWS, BACK)),
    "one row for all": (one_for_all, (CACHE, ROW, FOUR)),
    "the first dimension": (first_dimension, (CACHE, ROW, ONE)),
    "another layout": (read_before_and_after, (CACHE.transpose(1, 3).contiguous().transpose(1, 3), ROW, ONE)),
    "halves": (read_before_and_after, (CACHE.bfloat16(), ROW.bfloat16(), ONE)),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("scheduled", [False, True], ids=["lowered", "scheduled"])
def test_writes(name: str, scheduled: bool) -> None:
    f, inputs = WRITES[name]
    mine, theirs = ([tensor.clone() for tensor in inputs] for _ in range(2))
    graph = lowered_for_cuda(f, *(tensor.clone() for tensor in inputs))
    assert externs(graph) == ["_increment_version"], externs(graph)
    assert any(store.index.indirects for kernel in kernels(graph) for store in kernel.stores)
    if scheduled:
        graph.nodes = [*schedule(graph)]
    got, expected = Interpreter(graph).run(mine), f(*theirs)
    for result, wanted in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
        compare(result, wanted)
    compare(mine, theirs)
    assert [tensor._version for tensor in mine] == [tensor._version for tensor in theirs]


@pytest.mark.parametrize(
    "f, inputs",
    [
        (lambda x, i, v: x.index_copy_(0, i, v), (torch.randn(4, 3), torch.tensor(1), torch.randn(1, 3))),
        (lambda x, i, v: put(x, [i, i], v), (torch.randn(4, 3), torch.tensor([1]), torch.randn(1))),
        (lambda x, i, v: put(x, [i], v, True), (torch.randn(4, 3), ONE - 4, torch.randn(1, 3))),
        (lambda x, i, v: put(x, [i], v), (torch.randn(4, 3), (ONE - 4).int(), torch.randn(1, 3))),
    ],
    ids=["a place of no dimension", "two indices", "sums", "int32"],
)
def test_what_stays_with_aten(f: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> None:
    graph = lowered_for_cuda(f, *inputs)
    assert {"index_copy_", "index_put_"} & {*externs(graph)}


def test_what_has_no_such_place_stays_with_aten() -> None:
    def f(x, i, v):
        return (put(x + 1, [i], v),)

    graph = lowered(f, on_gpu(0, 3), on_gpu(1, dtype=torch.int64), on_gpu())
    assert "index_put_" in externs(graph)


def test_memory_of_several_elements_is_not_written() -> None:
    def f(x, i, v):
        return x.index_copy_(0, i, v)

    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        lowered_for_cuda(f, torch.randn(1, 3).expand(4, 3), ONE - 4, torch.randn(1, 3))


def test_several_places_in_deterministic_mode_stay_with_aten() -> None:
    def f(cache, rows, places):
        cache.index_copy_(2, places, rows)
        return cache * 2

    torch.use_deterministic_algorithms(True)
    try:
        many, one = lowered_for_cuda(f, CACHE.clone(), ROWS, FOUR), lowered_for_cuda(f, CACHE.clone(), ROW, ONE)
    finally:
        torch.use_deterministic_algorithms(False)
    assert "index_copy_" in externs(many) and "index_copy_" not in externs(one)
