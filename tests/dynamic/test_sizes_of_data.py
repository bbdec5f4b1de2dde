"""Results whose sizes data decides stand in one graph where one is asked for; what the program asks about such a size
breaks it."""
import pytest
import torch

import framejit
from framejit.errors import GraphBreakError

from support import check

X = torch.tensor([[1.0, -1, 0], [2, 0, 3]])
INPUTS = [X, X * 2, -X.abs(), torch.eye(2, 3), X.repeat(2, 1), torch.zeros(0, 3), X]
"""Three places, the same number of other places, none, one in each row, other sizes, no elements."""


def same(fn, backend="eager", inputs=INPUTS, **options):
    """One graph gives what plain Python gives, for inputs in which data decides differently."""
    fast = framejit.optimize(fn, backend=backend, fullgraph=True, **options)
    for x in inputs:
        torch.testing.assert_close(fast(x.clone()), fn(x.clone()), rtol=0, atol=0)


def places(x):
    found = x.nonzero()
    return found, x[found[:, 0]].sum(0), torch.where(x > 0), torch.argwhere(x), x.nonzero(as_tuple=True)


def selected(x):
    positive, negative = x[x > 0], torch.masked_select(x, x < 0)
    both = torch.cat([positive, negative])
    return (
        both * 2 + 1, positive.sum(), torch.outer(positive, negative), positive.view(-1, 1).expand(-1, 3),
        both.sort().values, positive[None, 1:],
    )


def sizes_used(x):
    positive = x[x > 0]
    number, total = positive.shape[0], positive.numel()
    return (
        number, len(positive) * 2 + 1, positive.shape, torch.zeros(number + 1), x * total, x.new_ones(2, number),
        total - number, {"n": number},
    )


def unique_ones(x):
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    totals = torch.zeros(values.shape[0]).index_add_(0, inverse.view(-1), x.reshape(-1))
    return (
        values, counts, totals, values[inverse], torch.unique_consecutive(x.view(-1)), torch.unique(x, dim=1),
        torch.bincount((x > 0).int().view(-1)),
    )


def repeated(x):
    return torch.repeat_interleave(x, torch.arange(x.shape[0]), 0), (x > 0).nonzero().squeeze(-1)


def sliced(x):
    positive = x[x > 0]
    parts = positive[1:], positive[:1], positive[-1:], positive[:-1], positive[::2]
    rest = positive[1:]
    rest += 1
    return (
        [part.shape[0] for part in parts], parts, torch.zeros(positive[1:].shape[0]), positive,
        x.nonzero()[:, :1].shape,
    )


def written(x):
    chosen = x > 0
    x[chosen] = x[chosen].sort(descending=True).values
    x[x < 0] = 7
    return x, x.masked_scatter(chosen, x[chosen] + 1)


@pytest.mark.parametrize("fn", [places, selected, sizes_used, unique_ones, repeated, sliced, written])
@pytest.mark.parametrize("backend", ["eager", "fuse", "given"])
def test_one_graph(fn, backend):
    # of no elements, unique has no rows
    inputs = [x for x in INPUTS if x.shape == X.shape or backend != "given" and (x.numel() or fn is not unique_ones)]
    same(fn, (lambda gm, inputs: gm.forward) if backend == "given" else backend, inputs)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_beside_symbolic_sizes(backend):
    def fn(x):
        positive = x[x > 0]
        return positive * x.shape[0], positive.shape[0] + x.shape[0], torch.cat([positive, x[:, 0]])

    same(fn, backend, dynamic=True)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_gradients(backend):
    def fn(x):
        return (x[x > 0] ** 2).sum() + x.masked_select(x < 0).prod()

    fast = framejit.optimize(fn, backend=backend, fullgraph=True)
    for x in INPUTS:
        one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
        torch.testing.assert_close(
            torch.autograd.grad(fast(one), one), torch.autograd.grad(fn(two), two), rtol=0, atol=0
        )


def asks_whether_there_are_some(x):
    return x[x > 0] + 1 if x[x > 0].shape[0] > 0 else x


def asks_by_truth(x):
    return x if len(x[x > 0]) else x + 1


def takes_the_greater(x):
    return torch.zeros(max(x[x > 0].shape[0], 1))


def broadcasts(x):
    return x[x > 0] + torch.ones(3)


def drops_dimensions_of_one_element(x):
    return x[x > 0].squeeze().dim()


def asks_how_it_lies(x):
    return x.t()[(x > 0).any(0)].t().is_contiguous()


def goes_through_it(x):
    return [value + 1 for value in x[x > 0]]


def divides_by_it(x):
    return x + 7 // x[x > 0].shape[0]


def counts_in_a_branch(x):
    return torch.cond(x.sum() > 0, lambda y: y[y > 0], lambda y: y[y < 0], (x,))


def lays_it_out_anew(x):
    found = x.nonzero()
    number = found.shape[0]
    found.t_()
    return torch.zeros(number), number


def is_written_over(x):
    found = x[x > 0]
    number = found.shape[0]
    torch.add(x[0], 1, out=found)
    return torch.zeros(number), number


QUESTIONS = [
    lays_it_out_anew,
    is_written_over,
    asks_whether_there_are_some,
    asks_by_truth,
    takes_the_greater,
    broadcasts,
    drops_dimensions_of_one_element,
    asks_how_it_lies,
    goes_through_it,
    divides_by_it,
    counts_in_a_branch,
]


@pytest.mark.parametrize("fn", QUESTIONS)
def test_questions_are_not_answered(fn):
    with pytest.raises(GraphBreakError, match="data"):
        framejit.optimize(fn, backend="eager", fullgraph=True)(X)


def test_an_operation_that_raises():
    fast = framejit.optimize(lambda x: x[x > 0].max() * 2, backend="eager", fullgraph=True)
    for x in INPUTS[:4]:
        if (x > 0).any():
            assert torch.equal(fast(x), x.max() * 2)
        else:
            with pytest.raises(RuntimeError, match="Expected reduction dim"):
                fast(x)


def test_without_being_asked_for_one_graph_it_breaks():
    check(lambda x: x[x > 0] * 2, X, graphs=2, breaks=1)
