"""Recurrent layers and losses of sequences, which train as ATen's between compiled parts; tensors that come to lie
otherwise in their memory, and results that are written into a tensor given as `out`."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

from twins import Twins, leaf


def transposed(x, w):
    h = (x @ w).sin()
    rows = h[1:]
    h.transpose_(0, 1)
    h.mul_(2)
    return h, rows


def without_sizes_of_one(x, w):
    h = (x @ w).cos()[:1, None]
    h.squeeze_().unsqueeze_(-1)
    return h.sin() * w.sum()


def an_argument(x, w):
    own = x.detach() * 1
    own.t_()
    return own * w.sum(), own


@pytest.mark.parametrize("fn", [transposed, without_sizes_of_one, an_argument])
def test_tensors_that_the_program_lays_out_otherwise(fn):
    """A graph runs as ATen where such a tensor, and what was a view of it before, are results."""

    def use(fn, x, w):
        x.grad = w.grad = None
        results = fn(x, w)
        results = results if isinstance(results, tuple) else (results,)
        sum(r.square().sum() for r in results).backward()
        return results, [(r.stride(), r._is_view(), r._version, r.is_leaf) for r in results], x.grad, w.grad

    Twins(fn, leaf(4, 3), leaf(3, 3), fused=fn is not transposed).both(use)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN, nn.LSTM])
def test_recurrent_layers(kind, batch_first):
    torch.manual_seed(0)
    net = kind(3, 4, 2, batch_first=batch_first).double()

    def fn(net, x):
        out = net(x)[0]
        return out, out.sin()

    def both(fn, net, x):
        net.zero_grad()
        x.grad = None
        out, results = fn(net, x)
        results.sum().backward()
        return out.detach(), (out.stride(), out._version), x.grad, [p.grad for p in net.parameters()]

    twins = Twins(fn, leaf(5, 2, 3), module=net)
    twins.both(both)
    with torch.no_grad():
        twins.both(lambda fn, net, x: [(out, out.stride(), out._version) for out in fn(net, x)])


class Tagger(nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.words, self.out = nn.Embedding(7, 3), nn.Linear(4, 7)
        self.layer = kind(3, 4, 2, batch_first=True, **settings)

    def forward(self, ids):
        return F.cross_entropy(self.out(self.layer(self.words(ids).tanh())[0].tanh()).flatten(0, 1), ids.flatten())


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN, nn.LSTM])
def test_what_stands_around_them_is_compiled(kind, dynamic):
    torch.manual_seed(0)
    plain = Tagger(kind, dropout=0.3).double()
    other = copy.deepcopy(plain)
    compiled = framejit.optimize(other, backend="fuse", dynamic=dynamic, fullgraph=True)
    for number in range(4):
        ids = torch.randint(0, 7, (2, 5 + number * dynamic))
        for module in (plain, compiled):
            module.zero_grad()
            torch.manual_seed(number)
            module(ids).backward()
        torch.testing.assert_close([p.grad for p in other.parameters()], [p.grad for p in plain.parameters()])
    graphs = framejit.inspect(compiled).graphs
    for part in ("_part_0", "_part_1"):
        assert sum(part in graph.name for graph in graphs) >= 2
    assert {graph.reason for graph in graphs} == {""} and len(graphs) <= (16 if dynamic else 4)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN, nn.LSTM])
def test_sequences_of_any_length_are_one_entry(kind, batch_first):
    dtype = torch.float32 if kind is nn.LSTM else torch.float64  # an LSTM of doubles is taken step by step
    layer = kind(3, 4, 2, batch_first=batch_first, bidirectional=True, dtype=dtype)

    def step(x):
        out, _ = layer(x)
        out.square().mean().backward()
        return out.detach(), out.stride(), out._version, [p.grad.clone() for p in layer.parameters()]

    for backend in ("eager", "fuse"):
        compiled = framejit.optimize(step, backend=backend)
        for length in (5, 6, 4, 9, 7):
            x = torch.randn(2, length, 3, dtype=dtype)
            outcomes = []
            for run in (step, compiled):
                layer.zero_grad()
                outcomes.append(run(x if batch_first else x.transpose(0, 1)))
            torch.testing.assert_close(*outcomes)
        assert len(compiled.entries) <= 2


def test_losses_of_sequences():
    net = nn.Linear(4, 6).double()
    targets, lengths, of_targets = torch.randint(1, 6, (2, 3)), torch.tensor([7, 5]), torch.tensor([3, 2])

    def fn(net, x):
        return F.ctc_loss(net(x.tanh()).log_softmax(-1), targets, lengths, of_targets) * 2

    def both(fn, net, x):
        net.zero_grad()
        x.grad = None
        loss = fn(net, x)
        loss.backward()
        return loss.detach(), x.grad, [p.grad for p in net.parameters()]

    Twins(fn, leaf(7, 2, 4), module=net).both(both)


def test_results_written_where_the_program_says():
    def fn(x, w, state):
        with torch.no_grad():
            F.normalize(w @ state, dim=0, out=state)
            torch.mul(w, 2, out=(scaled := torch.empty_like(w)))
            torch.addmm(state[:, None], w, w, out=(product := torch.zeros(3, 3, dtype=w.dtype)))
        return x @ w / state.square().sum() + scaled[0] + product.sum()

    def both(fn, x, w, state):
        x.grad = w.grad = None
        fn(x, w, state).sum().backward()
        return x.grad, w.grad, state, state._version

    Twins(fn, leaf(4, 3), leaf(3, 3), torch.randn(3, dtype=torch.float64)).both(both)


def test_norms_of_weights():
    torch.manual_seed(0)
    norms = torch.nn.utils.parametrizations
    net = nn.Sequential(norms.spectral_norm(nn.Linear(3, 4)), nn.Tanh(), norms.weight_norm(nn.Linear(4, 2))).double()

    def both(fn, net, x):
        net.zero_grad()
        fn(net, x).sum().backward()
        return [p.grad for p in net.parameters()], [*net.buffers()]

    Twins(lambda net, x: net(x), leaf(5, 3), module=net).both(both)
