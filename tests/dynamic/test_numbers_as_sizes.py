"""A number read from a tensor that is only a size, or a bound of a slice, stays in the graph: without `fullgraph`, too,
where nothing else breaks it."""
import pytest
import torch

import framejit

from support import of_kind, recorded

ROWS = 40
NUMBERS = (5, 7, 12, 1, 0, ROWS, ROWS + 30, 33, ROWS - 1, 2)


def outcome(fn, args):
    """What a call leaves: results with their versions, gradients, the arguments, the error."""
    try:
        results = fn(*args)
    except Exception as e:
        return [type(e).__name__, str(e)], [arg.detach() for arg in args], [arg._version for arg in args]
    tensors = [each for each in (results if isinstance(results, tuple) else (results,)) if torch.is_tensor(each)]
    wanted = [tensor.sum() for tensor in tensors if tensor.requires_grad]
    if wanted:
        sum(wanted).backward()
    versions = [tensor._version for tensor in (*tensors, *args)]
    return results, [arg.grad for arg in args], [arg.detach() for arg in args], versions


def calls(fn, fast, numbers, requires_grad=False):
    """Calls with such numbers leave what plain Python leaves."""
    for number in numbers:
        x = torch.randn(ROWS, 8)
        n = number if isinstance(number, torch.Tensor) else torch.tensor(number)
        expected, found = (
            outcome(each, [x.clone().requires_grad_(requires_grad), n.clone()]) for each in (fn, fast)
        )
        assert type(found[0]) is type(expected[0])
        if isinstance(expected[0], list):
            assert found[0] == expected[0]
            found, expected = found[1:], expected[1:]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


def head(x, n):
    y = torch.relu(x) * 2
    z = y[: n.item()]
    return (z + 1).sum()


def tail(x, n):
    return (x[int(n) :] * 2 + 1).exp(), (x[:, 1:3] - 1)[n.item() :].sum()


def made(x, n):
    count = int(n)
    return torch.zeros(count, 8) + x[:1] * 2, torch.arange(n.item()) * 2 + 1, x.new_full((3, count), 1.5) * 2 - 1


def spread(x, n):
    return x[:1].expand(n.item(), 8) * 2 + 1, torch.ones(n.item(), 8).matmul(x.t()).relu() * 2


def read_between_writes(x, n):
    n.add_(1)
    first = x[: n.item()] * 2 + 1
    n.mul_(2)
    return first.sum(), torch.ones(n.item()) * 3 - first.mean()


def given_back(x, n):
    z = x[: n.item()]
    return z * 2 + 1, z.shape[0], len(z), int(n)


def computed(x, n):
    return (x[: (n * 2 - n).item()] * 2 + 1).sum()


def computes_with_it(x, n):
    count = n.item()
    return x * count + 1, x[:count] * count * 2


def caught(x, n):
    try:
        z = torch.zeros(n.item()) + 1
    except RuntimeError:
        return x - 1
    return z * 2


def same_bounds(x, n):
    count = n.item()
    return (x[:count] * 2 + (x + 1)[:count]).sum(), x[:, 1:][:count] - x[:count, 1:]


ONE_GRAPH = [same_bounds, head, tail, made, spread, read_between_writes, given_back, computed, computes_with_it, caught]


@pytest.mark.parametrize("fn", ONE_GRAPH)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_one_graph(fn, requires_grad):
    fast = framejit.optimize(fn)
    with recorded() as log:
        calls(fn, fast, NUMBERS, requires_grad)
    assert len(of_kind(log, "graph")) == 1 and not of_kind(log, "graph_break")
    assert sum(len(graph.kernels) for graph in framejit.inspect(fast).graphs)


def written(x, n):
    y = x * 2
    y[: n.item()] = 0
    y[n.item() :, 1:3] += 1
    x.add_(1)
    return (y * 3 + 1).sum(0), y


def test_writes():
    fast = framejit.optimize(written)
    with recorded() as log:
        calls(written, fast, NUMBERS)
    assert len(of_kind(log, "graph")) == 1


@pytest.mark.parametrize("fn", [head, made, caught])
def test_numbers_that_are_no_sizes(fn):
    calls(fn, framejit.optimize(fn), (-3, 5, -1, -1, -2, 7, -4))
    calls(fn, framejit.optimize(fn), (5, -3, 7, -1, -1, -2, 9, -4))


@pytest.mark.parametrize("fn", [head, made])
def test_numbers_of_other_kinds(fn):
    numbers = torch.tensor(3.0), torch.tensor(True), torch.tensor([4]), torch.tensor(6, dtype=torch.int32)
    fast = framejit.optimize(fn)
    calls(fn, fast, (*numbers, torch.tensor([1, 2]), *numbers))


def asks(x, n):
    z = (torch.relu(x) * 2)[: n.item()]
    if z.shape[0] > 3:
        return (z + 1).sum()
    return z - 1


def counts_to_it(x, n):
    z = x[: n.item()] * 2
    for k in range(z.shape[0]):
        z = z + k
    return z


def breaks_behind(x, n):
    z = x[: n.item()] * 2
    print(end="")
    return z + 1


def adds_two(x, n):
    return x[: n.item()] + x[: (n + 0).item()] * 2


def finds_places(x, n):
    z = x[: n.item()] * 2
    return z[z > 0].sum() + 1


def loops(x, n):
    z = x[: n.item()].sum()
    while z > 1:
        z = z / 2
    return z + 1


def step(x, n):
    return x[:: n.item()] * 2


@pytest.mark.parametrize("fn", [asks, counts_to_it, breaks_behind, adds_two, finds_places, loops, step])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_has_to_be_known_breaks_the_graph_where_it_is_read(fn, requires_grad):
    fast = framejit.optimize(fn)
    with recorded() as log:
        calls(fn, fast, (5, 7, 1, 0, 12, ROWS + 3), requires_grad)
    assert of_kind(log, "graph_break")[0].fields["code"] == "FJ101"


def written_without_gradients(x, n):
    y = x * 2
    with torch.no_grad():
        y.add_(1)
    y.mul_(3)
    with torch.no_grad():
        z = y[: n.item()] * 2
        z.add_(1)
    return y, z


def modes_without_writes(x, n):
    with torch.no_grad():
        y = x * 2 + 1
    count = n.item()
    z = y[:count] * x[:count]
    with torch.no_grad():
        return z.exp() * 2, z + 1


@pytest.mark.parametrize("fn", [written_without_gradients, modes_without_writes])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_modes(fn, requires_grad):
    calls(fn, framejit.optimize(fn), NUMBERS, requires_grad)
    calls(fn, framejit.optimize(fn, fullgraph=True), NUMBERS, requires_grad)
