"""Graphs that write into their inputs and need gradients fuse: autograd counts the writes, inputs come out of the
graph's node then, and what they were before has its gradient."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.errors import FramejitWarning

from support import seed
from twins import Twins, leaf, same


def multiplied(x, w, b):
    x.mul_(w)
    return (x * b).sum()


def made_differentiable(x, w, b):
    """`b` needs no gradient before."""
    b.add_(w)
    return x * b


def used_before(x, w, b):
    z = x * b
    x.mul_(2)
    return z


def returned(x, w, b):
    x.mul_(w)
    return x, x.t(), x.exp()


def by_parts(x, w, b):
    x[0].mul_(2)
    x[:, 1] = w[0]
    return x.sin()


def nothing_left(x, w, b):
    x.zero_()
    return w * 2


def several_times(x, w, b):
    x.copy_(w * b)
    z = x.exp()
    x.add_(z)
    return z


def in_place_activation(x, w, b):
    F.relu(x, inplace=True)
    return F.dropout(x, 0.5) @ w


def running_mean(x, w, b):
    with torch.no_grad():
        b.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
    return x / (b.abs() + 2) * w


def state_with_gradient(x, w, b):
    b.mul_(0.9).add_(x.mean(0))
    x.sub_(b)
    return (x @ w).tanh(), b




FUNCTIONS = [
    multiplied, made_differentiable, used_before, returned, by_parts, nothing_left, several_times, in_place_activation,
    running_mean, state_with_gradient,
]


def tensors(out):
    return out if isinstance(out, tuple) else (out,)


def facts(fn, x, w, b):
    y, state = x * 3, b.clone()
    outs = tensors(fn(y, w, state))
    found = [[t is y, t is state, t._is_view(), t._version] for t in outs]
    return outs, found, y, state, [(t._version, t.is_leaf, t.requires_grad) for t in (y, state)]


def loss(y, state, outs):
    total = sum((k + 1) * (o * o).sum() for k, o in enumerate(outs) if o.requires_grad) + (y * y).sum()
    return total + (state * state).sum()


def gradients(fn, x, w, b):
    x.grad = w.grad = None
    y, state = x * 3, b.clone()
    before = y * 1
    loss(y, state, tensors(fn(y, w, state))).backward()
    before.sum().backward()
    return x.grad, w.grad


def hooks(fn, x, w, b):
    """Hooks on an input are on what it was."""
    seen = []
    y, state = x * 3, b.clone()
    y.register_hook(lambda gradient: seen.append(("before", gradient.clone())) or gradient * 2)
    y.retain_grad()
    outs = tensors(fn(y, w, state))
    y.register_hook(lambda gradient: seen.append(("after", gradient.clone())) or gradient * 3)
    total = loss(y, state, outs)
    found = torch.autograd.grad(total, [x, w, y], allow_unused=True, retain_graph=True)
    total.backward()
    return seen, found, y.grad


def twice(fn, x, w, b):
    """The state of one call is that of the next."""
    y, state = x * 3, b.clone()
    outs = tensors(fn(y, w, state))
    more = tensors(fn(y, w, state))
    try:
        return outs, more, torch.autograd.grad(loss(y, state, (*outs, *more)), [x, w], allow_unused=True)
    except RuntimeError as e:  # what the first call has kept was written by the second
        return outs, more, str(e).partition(":")[0]


def views(fn, x, w, b):
    """Of inputs that are views, and of tensors that there are views of."""
    base, other = x * 3, x * 2
    part = other[0]
    outs = tensors(fn(other, w, b.clone()))
    after = tensors(fn(base.t(), w, b.clone()))
    total = sum((o * o).sum() for o in (*outs, *after, part, base) if o.requires_grad)
    return part, base, torch.autograd.grad(total, [x, w], allow_unused=True)


def changed_later(fn, x, w, b):
    """What the backward looks at was written since, or not."""
    y, state = x * 3, b.clone()
    outs = [o for o in tensors(fn(y, w, state)) if o is not y and o is not state and o.requires_grad]
    with torch.no_grad():
        y.add_(1)
        state.add_(1)
    try:
        return torch.autograd.grad(sum(o.sum() for o in outs), [x, w], allow_unused=True)
    except RuntimeError as e:
        return str(e).partition(":")[0]


def leaves(fn, x, w, b):
    try:
        return tensors(fn(x.detach().requires_grad_(), w, b.clone()))
    except RuntimeError as e:
        return str(e)


@pytest.mark.parametrize("use", [facts, gradients, hooks, twice, views, changed_later])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_written_inputs(fn, use):
    twins = Twins(fn, leaf(3, 3), leaf(3, 3), torch.randn(3, 3, dtype=torch.float64))
    twins.both(gradients, 2)
    if use in (twice, views):  # `x` of a transposed layout, and `b` that the first call has made differentiable
        twins.check_fused = lambda: None
    twins.both(use)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_leaves_that_are_written_raise_as_in_eager(fn):
    twins = Twins(fn, leaf(3, 3), leaf(3, 3), torch.randn(3, 3, dtype=torch.float64))
    twins.both(gradients)
    twins.check_fused = lambda: None
    twins.both(leaves)
    twins.both(gradients)


def test_symbolic_sizes():
    fn = framejit.optimize(returned, dynamic=True)
    for size in (3, 5, 4, 7):
        found = []
        for each in (returned, fn):
            seed(size)
            x, w = leaf(size, size), leaf(size, size)
            y = x * 2
            outs = each(y, w, None)
            found.append((outs, y, torch.autograd.grad(sum(o.square().sum() for o in outs), [x, w])))
        same(*found)
    assert {graph.reason for graph in framejit.inspect(fn).graphs} == {""}


def gradients_of_gradients(fn, x, w, b):
    y, state = x * 3, b.clone()
    total = loss(y, state, tensors(fn(y, w, state)))
    first = torch.autograd.grad(total, [x, w], create_graph=True, allow_unused=True)
    again = torch.autograd.grad(total, [x, w], create_graph=True, allow_unused=True)
    second = sum(gradient.square().sum() for gradient in (*first, *again) if gradient is not None)
    return first, torch.autograd.grad(second, [x, w], allow_unused=True)


def gradients_of_gradients_of_one_result(fn, x, w, b):
    """The other results of the graph have no part in them."""
    y = x * 3
    out = tensors(fn(y, w, b.clone()))[-1]
    (first,) = torch.autograd.grad(out.square().sum(), w, create_graph=True, allow_unused=True)
    return first, first if first is None else torch.autograd.grad(first.square().sum(), [x, w], allow_unused=True)


@pytest.mark.parametrize("use", [gradients_of_gradients, gradients_of_gradients_of_one_result])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_gradients_of_gradients(fn, use):
    """The graph is run again on what its inputs were before it wrote into them."""
    Twins(fn, leaf(3, 3), leaf(3, 3), torch.randn(3, 3, dtype=torch.float64)).both(use)


def test_a_number_that_is_copied_into_an_input():
    def program(x, y):
        y.copy_(x.shape[0])
        return (x * y).exp().sum(), y

    def use(fn):
        seed(0)
        x, y = leaf(3), torch.ones(3, dtype=torch.float64)
        out, written = fn(x, y)
        return out, written, torch.autograd.grad(out, x)

    fast = framejit.optimize(program)
    same(use(program), use(fast))
    assert {graph.reason for graph in framejit.inspect(fast).graphs} == {""}


def test_a_module_with_statistics_of_its_own():
    class Scaled(nn.Module):
        """Divides by a running scale, and keeps what it saw last."""

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("scale", torch.ones(4))
            self.register_buffer("count", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            h = self.linear(x)
            if self.training:
                with torch.no_grad():
                    self.scale.lerp_(h.abs().mean(0), 0.1)
                    self.count.add_(1)
            return h.div_(self.scale).relu_()

    def use(fn, module, x):
        module.zero_grad()
        out = fn(module, x)
        out.square().sum().backward()
        return out, [p.grad for p in module.parameters()], [t.clone() for t in module.buffers()]

    seed()
    Twins(lambda m, x: m(x), torch.randn(5, 4, dtype=torch.float64), module=Scaled().double()).both(use, 5)


def test_parameters_written_without_gradients():
    """As a spectral norm does it."""

    def fn(x, w, b):
        with torch.no_grad():
            w.div_(w.norm())
        return (x @ w).sin()

    def use(fn, x, w, b):
        out = fn(x, w, b)
        return out, w, w._version, torch.autograd.grad(out.sum(), [x, w])

    Twins(fn, leaf(3, 3), leaf(3, 3), None).both(use)


def reads_what_leads_to_the_loss(fn, x, w):
    total, half = fn(x, w)
    (total + half).backward()
    return total, half, x.grad, w.grad


def has_gradients_of_gradients(fn, x, w):
    total, half = fn(x, w)
    first = torch.autograd.grad(half, [x, w], create_graph=True)
    return first, torch.autograd.grad(sum(gradient.square().sum() for gradient in first), [x, w])


@pytest.mark.parametrize("use", [reads_what_leads_to_the_loss, has_gradients_of_gradients])
def test_a_graph_that_is_run_again_begins_with_parameters_as_they_were(use):
    def fn(x, w):
        with torch.no_grad():
            w.mul_(0.5).sub_(x)
        total = (x * w).exp().sum()
        return total, total / 2

    Twins(fn, leaf(3), leaf(3)).both(use, 3)


def test_losses_divided_for_steps_that_are_counted():
    """Gradients are added up, and the loss is read before it is divided."""

    def epoch(module, optimiser, data):
        total = 0.0
        for number, (x, y) in enumerate(data):
            loss = F.cross_entropy(module(x), y)
            (loss / 2).backward()
            total += loss.item()
            if (number + 1) % 2 == 0 or number + 1 == len(data):
                optimiser.step()
                optimiser.zero_grad()
        return total / len(data)

    def outcome(run):
        seed()
        module = nn.Linear(6, 3).double()
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        found = []
        for _ in range(3):
            data = [(torch.randn(4, 6, dtype=torch.float64), torch.randint(0, 3, (4,))) for _ in range(5)]
            total = run(module, optimiser, data)
            found.append((total, [parameter.detach().clone() for parameter in module.parameters()]))
        return found

    same(outcome(epoch), outcome(framejit.optimize(epoch)))


@pytest.mark.parametrize("write", [
    lambda y: F.leaky_relu(y, inplace=True),
    lambda y: F.leaky_relu_(y, negative_slope=0.2),
    lambda y: torch.ops.aten.hardtanh_(y, max_val=0.3),
    lambda y: y.add_(y.detach().sin()),
])
def test_arguments_that_are_left_out(write):
    """What an operation without the write has no default for, and what lowering knows under other names."""
    def fn(x):
        y = x * 2
        write(y[1])
        return y

    def gradients(fn, x):
        out = fn(x)
        return out, torch.autograd.grad(out.square().sum(), x)

    Twins(fn, leaf(4, 5)).both(gradients)


def test_leaves_made_in_inference_mode():
    def program(x):
        made = torch.ones(2, requires_grad=True, dtype=torch.float64)
        return x * made, made

    def use(fn, x):
        with torch.inference_mode():
            return [out.detach().clone() for out in fn(x)]

    with warnings.catch_warnings():
        warnings.simplefilter("error", FramejitWarning)
        Twins(program, leaf(3, 2).detach(), fused=False).both(use)


@pytest.mark.parametrize(
    "views", [lambda t: t.split(1), lambda t: t.unbind(0), torch.no_grad()(lambda t: [t.view(-1)])]
)
def test_views_whose_base_is_written_afterwards(views):
    def program(x):
        y = x / 2
        parts = views(y)
        y.view(-1).mul_(2)
        return y, parts[0]

    def use(fn, x):
        x.grad = None
        y, part = fn(x)
        y.sum().backward()
        return y.detach().clone(), part.detach().clone(), x.grad

    with warnings.catch_warnings():
        warnings.simplefilter("error", FramejitWarning)
        Twins(program, leaf(3, 2), fused=False).both(use)


def test_gradients_of_gradients_beside_a_view_of_an_input():
    def use(fn, x, y):
        view, out = fn(x, y)
        (g,) = torch.autograd.grad(out.sum(), y, create_graph=True)
        (second,) = torch.autograd.grad(g.sum(), y)
        return view.detach().clone(), g.detach().clone(), second

    Twins(lambda x, y: (x.view(-1), (y + 1).sin()), leaf(1, 5), leaf(1, 5)).both(use)


class Recurrent(nn.Module):
    """Its first run can't be taken back: it draws random numbers, and counts its calls."""

    def __init__(self, dropout):
        super().__init__()
        self.rnn = nn.LSTM(3, 4, 2, dropout=dropout)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(1)
        return self.rnn(x * self.count)[0]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_layers_whose_backward_takes_what_only_a_library_knows(dropout):
    """In float32 an LSTM's layers are the library's, and run between what is compiled."""

    def use(fn, module, x):
        module.zero_grad()
        out = fn(module, x)
        out.square().sum().backward()
        return out, [p.grad for p in module.parameters()], module.count.clone()

    seed()
    twins = Twins(lambda m, x: m(x), torch.randn(5, 2, 3), module=Recurrent(dropout))
    twins.both(use, 4)
