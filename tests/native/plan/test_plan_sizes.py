"""`Plan.for_sizes`: a plan for other sizes shares the steps that are the same, and is refused where it would use other
slots."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
import torch
from plan_support import CPU, Kernel, call, floats, no_fallback

from framejit._native import Plan, Value
from framejit.guards import tensor_layout  # noqa: F401  (measures where tensors keep their metadata, which plans need)


def _double(pointers, ints, begin, end):
    x, out = floats(pointers[0]), floats(pointers[1])
    for i in range(begin, end):
        out[i] = x[i] * ints[0]


DOUBLE = Kernel(_double)


def described(n, factor=2):
    """x[n] * factor, then that reshaped by a call, and how long it is."""
    steps = [
        ("empty", 1, (n,), (1,), torch.float32, CPU),
        ("cpu_kernel", DOUBLE.address, (0, 1), (factor,), n, 1 << 20),
        ("reinterpret", 2, 1, (n, 1), (1, 1), 0, torch.float32),
        call(torch.ops.aten.view.default, Value(2), [1, n], to=3),
        call(torch.ops.aten.neg.default, Value(3), to=4),
        ("expect", 4, (1, n), (n, 1), lambda tensor: tensor),
        ("free", 3),
    ]
    return steps, (Value(1), Value(4), n)


def first(n=3, **options):
    steps, outputs = described(n)
    return Plan(1, 5, steps, outputs, **{"fallback": no_fallback, **options})


def changes(n, numbers=(0, 1, 2, 3, 5)):
    steps, outputs = described(n)
    return [(number, steps[number]) for number in numbers], outputs


def test_each_plan_is_right_for_its_sizes():
    base = first()
    plans = {3: base}
    for n in (5, 0, 1, 17):
        given, outputs = changes(n)
        plans[n] = base.for_sizes(given, outputs, (), no_fallback)
    for n in (3, 17, 0, 5, 1, 3):
        x = torch.randn(n)
        doubled, negative, length = plans[n](x)
        assert torch.equal(doubled, x * 2) and torch.equal(negative, -2 * x.view(1, n)) and length == n
    assert plans[5].n_steps == base.n_steps == 7


def test_a_base_for_no_elements_runs_no_kernel_and_others_do():
    base = first(0)
    given, outputs = changes(4)
    x = torch.randn(4)
    assert torch.equal(base.for_sizes(given, outputs, (), no_fallback)(x)[0], x * 2)
    assert base(torch.randn(0))[0].shape == (0,)


def test_the_first_plan_lives_as_long_as_those_made_of_it():
    class Fallback:
        def __call__(self, x):
            raise AssertionError

    own, other = Fallback(), Fallback()
    gone = weakref.ref(own)
    base = first(fallback=own)
    given, outputs = changes(2)
    made = base.for_sizes(given, outputs, (), other)
    assert made.fallback is other
    del base, own
    gc.collect()
    assert gone() is not None
    assert torch.equal(made(torch.ones(2))[0], torch.full((2,), 2.0))
    del made
    gc.collect()
    assert gone() is None


def test_cycles_through_plans_are_collected():
    class Fallback:
        def __call__(self, x):
            raise AssertionError

    own = Fallback()
    gone = weakref.ref(own)
    base = first(fallback=own)
    given, outputs = changes(2)
    own.plan = base.for_sizes(given, outputs, (), own)
    del own, base
    gc.collect()
    assert gone() is None


def test_references_are_balanced():
    base = first()
    given, outputs = changes(1 << 40)
    watched = [no_fallback, base, outputs, given[0][1], outputs[2]]
    before = [sys.getrefcount(each) for each in watched]
    for _ in range(10):
        base.for_sizes(given, outputs, (), no_fallback)
        with pytest.raises(ValueError):
            base.for_sizes([*given, (6, ("free", 4))], outputs, (), no_fallback)
    assert [sys.getrefcount(each) for each in watched] == before


def test_spans_of_inputs_that_are_written():
    fallbacks = []

    def fallback(x, y):
        fallbacks.append((x, y))
        return (x,)

    base = Plan(
        2, 2, [call(torch.ops.aten.add_.Tensor, Value(0), Value(1), to=None)], [Value(0)], fallback=fallback,
        alone=(0,), spans=(8, 8),
    )
    memory = torch.zeros(8)
    base(memory[:2], memory[2:4])
    assert not fallbacks
    longer = base.for_sizes([], [Value(0)], (16, 16), fallback)
    longer(memory[:4], memory[2:6])
    assert len(fallbacks) == 1
    with pytest.raises(ValueError, match="spans"):
        base.for_sizes([], [Value(0)], (16,), fallback)


STEPS, OUTPUTS = described(4)


@pytest.mark.parametrize(
    ("given", "outputs", "error"),
    [
        ([(7, STEPS[0])], OUTPUTS, IndexError),
        ([(-1, STEPS[0])], OUTPUTS, IndexError),
        ([(0, STEPS[1])], OUTPUTS, ValueError),
        ([(0, ("empty", 2, (4,), (1,), torch.float32, CPU))], OUTPUTS, ValueError),
        ([(1, ("cpu_kernel", DOUBLE.address, (1, 0), (2,), 4, 1))], OUTPUTS, ValueError),
        ([(1, ("cpu_kernel", DOUBLE.address, (0,), (2,), 4, 1))], OUTPUTS, ValueError),
        ([(2, ("reinterpret", 2, 0, (4, 1), (1, 1), 0, torch.float32))], OUTPUTS, ValueError),
        ([(3, call(torch.ops.aten.view.default, Value(1), [1, 4], to=3))], OUTPUTS, ValueError),
        ([(3, call(torch.ops.aten.view.default, Value(2), [Value(1), 4], to=3))], OUTPUTS, ValueError),
        ([(3, call(torch.ops.aten.view.default, Value(2), [1, 4], to=None))], OUTPUTS, ValueError),
        ([(6, ("free", 4))], OUTPUTS, ValueError),
        ([(0, ("empty", 1, (-4,), (1,), torch.float32, CPU))], OUTPUTS, ValueError),
        ([(0, ("empty", 99, (4,), (1,), torch.float32, CPU))], OUTPUTS, ValueError),
        ([(0, "empty")], OUTPUTS, ValueError),
        ([0], OUTPUTS, TypeError),
        (0, OUTPUTS, TypeError),
        ([], OUTPUTS[:2], ValueError),
        ([], (Value(4), Value(1), 4), ValueError),
        ([], (Value(1), 4, 4), ValueError),
        ([], 4, TypeError),
    ],
)
def test_what_does_not_fit_is_refused(given, outputs, error):
    base = first()
    with pytest.raises(error):
        base.for_sizes(given, outputs, (), no_fallback)
    x = torch.randn(3)
    assert torch.equal(base(x)[0], x * 2)


def test_a_fallback_is_needed():
    with pytest.raises(TypeError, match="fallback"):
        first().for_sizes([], OUTPUTS, (), None)
