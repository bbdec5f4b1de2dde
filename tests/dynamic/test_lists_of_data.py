"""`tensor.tolist()` of a few elements: the numbers stay in the graph as those of `item()` do."""
import pytest
import torch

import framejit

from support import of_kind, recorded

NUMBERS = ((3, 5), (2, 6), (4, 4), (1, 0), (0, 8))


def outcome(fn, args):
    """What a call leaves: the result, gradients, the arguments, the error."""
    try:
        result = fn(*args)
    except Exception as e:
        return type(e).__name__, str(e)
    tensors = [each for each in (result if isinstance(result, tuple) else (result,)) if torch.is_tensor(each)]
    if wanted := [tensor.sum() for tensor in tensors if tensor.requires_grad]:
        sum(wanted).backward()
    return result, [arg.grad for arg in args], [arg.detach() for arg in args], [arg._version for arg in args]


def types(value):
    return [types(each) for each in value] if isinstance(value, (list, tuple)) else type(value)


def calls(fn, dtype=torch.int64, requires_grad=False, numbers=NUMBERS):
    """Calls leave what plain Python leaves; the graphs and breaks that were told."""
    fast = framejit.optimize(fn)
    with recorded() as log:
        for each in numbers:
            x = torch.randn(8, 4)
            made = [
                (x.clone().requires_grad_(requires_grad), torch.tensor(each, dtype=dtype).requires_grad_(
                    requires_grad and dtype.is_floating_point
                ))
                for _ in range(2)
            ]
            expected, found = outcome(fn, made[0]), outcome(fast, made[1])
            assert types(found) == types(expected)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    return len(of_kind(log, "graph")), len(of_kind(log, "graph_break"))


def given_back(x, n):
    return x * 2, n.tolist(), (n * 2).view(2, 1).tolist(), (n > 2).tolist(), n[0].tolist(), n[:0].tolist()


def sizes(x, n):
    first, second = n.tolist()
    return x[:first].sum() * 2, torch.zeros(second, 3) + x.mean()


def computes(x, n):
    total = 0
    for number in n.tolist():
        total = total + number * 2
    return x * total, total


def picks(x, n):
    return torch.stack([x[number % 8] * 2 for number in n.tolist()])


def written_behind(x, n):
    numbers = n.tolist()
    n.add_(1)
    numbers.append(7)
    return x * numbers[0], numbers, n.tolist()


def slices(x, n):
    return torch.cat([x[:number] * 2 for number in n.tolist()])


@pytest.mark.parametrize("fn", [given_back, sizes, computes, picks, written_behind, slices])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_one_graph(fn, requires_grad):
    assert calls(fn, requires_grad=requires_grad) == (1, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool, torch.uint8])
def test_dtypes(dtype):
    def fn(x, n):
        numbers = (n * 1).tolist()
        return x * numbers[0] + numbers[1], numbers

    assert calls(fn, dtype) == (1, 0)
    assert calls(lambda x, n: (x + 1, n.tolist()), dtype, requires_grad=True) == (1, 0)


def sorts(x, n):
    return x * 2, sorted(n.tolist())


def asks(x, n):
    return x * 2 if 3 in n.tolist() else x - 1


def shows(x, n):
    return x * 2, [*map(ord, f"{n.tolist()}")]


def counts_places(x, n):
    return x * 2, {number: place for place, number in enumerate(n.tolist())}


def splits(x, n):
    return tuple(torch.split(x * 2, n.tolist()))


@pytest.mark.parametrize("fn", [sorts, asks, shows, counts_places, splits])
def test_what_has_to_be_known_breaks_the_graph_where_it_is_read(fn):
    _, breaks = calls(fn, numbers=NUMBERS[:3])
    assert breaks


def test_many_numbers_break_the_graph():
    _, breaks = calls(lambda x, n: (x * 2, (x[:, 0].repeat(3) > 0).tolist()), numbers=NUMBERS[:2])
    assert breaks == 1


def test_complex_numbers_break_the_graph():
    _, breaks = calls(lambda x, n: (x * 2, torch.complex(n, n).tolist()), torch.float32, numbers=NUMBERS[:2])
    assert breaks == 1
