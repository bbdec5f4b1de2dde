"""Operations that are asked for again on fakes of the same kind give what they would have given anew."""
import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.fakes.metadata import Metadata, SymbolicLayout
from framejit.fakes.repeated_calls import _facts, _with_base
from framejit.fakes.size_keys import size_key
from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import Expression, Symbol
from framejit.symbols.sym_node import symbolic


def run(metadata, target, *args, **kwargs):
    return metadata.run(target, isinstance(target, str), args, kwargs)


X, W, B = torch.randn(2, 5, 8), torch.randn(8, 8), torch.randn(8)
CALLS = {
    "linear": (F.linear, X, W, B),
    "linear without bias": (F.linear, X, W),
    "layer_norm": (F.layer_norm, X, (8,), B, B),
    "attention": (F.scaled_dot_product_attention, X, X, X),
    "several": ("max", X, 1),
    "split": ("chunk", X, 2),
    "transpose": ("transpose", X, 0, 1),
    "reshape": ("reshape", X.transpose(0, 1), 10, 8),
    "itself": ("contiguous", X),
    "dropout": (F.dropout, X, 0.5, False),
    "number": (torch.mul, X, 2.0),
    "integers": (torch.true_divide, torch.ones(3, dtype=torch.int64), 2),
    "strides": (torch.add, X.transpose(0, 2), 1),
}


@pytest.mark.parametrize("mode", (torch.no_grad, torch.inference_mode, torch.enable_grad))
@pytest.mark.parametrize("name", CALLS)
def test_the_second_result_is_like_the_first(name, mode):
    target, *args = CALLS[name]
    metadata = Metadata()
    with mode():
        fakes = [metadata.fake_of(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
        first, second = (run(metadata, target, *fakes) for _ in range(2))
        again = Metadata()
        alone = run(again, target, *[again.fake_of(arg) if isinstance(arg, torch.Tensor) else arg for arg in args])
    for a, b, c in zip(
        *([result] if isinstance(result, torch.Tensor) else result for result in (first, second, alone)), strict=True
    ):
        assert (
            [_facts(part) for part in _with_base(a)]
            == [_facts(part) for part in _with_base(b)]
            == [_facts(part) for part in _with_base(c)]
        )
        assert (a is fakes[0]) == (b is fakes[0])
        assert (a.untyped_storage()._cdata == fakes[0].untyped_storage()._cdata) == (
            b.untyped_storage()._cdata == fakes[0].untyped_storage()._cdata
        )
        if a is not fakes[0]:
            assert a is not b


class Open:
    """Fakes of tensors whose first dimension is symbolic, and what was asked about it."""

    def __init__(self):
        self.metadata, self.conditions = Metadata(), Conditions()
        self.symbols = {}
        self.worked_out = 0
        compute = self.metadata.mode._worked_out

        def counted(func, *args):
            self.worked_out += func.namespace == "aten"
            return compute(func, *args)

        self.metadata.mode._worked_out = counted

    def fake_of(self, value):
        if not isinstance(value, torch.Tensor):
            return value
        symbol = self.symbols.setdefault(value.shape[0], Symbol(f"n{value.shape[0]}", value.shape[0], (2, 2**40)))
        sizes = [symbolic(Expression.of(symbol), self.conditions), *value.shape[1:]]
        return self.metadata.fake_of(value, SymbolicLayout(tuple(sizes), value.stride(), 1, 0))

    def facts(self, result):
        """With the names of symbols in place of these."""
        parts = [result] if isinstance(result, torch.Tensor) else result
        return str([[_facts(part) for part in _with_base(fake)] for fake in parts])

    def asked(self):
        return [str(condition) for condition in self.conditions]


@pytest.mark.parametrize("mode", (torch.no_grad, torch.inference_mode, torch.enable_grad))
@pytest.mark.parametrize("name", CALLS)
def test_the_second_result_with_symbolic_sizes_is_like_the_first_and_nothing_more_is_asked(name, mode):
    target, *args = CALLS[name]
    many, once = Open(), Open()
    with mode():
        fakes, others = ([each.fake_of(arg) for arg in args] for each in (many, once))
        first = run(many.metadata, target, *fakes)
        asked = many.asked()
        run(many.metadata, target, *fakes)  # with what was learnt of the sizes at first
        worked_out = many.worked_out
        second = run(many.metadata, target, *fakes)
        alone = run(once.metadata, target, *others)
    assert many.facts(first) == many.facts(second) == once.facts(alone)
    assert many.asked() == asked == once.asked()
    assert many.worked_out == worked_out
    for a, b in zip(
        *([result] if isinstance(result, torch.Tensor) else result for result in (first, second)), strict=True
    ):
        assert (a is fakes[0]) == (b is fakes[0])
        assert (a.untyped_storage()._cdata == fakes[0].untyped_storage()._cdata) == (
            b.untyped_storage()._cdata == fakes[0].untyped_storage()._cdata
        )


def test_sizes_that_turn_out_to_be_equal_are_the_same_from_then_on():
    each = Open()
    x, y = each.fake_of(torch.randn(5, 8)), each.fake_of(torch.randn(6, 8))
    each.symbols[6].hint = 5
    with torch.no_grad():
        before = run(each.metadata, torch.mul, x, 2)
        total = run(each.metadata, torch.add, y, y)
        assert str(before.shape[0]) == "n5" and str(total.shape[0]) == "n6" and not each.asked()
        assert bool(x.shape[0] == y.shape[0]) and len(each.asked()) == 1
        again = run(each.metadata, torch.add, y, y)
        assert size_key(again.shape[0]) == size_key(before.shape[0]) == size_key(total.shape[0])


def test_what_the_thread_is_set_to_tells_results_apart():
    metadata = Metadata()
    x = metadata.fake_of(torch.ones(3, dtype=torch.int64))
    before = torch.get_default_dtype()
    first = run(metadata, torch.true_divide, x, 2)
    try:
        torch.set_default_dtype(torch.float64)
        assert run(metadata, torch.true_divide, x, 2).dtype == torch.float64
    finally:
        torch.set_default_dtype(before)
    assert run(metadata, torch.true_divide, x, 2).dtype == first.dtype == before
    a = metadata.fake_of(torch.randn(4, 4))
    assert run(metadata, torch.mm, a, a).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert run(metadata, torch.mm, a, a).dtype == torch.bfloat16
    assert run(metadata, torch.mm, a, a).dtype == torch.float32


def test_a_gradient_history_is_made_anew():
    metadata = Metadata()
    x, w = metadata.fake_of(torch.randn(3, 3)), metadata.fake_of(torch.randn(3, 3, requires_grad=True))
    with torch.no_grad():
        assert not any(run(metadata, torch.mm, x, w).requires_grad for _ in range(2))
    first, second = run(metadata, torch.mm, x, w), run(metadata, torch.mm, x, w)
    assert first.requires_grad and second.requires_grad and first.grad_fn is not second.grad_fn


def test_writes_are_done_each_time():
    def fn(x):
        y = x + 1
        y.add_(x)
        y.add_(x)
        y.requires_grad_(False)
        z = x.contiguous()
        z.mul_(2)
        z = x.contiguous()
        z.mul_(2)
        return y, z is x, y._version

    x, other = torch.randn(3), torch.randn(3)
    other.copy_(x)
    got, wanted = framejit.optimize(fn, backend="eager")(x), fn(other)
    assert torch.equal(got[0], wanted[0]) and got[1:] == wanted[1:] and torch.equal(x, other)
