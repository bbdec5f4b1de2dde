"""A graph in which data decides sizes is compiled in parts: what finds such a size runs as ATen between them."""
import pytest
import torch

import framejit
from framejit.backends.fuse import backend
from framejit.backends.fuse.sizes import new_sizes, part_by_size

from support import of_kind, recorded, seed

ROWS = 40
COUNTS = (7, 12, 1, 0, 40, 39, 7, 2, 23)
"""How many rows are chosen, call by call: others, one, none, all of them."""


def rows(count, requires_grad=False):
    """A tensor in which so many rows are positive."""
    values = torch.rand(ROWS, 8) + 0.1
    values[count:] *= -1
    return values.requires_grad_(requires_grad)


def outcome(fn, args):
    """What a call leaves: results with their versions, gradients, inputs, the state of random numbers, the error."""
    seed()
    try:
        results = fn(*args)
    except Exception as e:
        return repr(e), [arg.detach() for arg in args], [arg._version for arg in args]
    tensors = results if isinstance(results, tuple) else (results,)
    wanted = [tensor.sum() for tensor in tensors if isinstance(tensor, torch.Tensor) and tensor.requires_grad]
    if wanted:
        sum(wanted).backward()
    versions = [tensor._version for tensor in (*tensors, *args) if isinstance(tensor, torch.Tensor)]
    return results, [arg.grad for arg in args], [arg.detach() for arg in args], versions, torch.get_rng_state()


def kernels(fast):
    return sum(len(graph.kernels) for graph in framejit.inspect(fast).graphs)


def check(fn, calls, least=1, atol=1e-5, **options):
    """One graph, of which kernels do `least`, leaves what plain Python leaves, call after call."""
    fast = framejit.optimize(fn, backend="fuse", fullgraph=True, **options)
    with recorded() as log:
        for args in calls:
            expected = outcome(fn, [arg.detach().clone().requires_grad_(arg.requires_grad) for arg in args])
            found = outcome(fast, [arg.detach().clone().requires_grad_(arg.requires_grad) for arg in args])
            assert type(found[0]) is type(expected[0]) and (type(found[0]) is not str or found[0] == expected[0])
            torch.testing.assert_close(found[1:], expected[1:], rtol=1e-5, atol=atol, equal_nan=True)
            if type(found[0]) is not str:
                torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=atol, equal_nan=True)
    assert len(of_kind(log, "graph")) == 1
    assert kernels(fast) >= least
    return fast


def chosen(x):
    positive = x[x.sum(1) > 0]
    return (positive.exp() * 2 + 1).sum(), positive.tanh() * 3 - positive


def found(x):
    places = (torch.relu(x).sum(1) > 0).nonzero().squeeze(-1)
    picked = (x * 2 + 1)[places]
    return picked.exp() - 1, picked.mean(0) * 2, places * 2 + 1


def two_masks(x):
    return (x[x > 0].square() + 1).sum() * 2 + (x.masked_select(x < 0).sin() * 2).sum()


def sizes_in_use(x):
    positive = x[x.sum(1) > 0]
    count = positive.shape[0]
    return torch.zeros(count, 8) + positive * 2, x * count + 1, torch.arange(count) * 2 + 1, count


def joined(x):
    both = torch.cat([x[x > 0.5], x[x < -0.5]])
    return (both * 2 + 1)[both > 0.7].sum() + both.exp().sum(), both.view(-1, 1) * torch.ones(1, 3) + 1


def unique_ones(x):
    values, inverse, counts = torch.unique((x * 4).round().detach(), return_inverse=True, return_counts=True)
    return values * 2 + 1, counts * 2 - 1, values[inverse] * 3 + x


def repeated(x):
    many = torch.repeat_interleave(x * 2 + 1, torch.arange(ROWS) % 3, 0)
    return many.tanh() * 2 + 1, many.sum(0)


def draws(x):
    dropped = torch.nn.functional.dropout(x * 2 + 1, 0.5)
    positive = dropped[dropped > 0]
    return torch.nn.functional.dropout(positive * 2 - 1, 0.3), torch.rand(positive.shape[0]) + positive


def without_gradients(x):
    with torch.no_grad():
        mask = (x * 2 + 1) > 0.3
        inside = x[mask].sigmoid() * 2
    return (x[mask] * 2 + 1).sum(), inside


FUNCTIONS = [
    chosen, found, two_masks, sizes_in_use, joined, unique_ones, repeated, draws, without_gradients,
]


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_values(fn):
    check(fn, [(rows(count),) for count in COUNTS])


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_gradients(fn):
    check(fn, [(rows(count, requires_grad=True),) for count in COUNTS])


@pytest.mark.parametrize("fn", [chosen, found, joined])
def test_beside_sizes_that_are_left_open(fn):
    calls = [(torch.randn(length, 8, requires_grad=True),) for length in (30, 12, 2, 50)]
    check(fn, calls, dynamic=True)


def writes_into_its_input(x):
    x.mul_(2)
    positive = x[x > 0]
    more = positive * 2
    more.add_(1)
    positive.sub_(more)
    x.add_(1)
    return positive, more.sum()


def writes_into_what_it_made(x):
    y = x * 2
    places = (y > 1).nonzero()
    y.add_(1)
    picked = y[places[:, 0]]
    part = picked[:, 1:]
    part.mul_(3)
    picked.exp_()
    y[0] = picked.sum(0)
    return y, picked, part


@pytest.mark.parametrize("fn", [writes_into_its_input, writes_into_what_it_made])
def test_writes(fn):
    check(fn, [(rows(count),) for count in COUNTS], atol=1e-2)


def head(x, n):
    return (torch.relu(x) * 2)[: n.item()].add(1).sum()


def tail(x, n):
    return (x[-n.item() :] * 2 + 1).exp()


def middle(x, n):
    first = n.item()
    return (x[first : first + 3] * 2 + 1).exp(), (x * first).sum()


def made_of_numbers(x, n):
    count = int(n)
    return torch.zeros(count, 8) + x[:1] * 2, torch.arange(n.item()) * 2 + 1, x.new_ones(3, count) * 2 - 1


def read_between_writes(x, n):
    n.add_(1)
    head = x[: n.item()] * 2 + 1
    n.mul_(2)
    return head.sum(), torch.ones(n.item()) * 3 - head.mean()


NUMBERS = (5, 7, 1, 0, ROWS, ROWS + 30, 33, -1, 5, ROWS - 1, 2)


@pytest.mark.parametrize("fn", [head, tail, middle, made_of_numbers, read_between_writes])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_numbers(fn, requires_grad):
    check(fn, [(rows(ROWS, requires_grad), torch.tensor(number)) for number in NUMBERS])


def test_a_number_that_comes_first_divides_nothing():
    fast = check(head, [(rows(9), torch.tensor(number)) for number in NUMBERS[:2]])
    assert {graph.name.rpartition("_")[2] for graph in framejit.inspect(fast).graphs} == {"0"}


def test_an_error_of_no_elements():
    check(lambda x: (x[x > 0] * 2 + 1).max() * 2, [(rows(count),) for count in (5, 0, 9)])


def test_sizes_that_always_are_others_are_compiled_a_few_times():
    fast = framejit.optimize(chosen, backend="fuse", fullgraph=True)
    for count in range(2, 400):
        x = torch.ones(400, 2)
        x[count:] = -1
        torch.testing.assert_close(fast(x), chosen(x))
    names = [graph.name for graph in framejit.inspect(fast).graphs]
    assert max(map(names.count, names)) <= part_by_size.MOST


def test_a_part_whose_sizes_come_once_goes_to_aten_where_plans_do_not_pay(monkeypatch):
    monkeypatch.setattr(new_sizes, "MARGIN", 0)
    monkeypatch.setattr(new_sizes, "SAMPLES", 1)
    fast = framejit.optimize(chosen, backend="fuse", fullgraph=True)
    for count in range(2, 300):
        x = torch.ones(300, 2)
        x[count:] = -1
        torch.testing.assert_close(fast(x), chosen(x))
    last = framejit.inspect(fast).graphs[-1]
    assert last.state == "eager" and "most of which come once" in last.reason


def test_small_parts_are_left_to_aten():
    fast = framejit.optimize(lambda x: x[x > 0] + 1, backend="fuse", fullgraph=True)
    assert fast(rows(4)).shape == (32,)
    [graph] = framejit.inspect(fast).graphs
    assert "too little for kernels" in graph.reason


def test_a_graph_that_calls_python_is_left_to_aten():
    def fn(x):
        torch.manual_seed(3)
        return x[x > 0] * 2 + torch.rand(1)

    fast = framejit.optimize(fn, backend="fuse", fullgraph=True)
    x = rows(5)
    assert torch.equal(fast(x), fn(x))
    [graph] = framejit.inspect(fast).graphs
    assert "data decides the sizes" in graph.reason


def test_a_part_that_is_left_to_aten_says_why():
    def fn(x):
        return (x[x > 0] * 2 + 1j).conj()

    fast = framejit.optimize(fn, backend="fuse", fullgraph=True)
    for count in (4, 9):
        x = rows(count)
        torch.testing.assert_close(fast(x), fn(x))
    [graph] = framejit.inspect(fast).graphs
    assert graph.state == "eager" and "conj" in graph.reason


def test_a_part_that_can_t_be_compiled_is_told_of(monkeypatch):
    """What goes wrong in the midst of the program: with one warning each part runs as ATen."""

    def fails(gm):
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(backend, "open_inputs", fails)
    with pytest.warns(framejit.errors.FramejitWarning, match="ZeroDivisionError: a mistake of ours") as told:
        check(chosen, [(rows(count, True),) for count in COUNTS], least=0)
    assert len(told) == 2  # before the size that data decides, and behind it
    assert "ZeroDivisionError: a mistake of ours" in str(framejit.status())
