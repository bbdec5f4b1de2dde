"""`requires_grad_()` of a view that captured code made: it stays a view, of which autograd allows what eager does."""

import contextlib

import pytest
import torch

import framejit

MADE = {
    "an input": lambda x: x,
    "a copy": lambda x: x.detach().clone(),
    "a sum": lambda x: x.detach() + 1,
}
MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "none": contextlib.nullcontext}
VIEWS = {
    "all": lambda x: x.view(4),
    "a row": lambda x: x[1],
    "turned": lambda x: x.t(),
    "several": lambda x: x.unbind()[0],
}


def outcome(made, x):
    facts = [made._is_view(), made.is_leaf, made.requires_grad, made.is_inference()]
    for write in (lambda: made.view_as(made).mul_(2), lambda: made.mul_(2), lambda: made.sum().backward()):
        try:
            write()
            facts.append("fine")
        except RuntimeError as e:
            facts.append(str(e)[:60])
    return facts, made.detach().tolist(), made.grad


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_what_may_be_done_to_it(make, mode, view, wanted):
    def step(x):
        base = make(x)
        with mode():
            made = view(base)
        return made.requires_grad_(wanted)

    optimized = framejit.optimize(step)
    for n in range(2):
        seen = []
        for fn in (step, optimized):
            x = torch.arange(4.0).view(2, 2) + n
            seen.append(repr((outcome(fn(x), x), x)))
        assert seen[0] == seen[1]
