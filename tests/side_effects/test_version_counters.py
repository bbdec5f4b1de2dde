"""Which results autograd counts writes of together: those of `detach()` and views with their origin, those of `.data`
apart."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit

OPERATIONS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda t: t.data, torch.Tensor.detach, lambda t: t[0] if t.dim() else t.view(1), lambda t: t.view(-1),
    lambda t: t.unsqueeze(0), lambda t: t.detach().data,
]


def program(seed: int) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Some tensors over the memory of an argument and of a result, written in places, of which some are returned."""
    chosen = random.Random(seed)
    made = [(chosen.randrange(number + 2), chosen.randrange(len(OPERATIONS))) for number in range(5)]
    given = sorted(chosen.sample(range(7), chosen.randint(2, 6)))
    written = [chosen.randrange(1, 7) for _ in range(2) if chosen.random() < 0.3]

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        tensors = [x, x * 2 + 1]
        for origin, operation in made:
            tensors.append(OPERATIONS[operation](tensors[origin]))
        with torch.no_grad():
            for place in written:
                tensors[place].add_(1)
        return tuple([tensors[place] for place in given])

    return fn


def seen(fn: Callable[..., Any], x: torch.Tensor) -> Any:
    """The versions of the argument and the results, and those that a write to each of these raises; or the error."""
    try:
        tensors = (x, *fn(x))
        versions = [[tensor._version for tensor in tensors]]
        for tensor in tensors[1:]:
            with torch.no_grad():
                tensor.add_(1)
            versions.append([tensor._version for tensor in tensors])
    except RuntimeError as e:
        return str(e)
    return versions, [tensor.tolist() for tensor in tensors]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("seeds", [range(start, start + 10) for start in (10, 40, 130, 150)], ids=str)
def test_writes_are_counted_as_in_eager(seeds, requires_grad):
    for seed in seeds:
        fn = program(seed)
        fast = framejit.optimize(fn, dynamic=True if seed % 5 == 0 else None)
        for _ in range(2):
            x = torch.randn(3, 4)
            twins = [x.clone().requires_grad_(requires_grad) for _ in range(2)]
            assert seen(fast, twins[0]) == seen(fn, twins[1]), f"program {seed}"


def test_a_write_to_data_does_not_forbid_a_backward():
    def fn(x):
        y = x.exp()
        return y, y.data, x.data

    fast = framejit.optimize(fn)
    for _ in range(3):
        x = torch.randn(4, requires_grad=True)
        y, data, given = fast(x)
        data.mul_(2)
        given.zero_()
        y.sum().backward()
        assert torch.equal(x.grad, y) and x._version == y._version == 0


@pytest.mark.parametrize(
    "operation",
    [
        torch.sigmoid, torch.tanh, torch.exp, torch.relu, torch.sqrt, torch.rsqrt, torch.reciprocal, torch.tan,
        lambda x: x.copysign(x), lambda x: F.softmax(x, -1), lambda x: F.log_softmax(x * 2, -1),
        lambda x: (x + 1).sigmoid() * 1, lambda x: F.elu(x),
    ],
)
def test_the_backward_sees_what_is_written_into_the_data_of_a_result_that_it_keeps(operation):
    def fn(x, scale):
        y = operation(x * scale)
        return y, y + 1

    fast = framejit.optimize(fn)
    for _ in range(3):
        x = torch.rand(3, 4) + 0.1
        gradients = []
        for run in (fn, fast):
            own, scale = x.clone().requires_grad_(), torch.full((), 0.5, requires_grad=True)
            y, z = run(own, scale)
            y.data.add_(0.25)
            (y.sum() + z.sum()).backward()
            gradients.append([own.grad, scale.grad])
        torch.testing.assert_close(*gradients)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_marking_a_tensor_as_written_counts_as_a_write(backend):
    def twice(x):
        return Doubled.apply(Doubled.apply(x))

    compiled = framejit.optimize(twice, backend=backend)
    for shape in [(3,), (3,), (), (2, 4), (0,)]:
        x, y = (torch.ones(shape) for _ in range(2))
        expected, got = twice(x), compiled(y)
        assert torch.equal(expected, got) and got is y and x._version == y._version == 4


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: (x.std(0).square_().sub_(1),), lambda x: (x.var(0)[1:].mul_(2),),
        lambda x: (x.std(0).exp_(), x.std(0)), lambda x: (torch.var_mean(x, 1)[0].unsqueeze(0).add_(1),),
    ],
)
def test_writes_into_results_whose_memory_lies_otherwise(operation):
    """Fused, a deviation is made with the dimension that is gone in the end."""
    compiled = framejit.optimize(operation)
    for shape in [(3, 4)] * 8 + [(5, 2)]:
        versions = [[result._version for result in fn(torch.rand(shape))] for fn in (operation, compiled)]
        assert versions[0] == versions[1]


@pytest.mark.parametrize("make", [torch.ones, torch.zeros, torch.empty, lambda n: torch.full((n,), 2.0), torch.arange])
@pytest.mark.parametrize("view", [lambda t: t, lambda t: t[None], lambda t: t[1:], lambda t: t.detach()[:2]])
def test_writes_into_what_is_made_beside_gradients(make, view):
    """Torch's functions that make tensors detach what they made, and count from then on."""

    def fn(x):
        made = make(x.size(0))
        view(made).sub_(1)
        seen = view(made)
        seen.mul_(2)
        return seen._version, made._version, (x + 1) * 2, x.new_ones(3)[1:].add_(1)._version

    def only_the_view(x):
        made = view(make(x.size(0)))
        made.sub_(1)
        return made._version, x * 2

    for function in (fn, only_the_view):
        compiled = framejit.optimize(function)
        for size in (3, 3, 4, 5):
            expected, got = (each(torch.rand(size, requires_grad=True)) for each in (function, compiled))
            numbers = [[each for each in found if isinstance(each, int)] for found in (expected, got)]
            assert numbers[0] == numbers[1]


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("place", [lambda x: x, lambda x: x.view(-1, 2)[1:]])
def test_laying_out_a_tensor_as_it_lies_counts_as_a_write(place, backend):
    def fn(x):
        part = place(x)
        part.as_strided_(part.shape, part.stride(), storage_offset=part.storage_offset())
        return x * 2

    compiled, x, y = framejit.optimize(fn, backend=backend), torch.ones(4, 2), torch.ones(4, 2)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), fn(y))
        assert x._version == y._version
