"""Launches that overlap: what a kernel may read before the one before it has ended, and which launches of a plan
wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from framejit.backends.fuse.loop_ir.nodes import ExternNode, Kernel
from framejit.backends.fuse.plan.plan_parts import KERNEL, launching
from framejit.backends.fuse.targets.cuda import CudaTarget
from tests.fuse.lowering.cuda_graphs import scheduled_for_cuda


@pytest.fixture(autouse=True)
def overlapping(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(CudaTarget, "overlaps_launches", True)
    yield


def kernels_of(f, *inputs: torch.Tensor) -> list[Kernel]:
    return parts_of(scheduled_for_cuda(f, *inputs))


def parts_of(steps) -> list[Kernel]:
    """The kernels among steps, those that share a launch one by one."""
    return [part for step in steps if isinstance(step, Kernel) for part in step.members or (step,)]


def inputs_of(name: frozenset[str] | None) -> list[str]:
    assert name is not None
    return sorted(name)


def test_inputs_that_nothing_writes_need_not_be_waited_for():
    def f(x, w, v):
        y = torch.softmax((x * w).sum(0), 0)
        return torch.softmax((y * v).sum(1), -1)

    kernels = kernels_of(f, torch.zeros(64, 64), torch.zeros(64, 64), torch.zeros(64, 64))
    assert len(kernels) > 2
    found = [inputs_of(kernel.steady) for kernel in kernels]
    assert {name for names in found for name in names} == {"x0", "x1", "x2"}
    for kernel, names in zip(kernels, found):
        assert names == [name for name in sorted(kernel.reads) if kernel.buffers[name].input is not None]


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.narrow(0, 0, 32), lambda x: x.t()])
def test_an_input_that_something_writes_is_waited_for(view):
    def f(x, w):
        y = torch.softmax((x * w).sum(0), 0)
        view(w).mul_(2)
        return torch.softmax((y * w).sum(1), -1)

    for kernel in kernels_of(f, torch.zeros(64, 64), torch.zeros(64, 64)):
        assert not {"x1", "x1@1"} & kernel.steady


def test_an_input_that_an_operation_of_aten_writes_is_waited_for():
    def f(x, w):
        y = torch.softmax((x * w).sum(0), 0)
        w.lgamma_()
        return torch.softmax((y * w).sum(1), -1)

    steps = scheduled_for_cuda(f, torch.zeros(64, 64), torch.zeros(64, 64))
    kernels = parts_of(steps)
    assert 1 < len(kernels) and any(isinstance(step, ExternNode) for step in steps)
    for kernel in kernels:
        assert not {name for name in kernel.steady if name.startswith("x1")}


def test_where_launches_do_not_overlap_none_waits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(CudaTarget, "overlaps_launches", False)
    [kernel] = kernels_of(lambda x: x * 2 + 1, torch.zeros(64))
    assert kernel.steady is None


def launch(grid, waits=True):
    return lambda slots: ("cuda_kernel", 7, grid, 128, 0, (), 0, waits)


def waits_of(*grids):
    steps = [(KERNEL, number, ()) for number in range(len(grids))]
    return [step[-1] for step in launching(steps, [launch(grid) for grid in grids])]


def test_the_first_launch_of_a_plan_waits_for_all_before():
    assert waits_of((1, 1, 1), (1, 1, 1), (2, 1, 1)) == [False, True, True]


@pytest.mark.parametrize("size", [0, "a size that is not known"])
def test_a_launch_that_may_be_of_nothing_is_not_the_first(size):
    assert waits_of((size, 1, 1), (1, 1, 1), (size, 1, 1), (2, 1, 1)) == [False, False, True, True]


def test_a_launch_without_elements_takes_no_others_with_it():
    def f(x, w):
        nothing = torch.zeros(0, 3, device=x.device)
        others = torch.zeros(4, device=x.device), x.narrow(0, 0, 0) * 2, x.narrow(0, 0, 4) + 1, x * 3
        return (nothing, *others, x.narrow(1, 0, 64) @ w, x.narrow(0, 0, 1) @ w.narrow(1, 0, 0), x @ w.narrow(1, 0, 8))

    steps = scheduled_for_cuda(f, torch.zeros(8, 64), torch.zeros(64, 16))
    launches = [step for step in steps if isinstance(step, Kernel)]
    assert any(step.members for step in launches)
    assert all(not step.members for step in launches if step.is_empty)
    assert all(not part.is_empty for step in launches for part in step.members)
