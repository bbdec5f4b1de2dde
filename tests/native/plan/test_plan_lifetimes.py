"""Plans: how long values, inputs and memory live, and that nothing is leaked."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest
import torch
from plan_support import CPU, call, empty, plan, value

from framejit.guards import tensor_layout  # noqa: F401  (measures where tensors keep their metadata, which plans need)


def test_values_are_dropped_when_they_are_freed_and_at_the_end():
    refs: list[Any] = []

    def make():
        tensor = torch.zeros(3)
        refs.append(weakref.ref(tensor))
        return tensor

    def alive():
        return [ref() is not None for ref in refs]

    steps = [call(make, to=0), call(make, to=1), ("free", 0), call(alive, to=2)]
    assert plan(0, 3, steps, [value(2)])() == ([False, True],)
    assert alive() == [False, False]


def test_values_are_dropped_when_a_step_raises():
    refs: list[Any] = []

    def keep(x):
        refs.append(weakref.ref(x))
        raise ValueError

    with pytest.raises(ValueError):
        plan(0, 2, [empty(0, 3), call(keep, value(0), to=1)], [])()
    assert refs[0]() is None


def test_inputs_that_a_call_consumes_go_when_they_are_freed():
    x, y = torch.zeros(3), torch.ones(3)
    refs = [weakref.ref(x), weakref.ref(y)]

    def alive():
        return [ref() is not None for ref in refs]

    run = plan(
        2, 5, [call(torch.neg, value(0), to=2), ("free", 0), call(alive, to=3), ("free", 1), call(alive, to=4)],
        [value(2), value(3), value(4)],
    )
    assert run(x, y)[1:] == ([True, True], [True, True])
    given = [x, y]
    del x, y
    result, *seen = run.consume(given)
    assert torch.equal(result, torch.zeros(3)) and seen == [[False, True], [False, False]] and given == []


def test_inputs_that_a_call_consumes_go_at_the_end_at_the_latest():
    x, y = torch.zeros(3), torch.zeros(3)
    refs = [weakref.ref(x), weakref.ref(y)]
    given = [x, y]
    del x, y
    (result,) = plan(2, 2, [], [value(1)]).consume(given)
    assert result is refs[1]() and refs[0]() is None and given == []

    def fails(x):
        raise ValueError

    given = [result, torch.zeros(3)]
    del result
    with pytest.raises(ValueError):
        plan(2, 3, [("free", 0), call(fails, value(1), to=2)], []).consume(given)
    assert refs[1]() is None and given == []


def test_what_may_be_consumed():
    run = plan(1, 1, [("free", 0)], [])
    x = torch.zeros(3)
    count = sys.getrefcount(x)
    for wrong in ((x,), [], [x, x], [3], x):
        with pytest.raises(TypeError):
            run.consume(wrong)
    del wrong
    given = [x]
    assert run.consume(given) == () and given == []
    assert sys.getrefcount(x) == count
    memory = torch.zeros(5)
    given = [memory[1:]]
    assert plan(1, 1, [("free", 0)], [], aligned=(0,), fallback=lambda *inputs: ("fallback", len(inputs))).consume(
        given
    ) == ("fallback", 1)
    assert given == []


def _inherits(given, bytes=12):
    """Whether a tensor that a plan makes lies where the input lay, which the plan consumes."""
    before = given[0].data_ptr()
    inherited = ("inherit", 1, 0, (3,), (1,), torch.int32, CPU, bytes)
    written = call(torch.Tensor.fill_, value(1), 7, to=2), call(torch.Tensor.clone, value(0), to=3)
    run = plan(1, 4, [inherited, *written, ("free", 0)], [value(1), value(3)])
    made, old = run.consume(given) if isinstance(given, list) else run(*given)
    assert made.tolist() == [7, 7, 7] and made.dtype == torch.int32
    assert (made.data_ptr() == before) == (old.view(torch.int32).tolist() == [7, 7, 7])
    return made.data_ptr() == before


def test_memory_of_an_input_goes_on_where_nobody_else_holds_it():
    assert _inherits([torch.zeros(3)])
    assert not _inherits((torch.zeros(3),)), "a call that does not consume its inputs"
    x = torch.zeros(3)
    assert not _inherits([x]) and x.tolist() == [0, 0, 0]
    other = x.detach()
    given = [x]
    del x
    assert not _inherits(given) and other.tolist() == [0, 0, 0], "another tensor over the same memory"
    assert not _inherits([torch.zeros(4)[:3]]), "memory of another size"
    assert not _inherits([torch.zeros(3)], bytes=16)
    x = torch.zeros(3)
    product = torch.ones(3, requires_grad=True) * x
    given = [x]
    del x
    assert not _inherits(given), "kept by autograd"
    product.sum().backward()


def test_memory_is_inherited_from_inputs_only():
    with pytest.raises(ValueError, match="inherited from inputs"):
        plan(0, 2, [empty(0, 3), ("inherit", 1, 0, (3,), (1,), torch.float32, CPU, 12)], [])


def test_calls_leak_no_reference():
    constant, x, y = object(), torch.zeros(4), torch.zeros(4)

    def target(*args, **kwargs):
        return (x, constant)

    def fails(*args):
        raise ValueError

    steps = [
        empty(2, 4),
        call(target, value(0), [value(2), value(2)], (constant, value(1)), key=constant, to=(3, 4)),
        call(len, (), to=None),
    ]
    run = plan(2, 5, steps, [value(0), value(3), value(4), constant])
    broken = plan(2, 4, [empty(2, 4), call(fails, value(2), [value(0)], constant, to=3)], [])

    def counts():
        return [sys.getrefcount(o) for o in (constant, x, y, target, fails, run, broken)]

    run(x, y)
    before = counts()
    for _ in range(100):
        run(x, y)
        with pytest.raises(ValueError):
            broken(x, y)
        with pytest.raises(TypeError):
            run(x, 3)
    assert counts() == before


def test_no_memory_is_kept_by_calls():
    run = plan(1, 3, [empty(1, 1 << 20), call(torch.neg, value(1), to=2)], [value(2)])
    x = torch.zeros(1)
    for _ in range(1000):  # 8 GB if they were kept
        run(x)
    before = _resident_bytes()
    for _ in range(1000):
        run(x)
    assert _resident_bytes() - before < 200e6


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_a_cycle_through_a_plan_is_collected():
    class Holder:
        plan: Any

        def __call__(self, x):
            return x

    holder = Holder()
    holder.plan = plan(
        1, 2, [call(holder, value(0), to=1), call(len, [holder], to=None)], [value(1), holder], fallback=holder
    )
    holder.plan(torch.zeros(1))
    ref = weakref.ref(holder)
    del holder
    gc.collect()
    assert ref() is None
