"""Operations that write into lists of tensors: each write is counted as eager counts it, whatever the list holds."""
from __future__ import annotations

from typing import Any

import pytest
import torch

import framejit


def numbers(value: Any) -> Any:
    """Numbers and versions of the tensors in tuples."""
    if isinstance(value, torch.Tensor):
        return value.tolist(), value._version
    return [numbers(item) for item in value] if isinstance(value, tuple) else value


def parts(x):
    torch._foreach_add_([x[:2], x[2:]], 1.0)


def parts_and_whole(x):
    torch._foreach_add_([x[:2], x[2:]], 1.0)
    torch._foreach_mul_([x], [2.0])
    return x._version


def at_once(x):
    torch._foreach_add_([x, x[1:]], 1.0)


def one_twice(x):
    torch._foreach_mul_([x, x], [2.0, 3.0])
    x.add_(1)
    return x * 2


def own(x):
    made = torch.zeros(4)
    torch._foreach_copy_([made], [x])
    torch._foreach_zero_([x[1:], made[:2]])
    return made, made._version, x + 1


def by_keyword(x):
    torch._foreach_add_(self=[x, x[1:]], scalar=1.0)
    torch.ops.aten._foreach_neg_.default(self=[x[1:]])


def uncounted_too(x):
    torch._foreach_add_([x.data, x.detach()], 1.0)


def without_counters(x):
    with torch.inference_mode():
        torch._foreach_add_([x, x[1:], x * 2], 1.0)


WRITES = [parts, parts_and_whole, at_once, one_twice, own, by_keyword, uncounted_too, without_counters]


@pytest.mark.filterwarnings("error::framejit.errors.FramejitWarning")
@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn", WRITES)
def test_versions_are_those_of_eager(fn, backend):
    fast = framejit.optimize(fn, backend=backend)
    for _ in range(3):
        expected, got = torch.arange(4.0), torch.arange(4.0)
        assert numbers((fn(expected), expected)) == numbers((fast(got), got))


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn", [parts, at_once])
def test_a_backward_notices_that_what_it_saved_was_written(fn, backend):
    fast = framejit.optimize(fn, backend=backend)
    for _ in range(2):
        x, weight = torch.arange(4.0), torch.ones(4, requires_grad=True)
        product = weight * x
        fast(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_weights_that_ask_for_gradients(backend):
    def step(weight, gradient):
        loss = (weight * weight).sum()
        with torch.no_grad():
            torch._foreach_add_([weight[:2], weight[2:], weight], [gradient[:2], gradient[2:], gradient])
        return loss.detach(), weight._version

    fast = framejit.optimize(step, backend=backend)
    for _ in range(3):
        expected, got = (torch.arange(4.0, requires_grad=True) for _ in range(2))
        gradient = torch.ones(4)
        assert numbers((step(expected, gradient), expected)) == numbers((fast(got, gradient), got))


OPERATIONS = [
    getattr(getattr(torch.ops.aten, schema.name.removeprefix("aten::")), schema.overload_name or "default")
    for schema in torch._C._jit_get_all_schemas()
    if schema.name.startswith("aten::_foreach_") and schema.name.endswith("_")
    # a tensor of scalars is read, which fakes refuse
    and not any(argument.name == "scalars" and str(argument.type) == "Tensor" for argument in schema.arguments)
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_each_operation_on_lists_counts_on_fakes_as_it_does_for_real(operation):
    from framejit.fakes.fake_mode import Fakes

    def given(make):
        made = []
        for argument in operation._schema.arguments:
            kind = str(argument.type)
            if argument.has_default_value():
                break
            first = not made
            made.append(
                [make(), make()] if kind == "List[Tensor]"
                else torch.ones(()) if kind == "Tensor"
                else [0.5, 0.5] if kind.startswith("List")
                else 0.5
            )
            assert first is bool(argument.alias_info)
        return made

    args = given(lambda: torch.ones(2))
    operation(*args)
    fakes = Fakes()
    with fakes:
        seen = given(lambda: torch.ones(2))
        operation(*seen)
    assert [t._version for t in seen[0]] == [t._version for t in args[0]]
