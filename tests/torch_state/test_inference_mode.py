"""Tensors in inference mode, and views that were made without gradients: what autograd says of them, as plain Python
gets to hear it."""

import warnings

import pytest
import torch

import framejit

ASKED = {
    "is_leaf": lambda t: t.is_leaf,
    "grad_fn": lambda t: t.grad_fn is None,
    "grad": lambda t: t.grad is None,
    "multiplied": lambda t: (t * 2).requires_grad,
    "written again": lambda t: t.mul_(2).requires_grad,
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=list(ASKED))
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_views_whose_history_torch_refuses_to_look_for(mode, asked):
    """A view made without gradients of something that requires them, and written: autograd raises where it is asked for
    its history."""

    def inside(x):
        with mode():
            t = x.diagonal()
            t[1] *= 2
            return asked(t)

    def behind_a_break(x):
        with mode():
            t = x.diagonal()
            t[1] *= 2
            framejit.graph_break()
            return asked(t)

    def as_an_argument(t):
        t[1] *= 2
        return asked(t)

    def outcome(fn, *args):
        try:
            return fn(*args)
        except RuntimeError as e:
            return str(e)

    def argument():
        with mode():
            return torch.ones(3, 4).requires_grad_().diagonal()

    for fn in (inside, behind_a_break, as_an_argument):
        compiled = framejit.optimize(fn, backend="eager")
        make = argument if fn is as_an_argument else lambda: torch.ones(3, 4).requires_grad_()
        expected = outcome(fn, make())
        with warnings.catch_warnings():
            warnings.simplefilter("error", framejit.FramejitWarning)
            for _ in range(2):
                assert outcome(compiled, make()) == expected
                with mode():
                    assert outcome(compiled, make()) == outcome(fn, make())
