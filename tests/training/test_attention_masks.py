"""Masks of attention that are full or causal by construction are left out where the graph is recorded; all others
stay."""

import pytest
import torch
import torch.nn.functional as F

from framejit.backends.fuse.graph import record

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


def written(mask, method, *args):
    getattr(mask, method)(*args)
    return mask


def without(mask, place=(2, 0)):
    mask[place] = False
    return mask


def viewed_before_it_is_written():
    mask = causal()
    view = mask[None, None]
    without(mask)
    return view


def positions_written():
    known = positions()
    known[1] = 4
    return known[None, :] <= positions()[:, None]


def packed_by_differences():
    rows = positions()[None].expand(BATCH, -1)
    of = (torch.diff(rows, prepend=rows[:, :1] - 1) != 1).cumsum(-1)
    return ((of[:, None, :, None] == of[:, None, None, :]) & causal()).expand(BATCH, 1, LENGTH, LENGTH)


MASKS = {
    "all": (lambda x: torch.ones(LENGTH, LENGTH, dtype=torch.bool), "full"),
    "those before": (lambda x: causal(), "causal"),
    "those before, for each row": (lambda x: packed([0] * BATCH), "causal"),
    "those before, as numbers": (lambda x: numbers(causal()), "causal"),
    "those before, as the least numbers": (lambda x: numbers(causal(), torch.finfo(torch.float32).min), "causal"),
    "sequences in one row": (lambda x: packed([0, 0, 2]), None),
    "those before, written": (lambda x: written(torch.full((LENGTH, LENGTH), float("-inf")), "triu_", 1), "causal"),
    "those before, by their difference": (lambda x: packed_by_differences(), "causal"),
    "all, and then fewer": (lambda x: written(torch.ones(LENGTH, LENGTH, dtype=torch.bool), "tril_", 1), None),
    "one place less": (lambda x: without(causal()), None),
    "one place less, of a view": (lambda x: without(causal().view(-1), 10).view(LENGTH, LENGTH), None),
    "one place less, of what it views": (lambda x: viewed_before_it_is_written(), None),
    "one place less, of positions": (lambda x: positions_written(), None),
    "written by an input": (lambda x: written(numbers(causal()), "fill_", x.detach().sum()), None),
    "those behind": (lambda x: causal().t(), None),
    "a window": (lambda x: causal() & (positions()[None, :] > positions()[:, None] - 3), None),
    "a penalty": (lambda x: numbers(causal(), -1.0), None),
    "by the numbers of an input": (lambda x: causal() | (x.sum() > 1e9), None),
}


@pytest.fixture
def found(monkeypatch):
    """What is said of each mask."""
    kinds = []

    class Noted(record.Masks):
        def kind_of(self, mask):
            kinds.append(super().kind_of(mask))
            return kinds[-1]

    monkeypatch.setattr(record, "Masks", Noted)
    return kinds


def attention(made):
    def fn(q, k, v):
        once = F.scaled_dot_product_attention(q, k, v, attn_mask=made(q))
        return F.scaled_dot_product_attention(once, k, v, made(q), scale=0.5)

    return fn


SHAPE = (BATCH, HEADS, LENGTH, WIDTH)


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_known_by_what_they_are(name, found):
    made, kind = MASKS[name]

    def gradients(fn, *inputs):
        out = fn(*inputs)
        return out, torch.autograd.grad(out.sum(), inputs)

    Twins(attention(made), leaf(*SHAPE), leaf(*SHAPE), leaf(*SHAPE)).both(gradients)
    assert found == [kind, kind]


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_known_where_no_gradients_are_wanted(name, found):
    made, kind = MASKS[name]
    inputs = [torch.randn(SHAPE) for _ in range(3)]
    Twins(attention(made), *inputs).both(lambda fn, *given: fn(*given))
    assert found == [kind, kind]


def test_a_mask_that_is_written_between_layers_is_another(found):
    def fn(q, k, v):
        mask = causal()
        first = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        without(mask)
        second = F.scaled_dot_product_attention(first, k, v, attn_mask=mask)
        return F.scaled_dot_product_attention(second, k, v, attn_mask=mask)

    inputs = [torch.randn(SHAPE) for _ in range(3)]
    Twins(fn, *inputs).both(lambda fn, *given: fn(*given))
    assert found == ["causal", None, None]
