"""Collectives in captured code: nodes of the graph, done once in each process whatever one compiles or raises."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F

import framejit
from tests.training.two_processes import Net, batches, in_two_processes, needs_gloo, records, whole

pytestmark = needs_gloo
OPERATIONS = torch.ops._c10d_functional
WORLD = "0"
"""The name of the group of all processes."""


def averaged(x, k):
    y = x * k
    dist.all_reduce(y)
    return y.sin() / dist.get_world_size() + dist.get_rank()


def greatest_of_an_argument(x, k):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    return x * k


def a_part(x, k):
    y = x * k
    dist.all_reduce(y[1:3])
    return y.cos()


def from_the_first(x, k):
    y = x * k
    dist.broadcast(y, 0)
    return y.sin()


def gathered(x, k):
    made = x.new_empty(2 * x.shape[0], x.shape[1])
    getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(made, x * k)
    return made.sin()


def scattered(x, k):
    made = x.new_empty(x.shape[0] // 2, x.shape[1])
    getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)(made, (x * k).cos())
    return made.sin()


def number(x, k):
    total = (x.abs() * k).sum()
    dist.all_reduce(total)
    return x / total.item()


def functions(x, k):
    world = dist.group.WORLD
    a = functional.all_reduce(x * k, "sum", world) + 1
    b = functional.all_gather_tensor(x.cos(), 1, world)
    return a.sum() + functional.reduce_scatter_tensor(b * 2, "avg", 1, world).sin()


def summed_and_written(x, k):
    """Makes a number of x that all processes know, writes it into x, and makes something of that."""
    total = OPERATIONS.all_reduce(x.sum(), "sum", WORLD)
    x.add_(OPERATIONS.wait_tensor(total) * k)
    return OPERATIONS.wait_tensor(OPERATIONS.all_reduce(x.cos(), "sum", WORLD))


def not_asked_for(x, k):
    OPERATIONS.wait_tensor(OPERATIONS.all_reduce(x.sum(), "sum", WORLD))
    return OPERATIONS.wait_tensor(OPERATIONS.all_reduce(x * k, "sum", WORLD)) + 1


def products_behind(x, k):
    """Whose memory may not be that of what is waited for."""
    y = OPERATIONS.wait_tensor(OPERATIONS.all_reduce(x.sin(), "sum", WORLD))
    a = (x.cos() * k) @ x.T
    return y + 1, (a @ x).sin() @ x.T


WRITING = (averaged, greatest_of_an_argument, a_part, from_the_first, gathered, scattered, number)
GIVING = (functions, summed_and_written, not_asked_for, products_behind)


def norm(x, k):
    y = x.sin() * k
    total = y.detach().square().sum()
    dist.all_reduce(total)
    return y / total.sqrt()


def functions_with_gradients(x, k):
    world = dist.group.WORLD
    gathered = functional.all_gather_tensor_autograd(x * k, 0, world)
    return functional.reduce_scatter_tensor_autograd(gathered.cos(), "sum", 0, world).sin()


WITH_GRADIENTS = (norm, functions_with_gradients)


def _given(rank, call):
    draw = torch.Generator().manual_seed(2 * call + rank)
    return torch.randn(4, 6, dtype=torch.float64, generator=draw)


def _compared(rank, compared):
    for function in compared:
        compiled = framejit.optimize(function)
        for call in range(6):
            k = 1.5 if rank == 1 or call < 2 else float(call)  # one process compiles anew
            found, expected = (_given(rank, call).requires_grad_(function in WITH_GRADIENTS) for _ in range(2))
            results = compiled(found, k), function(expected, k)
            torch.testing.assert_close(*results, msg=lambda text, name=function.__name__: f"{name}: {text}")
            if function in WITH_GRADIENTS:
                for result in results:
                    result.square().sum().backward()
                torch.testing.assert_close(found.grad, expected.grad)
            torch.testing.assert_close(found, expected)
        record = records()[function.__name__]
        assert record.graphs and not record.breaks, (function.__name__, record.breaks)


@pytest.mark.parametrize("functions", [WRITING, GIVING, WITH_GRADIENTS], ids=["writing", "giving", "with gradients"])
def test_collectives_are_nodes(functions):
    in_two_processes(_compared, functions)


def _selected_after(x, place):
    y = OPERATIONS.wait_tensor(OPERATIONS.all_reduce(x.sin(), "sum", WORLD))
    try:
        return y.index_select(0, place).exp()
    except IndexError:
        return y.cos()


def _selected_before(x, place):
    try:
        x = x.index_select(0, place)
    except IndexError:
        x = x[:1]
    total = x.sum()
    dist.all_reduce(total)
    return x * total


def _raising(rank):
    for function in (_selected_after, _selected_before):
        compiled = framejit.optimize(function)
        for call in range(8):
            x, place = _given(rank, call), torch.tensor([9 if rank == 1 and call in (2, 4, 5) else 1])
            torch.testing.assert_close(compiled(x, place), function(x, place))
        assert records()[function.__name__].graphs


def test_one_process_raises():
    in_two_processes(_raising)


def _stepped(rank, compiled):
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    @compiled
    def step(x, y):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    losses = []
    for call, (x, y) in enumerate(batches(rank, 6)):
        if rank == 1 and call == 3:
            net.scale = 1.5
        losses.append(step(x, y))
    return losses + whole(net.parameters())


def _steps(rank):
    expected, found = (_stepped(rank, compiled) for compiled in (lambda function: function, framejit.optimize))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    [record] = framejit.status().functions
    assert record.graphs == 1 + rank and not record.breaks


def test_a_step_that_averages_gradients_is_one_graph():
    in_two_processes(_steps)
