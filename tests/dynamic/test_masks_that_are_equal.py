"""A mask that is used twice, or compared out twice, selects as many elements each time: what is selected fits, in one
graph. One that has changed between selects others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.errors import GraphBreakError

LABELS = [
    torch.tensor(rows)
    for rows in ([3, -100, 1, 2], [-100, -100, 0, -100], [-100] * 4, [0, 1, 2, 3], [1, -100, 3, 0])
]
IGNORED = -100


def one_mask(logits, labels):
    mask = labels != IGNORED
    return F.cross_entropy(logits[mask], labels[mask], reduction="sum")


def compared_twice(logits, labels):
    return F.cross_entropy(logits[labels != IGNORED], labels[labels != IGNORED], reduction="none")


def negated(logits, labels):
    return logits[~(labels == IGNORED)] * labels[~(labels == IGNORED)].unsqueeze(1)


def combined(logits, labels):
    first = (labels >= 0) & (labels < 3)
    second = (labels >= 0) & (labels < 3)
    return logits[first].sum(1) - labels[second]


def of_floats(logits, labels):
    return logits[logits > 0.5] * logits.exp()[logits > 0.5]


def selected(logits, labels):
    mask = logits > 0
    return logits.masked_select(mask) + logits.sin()[mask] + logits.cos().masked_select(logits > 0)


def places(logits, labels):
    mask = labels != IGNORED
    return mask.nonzero().squeeze(1) + labels[mask], logits[torch.where(mask)] * labels[mask, None]


def put_back(logits, labels):
    mask = labels != IGNORED
    out = torch.zeros_like(logits)
    out[mask] = logits[mask] * labels[mask].unsqueeze(1)
    return out


def several(logits, labels):
    mask, other = labels != IGNORED, labels == IGNORED
    return torch.cat([logits[mask] + labels[mask, None], logits[other] + labels[other, None]])


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize(
    "fn", [one_mask, compared_twice, negated, combined, of_floats, selected, places, put_back, several]
)
def test_what_masks_select_fits(fn, backend):
    fast = framejit.optimize(fn, backend=backend, fullgraph=True)
    for labels in LABELS:
        logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
        again = logits.detach().clone().requires_grad_()
        expected, found = fn(logits, labels), fast(again, labels)
        torch.testing.assert_close(found, expected)
        for result in (expected, found):
            sum(part.sum() for part in (result if isinstance(result, tuple) else (result,))).backward()
        torch.testing.assert_close(again.grad, logits.grad)


def test_a_step_is_one_graph():
    def made(optimize):
        torch.manual_seed(0)
        net = torch.nn.Linear(5, 4)
        optimizer = torch.optim.Adam(net.parameters(), 0.1)

        def step(x, labels):
            optimizer.zero_grad()
            logits, mask = net(x), labels != IGNORED
            loss = F.cross_entropy(logits[mask], labels[mask], reduction="sum")
            loss.backward()
            optimizer.step()
            return loss.detach()

        return optimize(step), net

    plain, net = made(lambda fn: fn)
    fast, other = made(lambda fn: framejit.optimize(fn, fullgraph=True))
    for labels in LABELS * 2:
        x = torch.randn(4, 5)
        torch.testing.assert_close(fast(x, labels), plain(x, labels))
        torch.testing.assert_close([*other.parameters()], [*net.parameters()])
    assert len(fast.entries) == 2  # the first step makes the optimizer's state


def written(logits, labels):
    mask = labels != IGNORED
    first = logits[mask]
    mask[0] = False
    return first, labels[mask]


def written_before_comparing_again(logits, labels):
    first = logits[labels != IGNORED]
    labels[0] = IGNORED
    return first, labels[labels != IGNORED]


def moved(logits, labels):
    first = logits[labels != IGNORED]
    labels.data = labels.roll(1) * 0 + torch.tensor([0, 1, IGNORED, IGNORED])
    return first, labels[labels != IGNORED]


def written_by_its_data(logits, labels):
    mask = labels != IGNORED
    first = logits[mask]
    mask.data.logical_not_()
    return first, labels[mask]


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("change", [written, written_before_comparing_again, moved, written_by_its_data])
def test_a_mask_that_has_changed(change, backend):
    """The sizes are no longer the same, and captured code that takes them for that is refused in one graph."""
    fast = framejit.optimize(change, backend=backend)
    together = lambda logits, labels: torch.stack([part.sum(-1) for part in change(logits, labels)])  # noqa: E731
    with pytest.raises(GraphBreakError):
        framejit.optimize(together, backend=backend, fullgraph=True)(torch.randn(4, 1), LABELS[0].clone())
    asked = framejit.optimize(change, backend=backend, fullgraph=True)
    for labels in LABELS:
        logits = torch.randn(4, 5)
        expected = change(logits, labels.clone())
        torch.testing.assert_close(fast(logits, labels.clone()), expected)
        torch.testing.assert_close(asked(logits, labels.clone()), expected)


def test_numbers_compared_in_another_precision():
    """An integer and a float are compared as torch's default dtype has it."""

    def fn(x):
        first = x[x > 16777216.5]
        torch.set_default_dtype(torch.float64)
        second = x[x > 16777216.5]
        torch.set_default_dtype(torch.float32)
        return first.shape[0], second.shape[0], first * 2, second * 2

    x = torch.tensor([16777217, 5])
    try:
        expected = fn(x)
        found = framejit.optimize(fn, backend="eager", fullgraph=True)(x)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, expected)
