"""Plans: what inputs and descriptions they refuse, and what becomes of inputs that lie otherwise than kernels need."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from plan_support import COUNT_UP, CPU, call, empty, plan, value

from framejit import _native as native
from framejit._native import Plan, Value
from framejit.backends.fuse.plan.aligned_copy import aligned_copy
from framejit.guards import tensor_layout  # noqa: F401  (measures where tensors keep their metadata, which plans need)


@pytest.mark.parametrize(
    "inputs",
    [
        (), (torch.zeros(1),), (torch.zeros(1), 3), (None, torch.zeros(1)), (torch.zeros(1),) * 3,
        ([torch.zeros(1)], 2.0),
    ],
)
def test_wrong_inputs_are_a_type_error(inputs):
    run = plan(2, 2, [], [value(0)], name="mine", aligned=(0, 1))
    with pytest.raises(TypeError, match="mine"):
        run(*inputs)


def test_keywords_are_a_type_error():
    with pytest.raises(TypeError):
        plan(1, 1, [], [])(x=torch.zeros(1))
    with pytest.raises(TypeError):
        plan(1, 1, [], [])(torch.zeros(1), x=torch.zeros(1))


KERNEL = COUNT_UP.address


@pytest.mark.parametrize(
    "steps",
    [
        [("nothing", 1)],
        ["empty"],
        [()],
        [("free",)],
        [("free", 1)],
        [("free", 9)],
        [("free", -1)],
        [("free", 0), ("free", 0)],
        [empty(0, 2)],
        [empty(1, 2), empty(1, 2)],
        [empty(1, 2), ("free", 1), empty(1, 2)],
        [("empty", 1, (2,), (1, 1), torch.float32, CPU)],
        [("empty", 1, (-2,), (1,), torch.float32, CPU)],
        [("empty", 1, 2, 1, torch.float32, CPU)],
        [("empty", 1, (2,), (1,), "torch.float32", CPU)],
        [("empty", 1, (2,), (1,), torch.float32, "cpu")],
        [("empty", 1, (2**70,), (1,), torch.float32, CPU)],
        [("reinterpret", 1, 1, (2,), (1,), 0, torch.float32)],
        [("cpu_kernel", 0, (), (), 1, 1)],
        [("cpu_kernel", KERNEL, (1,), (), 1, 1)],
        [("cpu_kernel", KERNEL, (), (), 1, 0)],
        [("cpu_kernel", KERNEL, (), (), -1, 1)],
        [("cpu_kernel", KERNEL, (), ("a",), 1, 1)],
        [call(len, Value(1), to=None)],
        [call(len, [Value(1)], to=None)],
        [call(len, key=Value(7), to=None)],
        [call(3, to=None)],
        [call(len, to=0)],
        [call(len, to=(1, 1))],
        [("call", len, [], None, None)],
        [("call", len, (), (), None)],
    ],
    ids=lambda steps: repr(steps).replace(str(KERNEL), "KERNEL"),  # each process has another address
)
def test_a_description_that_cannot_run_is_refused(steps):
    with pytest.raises((ValueError, TypeError, OverflowError, AttributeError)):
        plan(1, 3, steps, [])


def test_outputs_and_aligned_inputs_are_checked():
    with pytest.raises(ValueError, match="holds nothing"):
        plan(0, 1, [], [value(0)])
    with pytest.raises(ValueError, match="holds nothing"):
        plan(1, 2, [empty(1, 1)], [], aligned=[1])
    with pytest.raises(TypeError, match="fallback"):
        Plan(0, 0, [], [])  # type: ignore[call-arg]


def test_a_dtype_that_torchs_c_functions_do_not_know_is_typed():
    with pytest.raises(native.PlanUnsupported):
        plan(0, 1, [("empty", 0, (2,), (1,), torch.quint8, CPU)], [])


def test_the_fallback_runs_calls_with_unaligned_inputs():
    calls: list[Any] = []

    def fallback(*inputs):
        calls.append(inputs)
        return "fallback"

    run = plan(2, 2, [], ["plan"], fallback=fallback, aligned=[1])
    storage = torch.zeros(16)
    assert run(storage[1:], storage) == ("plan",)
    assert run(storage, storage[4:]) == ("plan",)
    odd = storage[1:]
    assert run(storage, odd) == "fallback"
    assert calls == [(storage, odd)] and calls[0][1] is odd


def test_copies_stand_for_unaligned_inputs_that_may_be_copied():
    run = plan(
        3, 4, [("call", torch.add, (value(0), value(1)), None, 3)], [value(3), value(2)], aligned=[0, 1, 2],
        copied=[0, 1], aligned_copy=aligned_copy, fallback=lambda *inputs: "fallback",
    )
    storage = torch.arange(40.0)
    odd, other = storage[1:9].view(2, 4).t(), storage[17:19].expand(4, 2)
    for inputs in ((odd, other, storage), (storage[:8].view(4, 2), other, storage), (odd, storage[:2], storage)):
        counts = [*map(sys.getrefcount, inputs)]
        total, same = run(*inputs)
        torch.testing.assert_close(total, inputs[0] + inputs[1])
        assert total.stride() == (inputs[0] + inputs[1]).stride() and same is inputs[2]
        del same
        assert [*map(sys.getrefcount, inputs)] == counts
        given = [*inputs]
        torch.testing.assert_close(run.consume(given)[0], total)
        assert given == []
    assert run(storage, storage, storage[1:]) == "fallback"
    assert run(odd, other, storage[1:]) == "fallback"
    given = [odd, other, storage[1:]]
    assert run.consume(given) == "fallback" and given == []


def test_a_plan_for_other_sizes_copies_too():
    run = plan(1, 2, [("call", torch.neg, (value(0),), None, 1)], [value(1)], aligned=[0], copied=[0],
               aligned_copy=aligned_copy).for_sizes([], [value(1)], [], lambda *inputs: "fallback")
    x = torch.arange(5.0)[1:]
    assert torch.equal(run(x)[0], -x)


def test_what_a_copy_raises_is_raised():
    def raises(tensor):
        raise MemoryError("no room")

    with pytest.raises(TypeError, match="aligned_copy"):
        plan(1, 1, [], [], copied=[0])
    with pytest.raises(TypeError, match="aligned_copy"):
        plan(1, 1, [], [], copied=[0], aligned_copy=3)
    run = plan(1, 1, [], [value(0)], aligned=[0], copied=[0], aligned_copy=raises)
    x = torch.zeros(5)[1:]
    count = sys.getrefcount(x)
    with pytest.raises(MemoryError, match="no room"):
        run(x)
    given = [x]
    with pytest.raises(MemoryError, match="no room"):
        run.consume(given)
    assert len(given) == 1 and given[0] is x
    del given
    assert sys.getrefcount(x) == count
    assert run(torch.zeros(4))
