"""Tensors in the place of numbers, which torch asks for theirs: as if the program had called `item()`."""
import pytest
import torch
import torch.nn.functional as F

import framejit

from comparison import assert_same
from support import Pair

X = torch.linspace(-2, 2, 16).view(4, 4)

CAPTURED = {
    "full": lambda x, t, n: torch.full((2, 3), t) + x[0, 0],
    "full of several": lambda x, t, n: (torch.full((2,), t.abs()), torch.full((3,), n * 2), torch.full((1,), t > n)),
    "like": lambda x, t, n: torch.full_like(x, t) * x,
    "like in ints": lambda x, t, n: torch.full_like(x, n, dtype=torch.int32),
    "new": lambda x, t, n: x.new_full((3, 2), fill_value=t),
    "new in doubles": lambda x, t, n: x.double().new_full((2,), t),
}
SIZES = {
    "zeros": lambda x, t, n: torch.zeros(n, 2) + t,
    "size": lambda x, t, n: torch.ones((2, n)) * t,
    "range": lambda x, t, n: torch.arange(n) + t,
}
LEFT = {
    "from to": lambda x, t, n: torch.arange(n - 1, n * 3) + t,
    "in an int": lambda x, t, n: torch.full((2,), t, dtype=torch.int64) + x[0, 0],
    "rolled": lambda x, t, n: torch.roll(x, n) + x.roll(n - 1, 0),
    "most": lambda x, t, n: x.topk(n)[0],
    "slope": lambda x, t, n: F.leaky_relu(x + 1, t),
    "scaled": lambda x, t, n: torch.addmm(x, x, x, beta=n, alpha=n + 1),
    "repeated": lambda x, t, n: x.repeat(n, 1),
    "epsilon": lambda x, t, n: F.layer_norm(x, (4,), eps=t.abs()),
    "chosen": lambda x, t, n: x.select(0, n) + x.narrow(1, n, 1).sum(),
}
GIVEN = [(0.5, 1), (1.5, 2), (-2.25, 1), (0.5, 3), (7.0, 2)]


@pytest.mark.parametrize("name", CAPTURED)
def test_captured(name):
    pair = Pair(lambda: CAPTURED[name], fullgraph=True)
    for t, n in GIVEN:
        pair.call(X, torch.tensor(t), torch.tensor(n))
    assert len(pair.backend.graphs) == 1


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_sizes(name, fullgraph):
    pair = Pair(lambda: SIZES[name], fullgraph=fullgraph)
    for t, n in GIVEN:
        pair.call(X, torch.tensor(t), torch.tensor(n))
    assert pair.backend.graphs


@pytest.mark.parametrize("name", LEFT)
def test_what_has_to_know_the_number(name):
    compiled = framejit.optimize(LEFT[name], backend="eager")
    for t, n in GIVEN:
        given = X, torch.tensor(t), torch.tensor(n)
        assert_same(LEFT[name](*given), compiled(*given))


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_gradients_of_what_is_computed_with_them(backend):
    def fn(x, t):
        return (x * torch.full((4,), t.detach()) + t).sum()

    compiled = framejit.optimize(fn, backend=backend)
    for value in (0.5, 2.0, -3.0):
        found = []
        for each in (fn, compiled):
            x, t = X.clone().requires_grad_(), torch.tensor(value, requires_grad=True)
            each(x, t).backward()
            found.append((x.grad, t.grad))
        assert_same(*found)


@pytest.mark.parametrize(
    "fn",
    [lambda x, t: torch.full((2,), t), lambda x, t: torch.full((2,), x[0]), lambda x, t: torch.zeros(t.detach(), 2)],
    ids=["requires gradients", "several", "no int"],
)
def test_what_torch_refuses(fn):
    compiled, t = framejit.optimize(fn, backend="eager"), torch.tensor(1.5, requires_grad=True)
    errors = []
    for each in (fn, compiled):
        try:
            errors.append(each(X, t))
        except (TypeError, RuntimeError) as e:
            errors.append((type(e), str(e)))
    assert_same(*errors)
