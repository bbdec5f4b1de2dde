"""What goes wrong in training goes wrong as in eager, and nothing is lost by it: the step can be repeated. And with
torch's deterministic algorithms, two runs of one entry give the same bits."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.backends.fuse.autograd_nodes.half import Half

from support import seed
from twins import Twins, leaf, same


def chain(x, w):
    return (x @ w).exp().tanh() * w.sin()


def plain(fn, x, w):
    x.grad = w.grad = None
    fn(x, w).sum().backward()
    return x.grad, w.grad


def both_fail(use, fn=chain, match=""):
    """Both sides raise the same kind of error with the same words, and go on as if nothing had been."""
    twins = Twins(fn, leaf(3, 3), leaf(3, 3))
    twins.both(plain, 2)
    for _ in range(2):
        errors = []
        for call, inputs in zip((twins.fn, twins.compiled), twins.inputs):
            with pytest.raises(Exception, match=match) as raised:
                use(call, *inputs)
            errors.append((type(raised.value), str(raised.value).partition("[")[0]))
        assert errors[0] == errors[1]
        twins.both(plain, 1)


def test_gradients_of_another_size():
    both_fail(lambda fn, x, w: fn(x, w).backward(torch.ones(2, 2, dtype=torch.float64)), match="Mismatch in shape")


def test_gradients_of_another_dtype():
    def use(fn, x, w):
        x.grad = w.grad = None
        fn(x, w).backward(torch.ones(3, 3))
        return x.grad, w.grad

    Twins(chain, leaf(3, 3), leaf(3, 3)).both(use)
    both_fail(lambda fn, x, w: fn(x, w).backward(torch.ones(3, 3, dtype=torch.complex64)), match="complex")


def test_gradients_on_another_device():
    both_fail(lambda fn, x, w: fn(x, w).backward(torch.ones(3, 3, dtype=torch.float64, device="meta")))


def test_no_scalar():
    both_fail(lambda fn, x, w: fn(x, w).backward(), match="can be implicitly created only for scalar")


def test_a_gradient_asked_for_of_what_has_no_part_in_it():
    def use(fn, x, w):
        torch.autograd.grad(fn(x, w).sum(), [x, torch.ones(2, requires_grad=True)])

    both_fail(use, match="appears to not have been used in the graph")


def test_hooks_that_write_gradients_in_place():
    """Gradients that come in, and parameters, written while the backward goes on."""

    def use(fn, x, w):
        x.grad = w.grad = None
        out = fn(x, w)
        handles = [
            out.register_hook(lambda gradient: gradient.mul_(2)),
            w.register_hook(lambda gradient: gradient.mul_(3)),
            x.register_hook(lambda gradient: gradient.add_(1)),
        ]
        (out * 1).sum().backward()
        for handle in handles:
            handle.remove()
        return x.grad, w.grad

    Twins(chain, leaf(3, 3), leaf(3, 3)).both(use)


def test_a_backward_that_writes_what_was_saved():
    """By a hook on the way: eager notices, and so does what is compiled."""

    def use(fn, x, w):
        out = fn(x, w)

        def hook(gradient):
            with torch.no_grad():
                w.add_(1)

        out.register_hook(hook)
        out.sum().backward()

    both_fail(use, match="modified by an inplace operation")


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("on", ["result", "input", "accumulation", "saved tensors"])
def test_an_exception_in_a_hook(on):
    def fail(*_):
        raise Interrupted("from the hook")

    def use(fn, x, w):
        x.grad = w.grad = None
        if on == "saved tensors":
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, fail):
                out = fn(x, w)
            out.sum().backward()
        out = fn(x, w)
        if on == "result":
            out.register_hook(fail)
            out.sum().backward()
        handle = x.register_hook(fail) if on == "input" else w.register_post_accumulate_grad_hook(fail)
        try:
            out.sum().backward()
        finally:
            handle.remove()

    both_fail(use, match="from the hook")


def test_memory_that_runs_out_in_the_backward(monkeypatch):
    """The error is the allocator's, and with the graph retained the backward can be repeated."""
    x, w = leaf(3, 3), leaf(3, 3)
    compiled = framejit.optimize(chain)
    plain(compiled, x, w)
    expected = plain(compiled, x, w)
    run, calls = Half._run, iter(range(100))

    def short(self, inputs):
        if next(calls) == 1:  # the forward is the first
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return run(self, inputs)

    x.grad = w.grad = None
    monkeypatch.setattr(Half, "_run", short)
    out = compiled(x, w).sum()
    with pytest.raises(torch.OutOfMemoryError):
        out.backward(retain_graph=True)
    assert x.grad is None and w.grad is None
    out.backward()
    same(expected, (x.grad, w.grad))
    monkeypatch.undo()
    same(expected, plain(compiled, x, w))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_an_optimiser_with_parameters_of_others(optimizer):
    """Of another module, of none, without gradients, twice."""
    made = {}

    def use(fn, module, x):
        if id(module) not in made:
            seed()
            other, alone = nn.Linear(2, 2).double(), torch.ones(3, dtype=torch.float64, requires_grad=True)
            constant = torch.ones(2, dtype=torch.float64)
            parameters = [*module.parameters(), *other.parameters(), alone, constant]
            made[id(module)] = optimizer(parameters, lr=0.1), other, alone, constant
        own, other, alone, constant = made[id(module)]
        own.zero_grad()
        fn(module, x).square().sum().backward()
        (other(torch.ones(1, 2, dtype=torch.float64)).sum() * alone.sum()).backward()
        own.step()
        return [p.detach().clone() for p in (*module.parameters(), *other.parameters(), alone, constant)]

    seed()
    Twins(lambda m, x: m(x).tanh(), torch.randn(5, 4, dtype=torch.float64), module=nn.Linear(4, 3).double()).both(use)


@pytest.mark.parametrize("bad", [
    lambda module: [], lambda module: [1.0], lambda module: [module.weight * 2],
    lambda module: [{"params": [module.weight]}, {"params": [module.weight]}],
])
def test_parameters_that_an_optimiser_refuses(bad):
    module = nn.Linear(2, 2)

    def fn(x):
        optimizer = torch.optim.SGD(bad(module), lr=0.1)
        optimizer.step()
        return x

    errors = []
    for call in (fn, framejit.optimize(fn)):
        for _ in range(2):
            with pytest.raises(Exception) as raised:
                call(torch.ones(2))
            errors.append((type(raised.value), str(raised.value)))
    assert len({*errors}) == 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.conv, self.norm = nn.Embedding(20, 16), nn.Conv1d(16, 16, 3), nn.BatchNorm1d(16)
        self.attention, self.head = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True), nn.Linear(16, 20)

    def forward(self, tokens):
        x = F.gelu(self.norm(self.conv(self.embedding(tokens).transpose(1, 2)))).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = torch.zeros_like(x).index_add(1, tokens[0, : x.shape[1]] % x.shape[1], x)
        return F.cross_entropy(self.head(F.dropout(x, 0.2)).flatten(0, 1), tokens[:, 2:].flatten())


def test_two_runs_of_one_entry_give_the_same_bits():
    seed()
    model = Model()
    compiled = framejit.optimize(model)
    tokens = torch.randint(0, 20, (4, 12))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.use_deterministic_algorithms(True)
    try:
        found = []
        for _ in range(4):
            model.load_state_dict(state)
            model.zero_grad()
            seed(1)
            loss = compiled(tokens)
            loss.backward()
            gradients = [parameter.grad.clone() for parameter in model.parameters()]
            found.append([loss.detach(), *gradients, *map(torch.clone, model.buffers())])
    finally:
        torch.use_deterministic_algorithms(False)
    assert {graph.reason for graph in framejit.inspect(compiled).graphs} == {""}
    for again in found[2:]:  # the first run of each half is done by ATen
        assert all(torch.equal(one, other) for one, other in zip(again, found[1], strict=True))


@pytest.mark.parametrize("classes", [[0, 2, 1, 3], [0, -1, 2, 1]], ids=["too great", "negative"])
def test_numbers_that_only_the_whole_operation_looks_at(classes):
    def fn(x, w, classes):
        chosen = F.one_hot(classes, 3)
        return ((x @ w) * chosen).sum(), chosen

    compiled = framejit.optimize(fn, backend="fuse")
    x, w, fine = leaf(4, 3), leaf(3, 3), torch.tensor([0, 1, 2, 0])
    for _ in range(2):
        outcomes = []
        for called in (fn, compiled):
            loss, chosen = called(x, w, fine)
            outcomes.append((loss, chosen, torch.autograd.grad(loss, [x, w])))
        same(*outcomes)
    assert {graph.reason for graph in framejit.inspect(compiled).graphs} == {""}
    errors = []
    for called in (fn, compiled):
        with pytest.raises(RuntimeError) as raised:
            called(x, w, torch.tensor(classes))
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
    same(fn(x, w, fine), compiled(x, w, fine))
