"""Masks of attention that are full or causal by construction are left out where the graph is recorded; all others
stay."""

import pytest
import torch
import torch.nn.functional as F

from framejit.backends.fuse.training import joint

from twins import Twins, leaf

BATCH, HEADS, LENGTH, WIDTH = 3, 2, 5, 4


def positions():
    return torch.arange(LENGTH)


def causal():
    return positions()[None, :] <= positions()[:, None]


def packed(starts):
    """The mask of sequences that lie one behind the other: a position sees those of its own sequence."""
    of = torch.stack([positions() == start for start in starts]).cumsum(-1)
    return ((of[:, None, :, None] == of[:, None, None, :]) & causal()).expand(BATCH, 1, LENGTH, LENGTH)


def numbers(passes, left_out=float("-inf")):
    return torch.zeros(passes.shape).masked_fill(~passes, left_out)


MASKS = {
    "all": (lambda x: torch.ones(LENGTH, LENGTH, dtype=torch.bool), "full"),
    "those before": (lambda x: causal(), "causal"),
    "those before, for each row": (lambda x: packed([0] * BATCH), "causal"),
    "those before, as numbers": (lambda x: numbers(causal()), "causal"),
    "those before, as the least numbers": (lambda x: numbers(causal(), torch.finfo(torch.float32).min), "causal"),
    "sequences in one row": (lambda x: packed([0, 0, 2]), None),
    "those behind": (lambda x: causal().t(), None),
    "a window": (lambda x: causal() & (positions()[None, :] > positions()[:, None] - 3), None),
    "a penalty": (lambda x: numbers(causal(), -1.0), None),
    "by the numbers of an input": (lambda x: causal() | (x.sum() > 1e9), None),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_known_by_what_they_are(name, monkeypatch):
    made, kind = MASKS[name]
    found = []

    class Noted(joint.Masks):
        def kind_of(self, mask):
            found.append(super().kind_of(mask))
            return found[-1]

    monkeypatch.setattr(joint, "Masks", Noted)

    def gradients(fn, *inputs):
        out = fn(*inputs)
        return out, torch.autograd.grad(out.sum(), inputs)

    def fn(q, k, v):
        once = F.scaled_dot_product_attention(q, k, v, attn_mask=made(q))
        return F.scaled_dot_product_attention(once, k, v, made(q), scale=0.5)

    shape = (BATCH, HEADS, LENGTH, WIDTH)
    Twins(fn, leaf(*shape), leaf(*shape), leaf(*shape)).both(gradients)
    assert found == [kind, kind]
