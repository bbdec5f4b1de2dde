"""`x[i]` with a tensor without dimensions, or a number read from one: the graph takes the element, and what leaves is
the view that the program has."""
import pytest
import torch

import framejit

from support import Pair, check

X = torch.arange(12.0).reshape(4, 3)


def row(x, i):
    return x[i] * 2 + 1


def of_a_key(x, i):
    return x[i, :] + x[..., i, :] - x[i, 1:].sum()


def two(x, i):
    return x[i, i - 1] * 2 + x.sum()


def by_number(x, i):
    return x[i.item()] + x[int(i) - 1]


def by_argmax(x, i):
    best = x.sum(1).argmax()
    return x[best][:2].clamp(min=0) * x[i][1:]


def in_loop(x, i):
    total = torch.zeros(3)
    for n in range(3):
        total = total + x[(i + n) % 4]
    return total


@pytest.mark.parametrize("program", [row, of_a_key, two, by_number, by_argmax, in_loop])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
def test_reading_breaks_nothing(program, dtype):
    pair = check(program, X, torch.tensor(2, dtype=dtype), graphs=1, breaks=0)
    for i in (0, 1, -1, -2):
        pair.call(X + i, torch.tensor(i, dtype=dtype), captures=False)


@pytest.mark.parametrize("program", [row, two, by_number])
def test_out_of_range(program):
    pair = check(program, X, torch.tensor(2), graphs=1, breaks=0)
    for i in (4, -5, 100, 2**40):
        pair.call(X, torch.tensor(i))
        assert pair.raised is IndexError
    pair.call(X, torch.tensor(1))


def written_before_it_raises(x, i, log):
    x.add_(1)
    log.append(1)
    return x[i] * 2


def test_out_of_range_after_a_write():
    pair = check(written_before_it_raises, X.clone(), torch.tensor(2), [], graphs=1, breaks=0)
    pair.call(X.clone(), torch.tensor(7), [])
    assert pair.raised is IndexError


def set_row(x, i, v):
    x[i] = v
    return x * 2


def set_part(x, i, v):
    x[i, 1:] = v[1:]
    x[i, 0] = 3
    x[i] = x[i] + 1
    x[..., i, 2] = x[0, 0]
    return x + 1


def set_other_shapes(x, i, v):
    x[i] = v[:1]
    x[i - 1] = v[None, None]
    x[0, i] = v.sum().double()
    x[1] = v.int()
    return x.sum(0)


def set_by_number(x, i, v):
    x[i.item() - 1] = v.mean().item()
    x[int(i)] = 7
    return x


@pytest.mark.parametrize("program", [set_row, set_part, set_other_shapes, set_by_number])
def test_writing_breaks_nothing(program):
    v = torch.tensor([5.0, 6.0, 7.0])
    pair = check(program, X.clone(), torch.tensor(2), v, graphs=1, breaks=0)
    for i in (0, 1, -1):
        pair.call(X.clone(), torch.tensor(i), v, captures=False)
    pair.call(X.clone(), torch.tensor(9), v)
    assert pair.raised is IndexError


def test_integers_and_bools():
    def fn(x, i):
        x[i] = 2.5
        return x[i] + 1

    for dtype in (torch.int64, torch.bool, torch.bfloat16, torch.complex64):
        check(fn, torch.ones(4, 3).to(dtype), torch.tensor(1), graphs=range(1, 3), breaks=range(2))


def handed_out(x, i):
    y = x * 2
    return y[i], y


def of_an_input(x, i):
    return x[i], x.sum()


def with_written_index(x, i):
    part = x[i]
    i.add_(1)
    return part * 2, part


def written_into(x, i):
    x[i].mul_(10)
    x[i] += 1
    return x * 2


def written_later(x, i):
    part = x[i]
    x.add_(1)
    return part * 2


def view_of_it(x, i):
    return x[i].view(3, 1), x[i].storage_offset(), x + 1


@pytest.mark.parametrize(
    "program", [handed_out, of_an_input, with_written_index, written_into, written_later, view_of_it]
)
def test_what_leaves_is_a_view(program):
    fast = framejit.optimize(program)
    for i in (2, 0, 1, -1):
        results = []
        for run in (program, fast):
            x, index = X.clone(), torch.tensor(i)
            found = run(x, index)
            parts = found if isinstance(found, tuple) else (found,)
            for part in parts:
                if isinstance(part, torch.Tensor):
                    part += 100  # seen in whatever shares its memory
            results.append((x, index, parts, [p._is_view() for p in parts if isinstance(p, torch.Tensor)]))
        torch.testing.assert_close(*results, rtol=0, atol=0)


def test_views_of_results_are_no_graphs_more():
    check(handed_out, X, torch.tensor(1), graphs=1, breaks=0)
    check(of_an_input, X, torch.tensor(1), graphs=1, breaks=0)
    pair = Pair(lambda: written_later)
    pair.call(X.clone(), torch.tensor(1))
    assert len(pair.breaks) == 1


@pytest.mark.parametrize("backend", ["fuse", "eager"])
def test_gradients(backend):
    def step(x, w, i):
        part = (x @ w)[i]
        return (part * part).sum() + w[i, 1]

    results = []
    for run in (step, framejit.optimize(step, backend=backend)):
        for i in (0, 2, -1):
            w = torch.arange(9.0).reshape(3, 3).requires_grad_()
            loss = run(X, w, torch.tensor(i))
            loss.backward()
            results.append((loss.detach(), w.grad))
    assert torch.equal(torch.stack([r[0] for r in results[:3]]), torch.stack([r[0] for r in results[3:]]))
    torch.testing.assert_close(results[:3], results[3:])


def test_columns_and_masks_break_as_they_did():
    check(lambda x, i: x[:, i] + 1, X, torch.tensor(1), graphs=range(1, 3), breaks=range(2))
    check(lambda x, i: x[None, i] + 1, X, torch.tensor(1), graphs=range(1, 3), breaks=range(2))
    check(lambda x, i: [1, 2, 3][i] + x, X, torch.tensor(1), graphs=1, breaks=1)
    check(lambda x, i: x[i] + 1, X, torch.tensor(True), graphs=range(3), breaks=range(2))
    check(lambda x, i: x[i] + 1, X, torch.tensor(1, dtype=torch.uint8), graphs=range(3), breaks=range(2))
