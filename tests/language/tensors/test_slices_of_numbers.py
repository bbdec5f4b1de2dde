"""`x[i : i + 3]` with an int that was read from a tensor: the slice has a known length, so that nothing breaks."""
import pytest
import torch

import framejit

from support import Pair, check, check_steps

X = torch.arange(24.0).reshape(8, 3)


def rows(x, i, v):
    at = int(i)
    return x[at : at + 2] * 2 + v


def of_a_key(x, i, v):
    at = i.item() + 1
    return x[at - 1 : at + 1, :] * 2 + x[at : at + 2 : 1, ...].sum()


def set_rows(x, i, v):
    at = int(i)
    x[at : at + 2] = v
    return x + 1


def set_columns(x, i, v):
    y = x.t().contiguous()
    at = int(i)
    y[:, at : at + 2] = v.t()
    y[0, at : at + 2] = 7
    y[..., at : at + 2] = v[0, 0]
    return y


def set_other_shapes(x, i, v):
    at = int(i)
    x[at : at + 2] = v[:1]
    x[at : at + 3] = v.double()[0]
    x[at : at + 2, 1:] = x[at + 1 : at + 3][:, 1:] + 1
    return x.sum(0)


def overlapping(x, i):
    at = int(i)
    x[at : at + 2] = x[:2]
    return x + 1


def overlapping_slices(x, i):
    at = int(i)
    x[at : at + 2] = x[at + 1 : at + 3]
    return x + 1


def set_nothing(x, i, v):
    at = int(i)
    x[at:at] = 5.0
    return x * 2


PROGRAMS = [rows, of_a_key, set_rows, set_columns, set_other_shapes, set_nothing]
V = torch.tensor([[5.0, 6.0, 7.0], [8.0, 9.0, 10.0]])


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_nothing_breaks(program, dtype):
    pair = check(program, X.clone(), torch.tensor([3], dtype=dtype), V, graphs=1, breaks=0)
    for i in (0, 1, 5):
        pair.call(X.clone(), torch.tensor([i], dtype=dtype), V, captures=False)


@pytest.mark.parametrize("program", PROGRAMS)
def test_ends_beyond_the_tensors(program):
    pair = check(program, X.clone(), torch.tensor(3), V, graphs=1, breaks=0)
    for i in (7, 8, 100, -2, -1, -100, 2**40):
        pair.call(X.clone(), torch.tensor(i), V)
    pair.call(X.clone(), torch.tensor(2), V)


def test_other_slices_break_as_they_did():
    check(lambda x, i: x[int(i) : 2 * int(i)] + 1, X, torch.tensor(2), graphs=range(1, 3), breaks=range(2))
    check(lambda x, i: x[(n := int(i)) : n + 4 : 2] + 1, X, torch.tensor(2), graphs=range(1, 3), breaks=range(2))
    check(lambda x, i: x[(n := int(i)) : n - 1] + 1, X, torch.tensor(2), graphs=range(1, 3), breaks=range(2))
    check(lambda x, i: x[(n := int(i)) : n + 9] + 1, X, torch.tensor(2), graphs=range(1, 3), breaks=range(2))
    check(lambda x, i: x.t()[:, (n := int(i)) : n + 2] + 1, X, torch.tensor(2), graphs=range(1, 3), breaks=range(2))


@pytest.mark.parametrize("program", [overlapping, overlapping_slices])
def test_what_is_written_over_itself(program):
    pair = Pair(lambda: program)
    for i in (3, 0, 1, 2, 5):
        pair.call(X.clone(), torch.tensor(i))


def handed_out(x, i):
    y, at = x * 2, int(i)
    return y[at : at + 2], y


def written_into(x, i):
    at = int(i)
    x[at : at + 2].mul_(10)
    x[at : at + 2] += 1
    return x * 2


@pytest.mark.parametrize("program", [handed_out, written_into])
def test_what_leaves_is_a_view(program):
    fast = framejit.optimize(program)
    for i in (2, 0, 5):
        results = []
        for run in (program, fast):
            x = X.clone()
            found = run(x, torch.tensor(i))
            parts = found if isinstance(found, tuple) else (found,)
            for part in parts:
                part += 100  # seen in whatever shares its memory
            results.append((x, parts, [part._is_view() for part in parts]))
        torch.testing.assert_close(*results, rtol=0, atol=0)


def test_gradients():
    def step(x, w, i):
        at = int(i)
        part = (x @ w)[at : at + 3]
        return (part * part).sum() + w[at].sum()

    results = []
    for run in (step, framejit.optimize(step)):
        for i in (0, 2, 1):
            w = torch.arange(9.0).reshape(3, 3).requires_grad_()
            loss = run(X, w, torch.tensor(i))
            loss.backward()
            results.append((loss.detach(), w.grad))
    torch.testing.assert_close(results[:3], results[3:])


class Queue(torch.nn.Module):
    """Holds the last keys, and in a buffer where the next ones go."""

    def __init__(self, size):
        super().__init__()
        self.key = torch.nn.Linear(3, 4)
        self.register_buffer("queue", torch.zeros(4, size))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def push(self, keys):
        count, at = keys.shape[0], int(self.pointer)
        assert self.queue.shape[1] % count == 0
        self.queue[:, at : at + count] = keys.t()
        self.pointer[0] = (at + count) % self.queue.shape[1]


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_step_with_a_queue(backend):
    """As contrastive learning has it: all of the step is one graph."""

    def outcomes(compile_step):
        torch.manual_seed(0)
        module = Queue(8)
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)

        def step(x):
            keys = module.key(x)
            loss = (keys @ module.queue.clone()).logsumexp(1).mean() + keys.square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            module.push(keys)
            return loss.detach()

        run = compile_step(step)
        found = [(run(torch.randn(2, 3)), module.queue.clone(), module.pointer.clone()) for _ in range(9)]
        return found, [*module.parameters()]

    check_steps(outcomes, backend, 2, rtol=1e-5, atol=1e-6)


def by_size(x, i, v):
    at, count = int(i), v.shape[0]
    taken = x[at : at + count] * 2
    x[at : at + count] = v
    x[at : at + count] += taken
    return x + 1


def ends_by_size(x, i, v):
    at = i.item() + len(v)
    x[at - len(v) : at] = 3.0
    return x[at - len(v) : at + 1] * 2


@pytest.mark.parametrize("program", [by_size, ends_by_size])
def test_lengths_that_are_left_open(program):
    pair = Pair(lambda: program)
    for count in (2, 3, 4):
        pair.call(X.clone(), torch.tensor(1), torch.randn(count, 3))
    for count, i in ((5, 0), (2, 5), (3, 2)):
        pair.call(X.clone(), torch.tensor(i), torch.randn(count, 3), captures=False)
    assert not pair.breaks
    for count, i in ((3, 6), (3, -1), (9, 0), (1, 2), (0, 1), (2, 3)):
        pair.call(X.clone(), torch.tensor(i), torch.randn(count, 3))
