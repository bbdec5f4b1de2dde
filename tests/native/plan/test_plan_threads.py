"""Plans: the threads that a kernel's range is dealt out to, and threads that share a plan."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from plan_support import COUNT_UP, Kernel, call, empty, plan, value

from framejit.guards import tensor_layout  # noqa: F401  (measures where tensors keep their metadata, which plans need)


class Ranges:
    """A kernel that notes the ranges it was called for, and from which threads."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.threads: set[int] = set()
        self.kernel = Kernel(self._run)

    def _run(self, pointers, ints, begin, end):
        self.calls.append((begin, end))
        self.threads.add(threading.get_native_id())


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("total", "grain"), [(1, 1), (7, 8), (15, 8), (16, 8), (17, 8), (100, 1), (101, 7), (1000, 400), (5, 2**62)]
)
def test_the_range_is_covered_once_by_no_more_threads_than_allowed(set_threads, threads, total, grain):
    set_threads(threads)
    ranges = Ranges()
    plan(0, 0, [("cpu_kernel", ranges.kernel.address, (), (), total, grain)], [])()
    calls = sorted(ranges.calls)
    assert [begin for begin, _ in calls] == [0] + [end for _, end in calls[:-1]] and calls[-1][1] == total
    assert len(calls) == max(1, min(threads, total // grain))
    assert len(calls) == 1 or min(end - begin for begin, end in calls) >= grain
    assert len(ranges.threads) == len(calls)


def test_an_empty_range_runs_nothing():
    ranges = Ranges()
    plan(0, 0, [("cpu_kernel", ranges.kernel.address, (), (), 0, 1)], [])()
    assert ranges.calls == []


def test_a_long_kernel_lets_other_threads_run():
    entered, left = threading.Event(), threading.Event()
    kernel = Kernel(lambda *args: (entered.set(), left.wait(20)))
    run = plan(0, 0, [("cpu_kernel", kernel.address, (), (), 2, 1)], [])
    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(20)
    left.set()
    thread.join()


def test_threads_share_a_plan(set_threads):
    set_threads(2)
    steps = [
        empty(1, 64), ("cpu_kernel", COUNT_UP.address, (1,), (3, 2), 64, 8),
        call(torch.add, value(0), value(1), to=2), ("free", 1),
    ]
    run = plan(1, 3, steps, [value(2), value(0)])
    expected = 3 + 2 * torch.arange(64.0)
    errors: list[Any] = []

    def work(number):
        x = torch.full((64,), float(number))
        for _ in range(50):
            result, same = run(x)
            if not torch.equal(result, expected + number) or same is not x:
                errors.append(number)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []


def test_a_plan_with_very_many_values():
    n = 500
    steps: list[Any] = [empty(i, 2) for i in range(n)]
    steps += [("cpu_kernel", COUNT_UP.address, (i,), (i, 1), 2, 8) for i in range(n)]
    steps += [call(lambda *tensors: torch.stack(tensors).sum(), *[value(i) for i in range(n)], to=n)]
    run = plan(0, n + 1, steps, [value(n)])
    assert run()[0] == sum(2 * i + 1 for i in range(n))
