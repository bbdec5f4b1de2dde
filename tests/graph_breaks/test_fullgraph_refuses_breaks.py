"""fullgraph=True refuses a break with an error that names the line, the reason and what to do."""
import pytest
import torch

import framejit
from framejit.errors import GraphBreakError

from support import Pair, check

X = torch.tensor([1.0, 2.0, 3.0])


def test_passes_without_breaks():
    check(lambda x: (x + 1).sin(), X, fullgraph=True)


def inner(x):
    return x.repeat(17).tolist()[0]


def prints(x):
    y = x + 1
    print(y)
    return y


def branches(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def calls(x):
    return x * inner(x + 1)


@pytest.mark.parametrize(
    "fn, culprit, offset",
    [(prints, prints, 2), (branches, branches, 1), (calls, inner, 1)],
    ids=["print", "branch", "inlined item"],
)
def test_raises_naming_the_line(fn, culprit, offset):
    with pytest.raises(GraphBreakError) as caught:
        framejit.optimize(fn, backend="eager", fullgraph=True)(X)
    message = str(caught.value)
    assert __file__.rsplit("/", 1)[-1] in message
    assert str(culprit.__code__.co_firstlineno + offset) in message
    assert len(message.splitlines()) <= 20


def test_raises_again_on_the_next_call():
    fn = framejit.optimize(prints, backend="eager", fullgraph=True)
    for _ in range(2):
        with pytest.raises(GraphBreakError):
            fn(X)


def test_users_exception_is_not_a_break():
    def fn(x, n):
        y = x + 1
        if n < 0:
            raise ValueError("user")
        return y

    pair = Pair(lambda: fn, fullgraph=True)
    pair.call(X, 1)
    pair.call(X, -1)


def test_nothing_was_executed_before_the_error():
    done = []

    def fn(x):
        done.append(1)
        x.add_(1)
        print(x)
        return x

    x = X.clone()
    with pytest.raises(GraphBreakError):
        framejit.optimize(fn, backend="eager", fullgraph=True)(x)
    assert torch.equal(x, X) and not done
