"""Numbers read from tensors, and conditions on them, stay in graphs that run in inference mode, as in others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import framejit

from support import check_state, of_kind, recorded, seed

NET = nn.Linear(4, 4)


def reads(x):
    y = NET(x).relu()
    n = int((y.sum() > 0.5).long())
    return y + n, float(y.mean()) * 2, y * y.max().item()


def decides(x):
    y = NET(x)
    if y.mean() > 0:
        y = y - 1
    return y * (2 if y.sum() > 0 else 3)


def raises_unless(x):
    if not x.isfinite().all():
        raise ValueError("not finite")
    return x * 2


def loops(x):
    n, x = 0, x + 1
    while x.norm() > 1 and n < 10:
        x = x / 2
        n += 1
    return x, n


def writes(x):
    total = torch.zeros(())
    total += x.sum()
    x.mul_(2)
    before = total.item()
    total.add_(1)
    return before, total.item(), x.sum().item(), total


def logs(x):
    history = []
    for _ in range(3):
        x = NET(x).tanh()
        history.append(x.abs().max().item())
    return x, history, max(history)


PROGRAMS = [reads, decides, raises_unless, loops, writes, logs]


def decorated(fn):
    return torch.inference_mode()(fn)


def in_a_block(fn):
    def run(x):
        with torch.inference_mode():
            result = fn(x)
        return result

    return run


def around(fn):
    def run(x):
        return fn(x)

    return run


def outcomes(run, make, kind):
    seed(0)
    found = []
    for scale in (1, -3, 0.1, 5, 1):
        x = torch.randn(2, 4) * scale
        if kind == "inference":
            with torch.inference_mode():
                x = x.clone()
        with torch.inference_mode(make is around):
            result = run(x)
        tensors = [part for part in (result if isinstance(result, tuple) else (result,)) if torch.is_tensor(part)]
        found.append((result, x, [each.is_inference() for each in tensors]))
    return found


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("kind", ["plain", "inference"])
@pytest.mark.parametrize("make", [decorated, in_a_block, around])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_in_the_graph(fn, make, kind, backend):
    expected = outcomes(make(fn), make, kind)
    fast = framejit.optimize(make(fn), backend=backend)
    with recorded() as log:
        found = outcomes(fast, make, kind)
    torch.testing.assert_close(found, expected)
    assert not of_kind(log, "graph_break") and not of_kind(log, "warning")


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_loop_over_what_was_made_outside(backend):
    """Without a turn it gives the tensor itself, else one of inference mode."""

    @torch.inference_mode()
    def fn(x):
        while x.norm() > 1:
            x = x / 2
        return x

    fast = framejit.optimize(fn, backend=backend)
    for scale in (3, 0.1, 1, 5, 0.2):
        x = torch.full((2,), float(scale))
        expected, found = fn(x), fast(x)
        torch.testing.assert_close(found, expected)
        assert found.is_inference() == expected.is_inference() and (found is x) == (expected is x)


def test_a_number_that_leaves_the_mode():
    """Outside of it there are gradients, which may be those of a product with the number."""

    def make():
        seed(1)
        net = nn.Linear(4, 4)

        def fn(x):
            with torch.inference_mode():
                scale = net(x).abs().mean().item()
                bound = net(x).max()
            net.zero_grad()
            loss = (net(x) * scale).sum() / max(scale, 1.0)
            if scale > 0.4:
                loss = loss * 2
            loss.backward()
            return loss.detach(), scale, bound, net.weight.grad.clone()

        return fn, net

    check_state(make, *[(torch.randn(2, 4) * k,) for k in (1, 2, 0.1, 5)], breaks=None)


def test_selected_where_the_mode_ends():
    """What an `if` selects from is of one kind: tensors of inference mode or others."""

    def make():
        def fn(x, flag):
            with torch.inference_mode():
                y = x * 2
            if x.sum() > 0:
                y = x * 3
            return y, y.is_inference(), y + flag

        return fn, None

    check_state(make, *[(torch.full((2,), k), 1) for k in (1.0, -1.0, 2.0)], breaks=None)
