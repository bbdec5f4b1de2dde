"""What autograd has saved is unpacked for whoever asks a node for it: while capturing nobody does, nor do guards."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import framejit


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * y, gradient * x


def attributes_of_a_node(log):
    x = torch.ones(3, requires_grad=True)
    y = torch.exp(x)
    node = y.grad_fn
    found = [hasattr(node, "_saved_result"), hasattr(node, "_saved_other")]
    return found, node._saved_result.sum().item(), len(log), node._saved_result.sum().item(), len(log)


def a_node_of_the_programs(log):
    x, y = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    z = Product.apply(x, y)
    kept = [t.sum().item() for t in z.grad_fn.saved_tensors]
    n = len(log)
    z.sum().backward()
    return kept, n, len(log), x.grad, y.grad


def hooked(read, log):
    def pack(t):
        log.append("packed")
        return t

    def unpack(t):
        log.append("unpacked")
        return t

    with saved_tensors_hooks(pack, unpack):
        return read(log)


@pytest.mark.parametrize("read", [attributes_of_a_node, a_node_of_the_programs])
def test_hooks_are_asked_as_often_as_in_eager(read):
    optimized = framejit.optimize(read, backend="eager")
    for _ in range(3):
        seen = []
        for fn in (read, optimized):
            log = []
            seen.append((repr(hooked(fn, log)), log))
        assert seen[0] == seen[1]


def reads_twice(x, count):
    def counted(a):
        count.append(len(count))
        return torch.exp(a)

    y = checkpoint(counted, x, use_reentrant=False)
    seen = [len(count)]
    for _ in range(2):
        seen.append((y.grad_fn._saved_result.sum().item(), len(count)))
    y.sum().backward()
    return seen, len(count), x.grad


def test_a_checkpoint_is_computed_again_once_for_each_read():
    optimized = framejit.optimize(reads_twice)
    for _ in range(3):
        a, b = (fn(torch.ones(2, requires_grad=True), []) for fn in (reads_twice, optimized))
        assert repr(a) == repr(b)


class Keeps(torch.autograd.Function):
    seen = None

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        (Keeps.seen,) = ctx.saved_tensors
        return gradient, None


def test_a_backward_that_runs_under_a_checkpoint():
    """It may unpack once, and gets the very tensor."""
    def step(x, y):
        checkpoint(Keeps.apply, x, y, use_reentrant=False).sum().backward()
        return x.grad, Keeps.seen is y

    optimized = framejit.optimize(step)
    for _ in range(3):
        x, y = torch.ones(2, requires_grad=True), torch.ones(2)
        gradient, same = optimized(x, y)
        assert same and torch.equal(gradient, torch.ones(2))
