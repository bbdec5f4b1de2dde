"""What the backward of a fused graph holds: no more than it still needs, and never less than autograd promises."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support import peak
from twins import Twins, leaf, same

alive: list[Callable[[], list[bool]]] = []
"""What `look_backward` asks while a backward runs."""
seen: list[list[bool]] = []


@torch.library.custom_op("framejit_memory::look", mutates_args=())
def look(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("framejit_memory::look_backward", mutates_args=())
def look_backward(gradient: torch.Tensor) -> torch.Tensor:
    seen.extend(ask() for ask in alive)
    return gradient.clone()


look.register_fake(torch.empty_like)
look_backward.register_fake(torch.empty_like)
look.register_autograd(lambda ctx, gradient: look_backward(gradient))


@pytest.fixture(autouse=True)
def unwatched():
    yield
    alive.clear()
    seen.clear()


def layers(x, w, v):
    """In its backward, `look` comes last."""
    h = torch.tanh(look(x) @ w)
    return (F.gelu(h @ v) * h.sum()).sum()


def kept_by(out: torch.Tensor, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """What the node of a result keeps besides inputs."""
    return [tensor for tensor in out.grad_fn.saved_tensors if not any(tensor is given for given in inputs)]


def settled(
    *sizes: tuple[int, ...], fn: Callable[..., Any] = layers
) -> tuple[Callable[..., Any], Sequence[torch.Tensor]]:
    """The function compiled and run, whose plans run from now on, and its inputs."""
    twins = Twins(fn, *(leaf(*size) for size in sizes))
    for _ in range(2):
        twins.compiled(*twins.inputs[1]).sum().backward()
    twins.check_fused()
    return twins.compiled, twins.inputs[1]


LAYERS = (4, 5), (5, 6), (6, 6)


def alive_at_the_end(out: torch.Tensor, inputs: Sequence[torch.Tensor], **how: Any) -> list[bool]:
    """Which of the tensors that were saved are alive when the last operation of the backward runs."""
    saved = [weakref.ref(tensor) for tensor in kept_by(out, *inputs)]
    assert saved
    seen.clear()
    alive[:] = [lambda: [ref() is not None for ref in saved]]
    out.backward(**how)
    alive.clear()
    (found,) = seen
    return found


def test_what_was_saved_goes_after_its_last_use():
    compiled, inputs = settled(*LAYERS)
    assert not any(alive_at_the_end(compiled(*inputs), inputs))


def test_what_was_saved_stays_where_the_graph_is_retained():
    compiled, inputs = settled(*LAYERS)
    out = compiled(*inputs)
    before = [tensor.clone() for tensor in kept_by(out, *inputs)]
    assert all(alive_at_the_end(out, inputs, retain_graph=True))
    same(before, kept_by(out, *inputs))
    assert not any(alive_at_the_end(out, inputs))


def test_what_somebody_holds_is_not_written_over():
    compiled, inputs = settled(*LAYERS)
    out = compiled(*inputs)
    held = kept_by(out, *inputs)
    before = [tensor.clone() for tensor in held]
    assert all(alive_at_the_end(out, inputs))
    same(before, held)


def test_two_backwards_and_one_too_many():
    def use(fn, *inputs):
        out = fn(*inputs)
        found = [torch.autograd.grad(out, inputs, retain_graph=retain) for retain in (True, True, False)]
        with pytest.raises(RuntimeError) as error:
            torch.autograd.grad(out, inputs)
        return found, str(error.value)

    Twins(layers, *(leaf(*size) for size in LAYERS)).both(use)


def test_a_backward_in_two_parts():
    """Gradients of one result while the graph is retained, then of the other."""

    def fn(x, w):
        h = torch.tanh(x @ w)
        return (h * h.exp()).sum(), F.gelu(h).sum()

    def use(fn, *inputs):
        first, second = fn(*inputs)
        return torch.autograd.grad(first, inputs, retain_graph=True), torch.autograd.grad(second, inputs)

    Twins(fn, leaf(4, 5), leaf(5, 6)).both(use)


def test_a_step_after_one_whose_backward_failed():
    """What was saved goes with the backward that raised, as eager's does as far as that came."""
    compiled, inputs = settled(*LAYERS)
    fails = ValueError("looked at the wrong time")

    def fail():
        raise fails

    out = compiled(*inputs)
    alive[:] = [fail]
    with pytest.raises(ValueError, match="looked at"):
        out.backward()
    alive.clear()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()
    expected = torch.autograd.grad(layers(*inputs), inputs)
    same(expected, torch.autograd.grad(compiled(*inputs), inputs))


def test_a_gradient_is_written_over_what_it_is_computed_from():
    """A gradient lies in the memory of the product that was kept for it."""

    def fn(x, w):
        return torch.tanh(x @ w).sum()

    compiled, (x, w) = settled((512, 4), (4, 512), fn=fn)
    product = 512 * 512 * 8

    def taken(retain):
        out = compiled(x, w)
        return peak(lambda: torch.autograd.grad(out, (x, w), retain_graph=retain))

    assert product <= taken(True) < 1.5 * product
    assert taken(False) < 0.5 * product


def test_a_deep_graph_holds_less_and_less():
    """At its end a backward has the gradients of all weights, and no more of what was saved."""
    depth, width = 8, 128

    def fn(x, *weights):
        for weight in weights:
            x = torch.tanh(x @ weight)
        return x.sum()

    compiled, inputs = settled((width, width), *[(width, width)] * depth, fn=fn)
    square = width * width * 8

    def step():
        return torch.autograd.grad(compiled(*inputs), inputs)

    assert depth * square < peak(step) < (depth + 4) * square


def squares(x, *weights):
    for weight in weights:
        x = torch.tanh(x @ weight)
    return x


def test_a_gradient_that_comes_in_goes_after_its_last_use():
    width, depth = 128, 8
    square = width * width * 8
    compiled, inputs = settled(*[(width, width)] * (depth + 1), fn=lambda *inputs: squares(*inputs).sum())

    def taken(fn):
        return peak(lambda: torch.autograd.grad(fn(*inputs).exp().sum(), inputs))

    inside = taken(compiled)
    outside, _ = settled(*[(width, width)] * (depth + 1), fn=squares)
    assert taken(outside) <= inside + 0.5 * square


def test_gradients_that_somebody_holds_stay_what_they_are():
    size = 128, 128

    def held(way, fn, x, w):
        """Gradients that came to a result, as they are after the backward."""
        out = fn(x, w)
        found = []
        if way == "hook":
            out.register_hook(found.append)
        elif way == "weak reference":
            out.register_hook(lambda gradient: found.append(weakref.ref(gradient)))
            out.grad_fn.register_hook(lambda into, from_: found.append(found.pop(0)().clone()))
        elif way == "retain_grad":
            out.retain_grad()
        elif way == "post hook":
            out.grad_fn.register_hook(lambda into, from_: found.extend(from_))
        elif way == "prehook":
            out.grad_fn.register_prehook(lambda from_: found.extend(from_))
        loss = (out.exp() * 2).sum()
        if way == "inputs":
            found += torch.autograd.grad(loss, [out, x, w])
        elif way == "given":
            found.append(torch.ones(size, dtype=torch.float64))
            out.backward(found[0])
        elif way == "twice":
            first, second = out.exp(), out.sin()
            first.register_hook(found.append)
            (first * second).sum().backward()
        else:
            loss.backward()
        if way == "retain_grad":
            found.append(out.grad)
        assert found and all(gradient.shape == size for gradient in found)
        return found, x.grad, w.grad

    ways = "hook", "weak reference", "retain_grad", "post hook", "prehook", "inputs", "given", "twice"
    twins = Twins(lambda x, w: torch.tanh(x @ w), leaf(*size), leaf(*size))
    for way in ways:
        twins.both(partial(held, way))


def test_one_gradient_for_two_results():
    def fn(x, w):
        return torch.tanh(x @ w), torch.sigmoid(w @ x)

    def use(fn, x, w):
        first, second = fn(x, w)
        return torch.autograd.grad(((first + second) * 2).exp().sum(), (x, w))

    Twins(fn, leaf(128, 128), leaf(128, 128)).both(use)


class Block(nn.Module):
    """Two convolutions with batch norms, added to what comes in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(h)) + x).relu()


class Blocks(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).square().sum()


def test_what_lies_behind_a_batch_norm_is_computed_again():
    """The two results of convolutions are kept of each block, and what every other block gives."""
    blocks, width, side = 10, 4, 24
    module, x = Blocks(*(Block(width) for _ in range(blocks))).double(), torch.randn(2, width, side, side).double()
    twins = Twins(Blocks.forward, x, module=module)
    twins.both(lambda fn, module, x: (fn(module, x), torch.autograd.grad(fn(module, x), [*module.parameters()])))
    module, x = twins.inputs[1]
    out = twins.compiled(module, x)
    kept = [tensor for tensor in out.grad_fn.saved_tensors if tensor.numel() == x.numel()]
    assert len(kept) <= 2.5 * blocks + 2
    del out, kept
    eager, ours = (peak(lambda fn=fn: fn(module, x).backward()) for fn in (twins.fn, twins.compiled))
    assert ours < 0.85 * eager


def test_a_bias_of_a_batch_norm_may_change_before_the_backward():
    """Eager's backward does not look at it."""

    def use(fn, module, x):
        out = fn(module, x)
        with torch.no_grad():
            for norm in module[0].norms:
                norm.bias.add_(1.0)
        return out, torch.autograd.grad(out, [*module.parameters()])

    Twins(Blocks.forward, torch.randn(2, 3, 8, 8).double(), module=Blocks(Block(3), Block(3)).double()).both(use)


@pytest.mark.parametrize("drop", [F.dropout, F.dropout1d])
def test_masks_of_dropout_are_kept_as_bits(drop):
    def fn(x, w):
        return drop(torch.tanh(x @ w), 0.4)

    def gradients(fn, x, w):
        out = fn(x, w)
        return out, torch.autograd.grad(out.square().sum(), (x, w)), torch.rand(2)

    twins = Twins(fn, leaf(2, 8, 6), leaf(6, 6))
    twins.both(gradients)
    x, w = twins.inputs[1]
    kept = kept_by(twins.compiled(x, w), x, w)
    assert torch.bool in {tensor.dtype for tensor in kept}
    assert sum(tensor.is_floating_point() and tensor.numel() == 96 for tensor in kept) == 1  # what tanh gave
