"""`options={"activation_memory": share}`: no more than a share of the usual bytes is kept for the backward, what is not
kept is computed again part by part, and nothing else changes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.errors import FramejitWarning, InvalidOption

from support import peak, seed
from twins import leaf, same

DEPTH, WIDTH, ROWS = 8, 32, 1024


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, x):
        return x + F.dropout(self.second(F.gelu(self.first(self.norm(x)))), self.dropout)


class Net(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(dropout) for _ in range(DEPTH)))

    def forward(self, x):
        return self.blocks(x).square().mean()


def limited(fn, share, **options):
    return framejit.optimize(fn, options={"activation_memory": share}, **options)


def kept(loss, net):
    """The bytes of what the nodes of a loss keep, besides parameters."""
    known = {p.data_ptr() for p in net.parameters()}
    saved = {t.data_ptr(): t.untyped_storage().nbytes() for t in loss.grad_fn.saved_tensors}
    return sum(size for place, size in saved.items() if place not in known)


def test_what_is_kept_and_what_is_alive():
    x, sizes, peaks = torch.randn(ROWS, WIDTH), [], []
    net = Net()
    for share in (1, 0.75, 0.5, 0.25):
        compiled = limited(net, share)
        for _ in range(2):
            compiled(x).backward()
        sizes.append(kept(compiled(x), net))
        net.zero_grad()
        peaks.append(peak(lambda step=compiled: step(x).backward()))
        found = [p.grad for p in net.parameters()]
        same([*torch.autograd.grad(net(x), [*net.parameters()])], found)
        net.zero_grad()
        assert not any(report.reason for report in framejit.inspect(compiled).graphs)
        assert sizes[-1] <= share * sizes[0] + ROWS * WIDTH * 4  # the input is there anyway
    assert sizes == sorted(sizes, reverse=True) and len({*sizes}) == 4
    # most of what is not kept is not there together at any time, either
    assert all(peaks[0] - there > 0.7 * (sizes[0] - held) for held, there in zip(sizes[1:], peaks[1:]))


@pytest.mark.parametrize("share", [0, 0.5])
def test_random_numbers_are_drawn_once(share):
    x, net = torch.randn(ROWS, WIDTH), Net(dropout=0.3)
    compiled = limited(net, share)
    for number in range(3):
        found = []
        for fn in (net, compiled):
            seed(number)
            loss = fn(x)
            found.append((loss, torch.autograd.grad(loss, [*net.parameters()]), torch.rand(3)))
        same(*found)


def written(x, w):
    before = x.detach().exp()
    x.mul_(2)
    return torch.tanh(torch.tanh((before * x) @ w) @ w).sum() + x.sum()


def batch_norms(x, w):
    y = x
    for _ in range(3):
        y = F.batch_norm((y @ w).relu(), MEAN, VARIANCE, training=True)
    return y.sin().sum()


def several_results(x, w):
    y = (x @ w).sigmoid()
    z = (y @ w).tanh()
    return y, z @ w, z


MEAN, VARIANCE = torch.zeros(6).double(), torch.ones(6).double()


@pytest.mark.parametrize("fn", [written, batch_norms, several_results])
@pytest.mark.parametrize("dynamic", [None, True])
def test_equal_to_eager(fn, dynamic):
    compiled = limited(fn, 0, dynamic=dynamic)
    for rows in (6, 6, 7):
        found = []
        for each in (fn, compiled):
            MEAN.zero_()
            seed(rows)
            x, w = leaf(rows, 6), leaf(6, 6)
            out = each(x * 1.0, w)
            outs = out if isinstance(out, tuple) else (out,)
            grads = torch.autograd.grad(sum(o.square().sum() for o in outs), (x, w), retain_graph=True)
            found.append((out, grads, torch.autograd.grad(outs[0].sum(), w), MEAN.clone()))
        same(*found)
    assert {graph.reason for graph in framejit.inspect(compiled).graphs} == {""}


@pytest.mark.parametrize("share", [-0.1, 1.5, True, "half", float("nan")])
def test_shares_that_are_none(share):
    with pytest.raises(InvalidOption, match="activation_memory must be a number from 0 to 1"):
        limited(written, share)


def test_other_backends_know_no_such_option():
    with pytest.warns(FramejitWarning, match="changes nothing"):
        limited(written, 0.5, backend="eager")
