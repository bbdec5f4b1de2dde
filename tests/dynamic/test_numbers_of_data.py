"""Numbers read from tensors stand in one graph where one is asked for, as ints and as sizes; what is asked about them
is asserted, or breaks it."""
import pytest
import torch

import framejit
from framejit.errors import GraphBreakError

from support import check

X = torch.arange(12.0).view(4, 3)
NUMBERS = [torch.tensor(n) for n in (3, 2, 0, 1, -1, 77, 3)]


def same(fn, numbers=NUMBERS, backend="eager"):
    """For each number what plain Python gives or raises, from the same compiled function."""
    fast = framejit.optimize(fn, backend=backend, fullgraph=True)
    for number in numbers:
        try:
            expected = fn(X, number)
        except (RuntimeError, ValueError, AssertionError) as e:
            with pytest.raises(type(e)) as raised:
                fast(X, number)
            assert str(raised.value) == str(e)
        else:
            torch.testing.assert_close(fast(X, number), expected, rtol=0, atol=0)


def arithmetic(x, n):
    number = n.item()
    return number, number * 2 - 1, -number, {"n": (number,)}, x * number, x + int(n), number == number


def as_sizes(x, n):
    number = n.item()
    made = torch.zeros(number, 3)
    return (
        made + 1, made.shape, torch.cat([x, made]), made.sum(0), torch.arange(number), x.repeat(number, 1),
        x.new_full((2, number), 5),
    )


def as_bounds(x, n):
    number = int(n)
    return x[:number], x[number:], x[:number].shape[0], x[number - 1 :].sum()


def checked(x, n):
    number = n.item()
    torch._check(number >= 0)
    torch._check_value(number <= 50, lambda: f"{number} is too much")
    return x.new_ones(number) * number


def raises_by_itself(x, n):
    number = n.item()
    if number < 0:
        raise ValueError(f"{number} is less than nothing")
    if number == 2:
        raise AssertionError("two")
    return torch.zeros(number)


def read_before_it_is_written(x, n):
    copied = n.clone()
    number = copied.item()
    copied += 5
    return number, copied, x + number


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn", [arithmetic, as_sizes, as_bounds, checked, raises_by_itself, read_before_it_is_written])
def test_one_graph(fn, backend):
    same(fn, backend=backend)


def listed(x, n):
    rows, columns = n.tolist()
    torch._check(rows > 0)
    return torch.zeros(rows, columns), rows + columns, x * rows


def test_lists_of_numbers():
    same(listed, [torch.tensor(pair) for pair in ((1, 2), (2, 1), (0, 5), (4, -1), (3, 3))])


def test_sizes_are_checked():
    def fn(x, n):
        chosen = x[x > n]
        torch._check(chosen.shape[0] > 2)
        if chosen.numel() == 5:
            raise ValueError("five")
        return chosen * 2

    same(fn)
    same(fn, [torch.tensor(n) for n in (5, 6, 7, 8, 9, 10)])


def test_floats():
    same(lambda x, n: (x * (x.sum() * n).item(), x.mean().item() + 1))


def decides(x, n):
    return x + 1 if n.item() > 2 else x


def divides(x, n):
    return x * (7 // n.item())


def selects(x, n):
    return x[n.item()]


def counts(x, n):
    return [x + k for k in range(n.item())]


@pytest.mark.parametrize("fn", [decides, divides, selects, counts])
def test_questions_are_not_answered(fn):
    with pytest.raises(GraphBreakError, match="data"):
        framejit.optimize(fn, backend="eager", fullgraph=True)(X, NUMBERS[0])


def test_without_being_asked_for_one_graph_it_breaks():
    check(lambda x, n: x[: n.item()] * 2, X, NUMBERS[0], graphs=range(1, 3), breaks=1)
