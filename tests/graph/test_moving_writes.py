"""Operations that write elements elsewhere than they read them, of a tensor onto itself."""

from __future__ import annotations

import pytest
import torch

import framejit

PLACES, COLUMNS = torch.tensor([0, 1, 2]), torch.zeros(3, 3, dtype=torch.long)
ONTO_ITSELF = {
    "index_add_": lambda t: t.index_add_(0, PLACES, t),
    "index_copy_": lambda t: t.index_copy_(0, PLACES, t),
    "index_reduce_": lambda t: t.index_reduce_(0, PLACES, t, "amax"),
    "scatter_": lambda t: t.scatter_(0, COLUMNS, t),
    "scatter_add_": lambda t: t.scatter_add_(0, COLUMNS, t),
    "scatter_reduce_": lambda t: t.scatter_reduce_(0, COLUMNS, t, "sum"),
    "put_": lambda t: t.put_(COLUMNS, t),
    "index_put_": lambda t: t.index_put_((PLACES,), t, accumulate=True),
    "setitem": lambda t: t.__setitem__(PLACES, t),
    "addr_": lambda t: t.addr_(t[0], t[0]),
    "apart": lambda t: t[:2].index_add_(0, PLACES[:1], t[2:]),
    "elementwise": lambda t: t.addcmul_(t, t),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ONTO_ITSELF)
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_what_moves_elements_does_not_read_what_it_writes(name, grad, dynamic):
    """Eager refuses it, whatever becomes of the result, and whether or not gradients are recorded."""
    write = ONTO_ITSELF[name]

    def used(x):
        t = x.new_zeros(x.shape) + 1
        write(t)
        return t * x

    def made(x):
        t = x * 2
        write(t)
        return t

    def unused(x):
        write(x.new_zeros(x.shape) + 1)
        return x + 1

    def outcome(f, x):
        try:
            return f(x).detach()
        except RuntimeError as e:
            return str(e)

    for f in (used, made, unused):
        fast = framejit.optimize(f, dynamic=dynamic)
        for _ in range(2):
            x = torch.randn(3, 3, requires_grad=grad)
            expected, found = outcome(f, x), outcome(fast, x)
            assert type(expected) is type(found), (f, expected, found)
            if isinstance(expected, torch.Tensor):
                torch.testing.assert_close(found, expected)
            else:
                assert found == expected
