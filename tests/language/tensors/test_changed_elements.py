"""`x[i] += y` with a number of data in the key: a table of counts, a queue of which a part is changed."""
import pytest
import torch

import framejit

from support import Pair, check

X = torch.arange(24.0).reshape(8, 3)
V = torch.tensor([5.0, 6.0, 7.0])


def row(x, i, v):
    x[i] += v
    return x * 2


def by_number(x, i, v):
    x[i.item()] *= v
    x[int(i) - 1] -= 2
    return x.sum(0)


def part_of_a_row(x, i, v):
    x[i, 1:] += v[1:]
    x[i, 0] /= 2
    x[i, 0] += x[i, 1]
    return x + 1


def rows(x, i, v):
    at = int(i)
    x[at : at + 2] += v
    x[at : at + 2, :] *= x[at : at + 2].clone()
    return x + 1


def in_a_loop(x, i, v):
    for n in range(3):
        x[(i + n) % 4] += v[n]
    return x * 2


PROGRAMS = [row, by_number, part_of_a_row, rows, in_a_loop]


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_breaks(program):
    pair = check(program, X.clone(), torch.tensor(3), V, graphs=1, breaks=0)
    for i in (1, 2, 5):
        pair.call(X.clone(), torch.tensor(i), V, captures=False)
    for i in (9, -9, -1, 7, 0, 3):
        pair.call(X.clone(), torch.tensor(i), V)


def counts(table, truths, guesses):
    for truth, guess in zip(truths, guesses):
        table[truth, guess] += 1
    return table.sum(0)


def counts_by_numbers(table, truths, guesses):
    for n in range(3):
        table[truths[n].item(), int(guesses[n])] += 1
    return table.diag().sum()


@pytest.mark.parametrize("program", [counts, counts_by_numbers])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.int32])
def test_a_table_of_counts(program, dtype):
    pair = Pair(lambda: program)
    for n in range(4):
        truths, guesses = torch.randint(0, 4, (3,)), torch.randint(0, 4, (3,))
        pair.call(torch.ones(4, 4, dtype=dtype), truths, guesses, captures=n == 0)
    assert not pair.breaks
    pair.call(torch.ones(4, 4, dtype=dtype), torch.tensor([1, 2, 4]), torch.tensor([0, 1, 2]))
    assert pair.raised is IndexError


def refused_by_torch(x, i, v):
    x[i] += 0.5
    return x + 1


def held(x, i, v):
    part = x[i]
    part += v
    x[i] = part
    return x, part


def stored_elsewhere(x, i, v):
    part = x[i]
    part += v
    x[i + 1] = part
    return x * 2


def written_meanwhile(x, i, v):
    x[i] += x.add_(1)[0]
    return x * 2


def with_a_history(x, i, v):
    y = x * v.requires_grad_()
    y[i] += v
    y[0] += y[i]
    return torch.autograd.grad(y.square().sum(), v)


def counted(x, i, v):
    before = x._version
    x[i] += v
    return x._version - before, x * 2


@pytest.mark.parametrize("program", [held, stored_elsewhere, written_meanwhile, with_a_history, counted])
def test_what_else_may_be_told(program):
    pair = Pair(lambda: program)
    for i in (3, 1, 2):
        pair.call(X.clone(), torch.tensor(i), V.clone())


def test_what_torch_refuses():
    pair = Pair(lambda: refused_by_torch)
    for i in (3, 1):
        pair.call(X.long(), torch.tensor(i), V)
        assert pair.raised is RuntimeError


def test_versions():
    """Python changes the view, and stores it: two writes."""
    plain, fast = X.clone(), X.clone()
    row(plain, torch.tensor(2), V)
    framejit.optimize(row, backend="eager")(fast, torch.tensor(2), V)
    assert fast._version == plain._version == 2
