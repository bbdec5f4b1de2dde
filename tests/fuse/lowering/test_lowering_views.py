"""Views, and operations that only put elements elsewhere."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F

import framejit
from tests.fuse.lowering.lowering_checks import check, externs, kernels, lowered
from tests.fuse.lowering.plan_checks import planned

VIEWS = {
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "slice": lambda x: x[1:, ::2, 1:3],
    "select": lambda x: x[:, 1],
    "unsqueeze": lambda x: x.unsqueeze(1).expand(-1, 3, -1, -1),
    "flatten": lambda x: x.flatten(),
    "view": lambda x: x.reshape(4, 2, 3, 5).permute(3, 1, 0, 2),
    "split and merge": lambda x: x.view(4, 6, 5).view(2, 2, 3, 2, 5).transpose(1, 2).reshape(6, 4, 5),
    "diagonal": lambda x: x.diagonal(dim1=0, dim2=2),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "chunks": lambda x: torch.cat([part * i for i, part in enumerate(x.chunk(3, 1))], 1),
    "unbind": lambda x: torch.stack(x.unbind(1)[::-1], 2),
    "movedim": lambda x: x.movedim(0, -1).squeeze(),
    "as_strided": lambda x: x.as_strided((3, 2), (7, 2), 5),
    "narrow": lambda x: x.narrow(2, 1, 3).mT,
    "flip": lambda x: x.flip(0, 2),
    "roll": lambda x: x.roll((1, -2), (1, 2)),
    "repeat": lambda x: x.repeat(2, 1, 2, 1),
    "tile": lambda x: x.tile(2, 2),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=3.0),
    "negative pad": lambda x: F.pad(x, (-1, 1, 2, -1)),
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(-1),
    "cat": lambda x: torch.cat([x, x[:, :2] + 1, x.exp()], 1),
    "stack": lambda x: torch.stack([x, x * 2], -1),
    "interleave": lambda x: torch.stack([-x[..., 1:3], x[..., 0:2]], dim=-1).flatten(-2),
    "rotate half": lambda x: torch.cat((-x[..., 2:], x[..., :2]), dim=-1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("strides", ["contiguous", "permuted"])
def test_view_of_an_input_and_of_a_value(view, strides):
    x = torch.randn(4, 6, 5) if strides == "contiguous" else torch.randn(5, 4, 6).permute(1, 2, 0)
    if strides == "permuted" and view in (VIEWS["view"], VIEWS["split and merge"]):
        x = x.contiguous()
    check(lambda x: (view(x) + 1, view(x.sin()) * 2, view(x * 2).sum()), x)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_returned_as_it_is(view):
    check(lambda x: (view(x), view(x + 1)), torch.randn(4, 6, 5), fused=False)


def test_views_returned_together_share_memory():
    def f(x):
        y = x + 1
        return y, y.view(-1), y[0], x.t(), x[1:], x

    check(f, torch.randn(3, 4))


def test_equal_values_are_returned_apart():
    check(lambda x: (x + 1, x + 1, (x + 1).clone(), x.clone()), torch.randn(3))


def test_an_alias_is_another_object():
    check(lambda x: (x.view_as(x), x[:], x.detach(), x), torch.randn(3))


def test_merging_needs_no_division():
    """Heads split and merged again are read by strides."""

    def f(x):
        return (x * 2).view(2, 8, 4, 16).transpose(1, 2).contiguous().transpose(1, 2).reshape(2, 8, 64) + 1

    graph = check(f, torch.randn(2, 8, 64))
    assert not any(
        "//" in str(store.value) or "%" in str(store.value) for kernel in kernels(graph) for store in kernel.stores
    )


@pytest.mark.parametrize("x", [torch.randn(0, 3), torch.randn(2, 0, 4), torch.tensor(2.0)])
def test_no_elements_or_no_dimensions(x):
    check(
        lambda x: (x + 1, x.sum(), x.flatten() * 2, torch.cat([x.flatten(), x.flatten()]), x.exp().clone()),
        x,
        fused=False,
    )


@pytest.mark.parametrize("factor", [2, 3])
def test_upsampling(factor):
    check(lambda x: F.interpolate(x * 2, scale_factor=factor, mode="nearest"), torch.randn(2, 3, 4, 5))
    check(
        lambda x: F.interpolate(x, scale_factor=factor), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    )


def test_created():
    def f(x):
        n = x.shape[0]
        return (
            torch.arange(n) + x,
            torch.arange(1, 2 * n, 2) * 2,
            torch.arange(0, 1, 0.25) + 1,
            torch.zeros(3) + x[0],
            torch.full((2, 3), 7),
            torch.ones_like(x),
            torch.eye(4),
            x.new_zeros(2),
            torch.full_like(x, 3.5),
            torch.zeros(2, dtype=torch.bool),
            torch.tensor(5.0) * x,
            torch.tensor([1.0, 2.0]),
        )

    check(f, torch.randn(5))


def test_causal_mask():
    def f(x):
        n = x.shape[-1]
        mask = torch.tril(torch.ones(n, n, dtype=torch.bool))
        return x.masked_fill(~mask, float("-inf")), torch.where(
            torch.arange(n)[None, :] <= torch.arange(n)[:, None], x, 0
        )

    assert len(kernels(lowered(f, torch.randn(4, 4)))) == 2
    check(f, torch.randn(4, 4))


def test_indexing_checks_its_indices():
    check(
        lambda w, i: (F.embedding(i, w) + 1, w[i], w.gather(0, i[:, None]), w.index_select(0, i)), torch.randn(10, 4),
        torch.tensor([1, 5, 9]), fused=False,
    )
    graph = lowered(lambda w, i: F.embedding(i, w) * 2, torch.randn(10, 4), torch.tensor([1, 5]))
    assert externs(graph) == ["embedding"]


def test_views_in_another_dtype():
    check(lambda x: (x.view(torch.int32) + 1, torch.view_as_complex(x.view(-1, 2)) * 2), torch.randn(3, 4), fused=False)


def test_views_from_another_storage_position():
    base = torch.randn(30)
    check(lambda x, y: (x + 1, x[1:], y * 2, y.t()), base[3:9], base[10:22].view(3, 4))


def test_what_depends_on_no_input_is_worked_out_once():
    def f(x):
        order = torch.arange(4).flip(0).cumsum(0) % 4
        mask = (torch.arange(4)[:, None] >= order).float().cumsum(1)
        return x[order] + mask, mask[0].sort()[0] * x[0]

    graph = check(f, torch.randn(4, 4), fused=False)
    assert set(externs(graph)) == {"index"}


def test_what_is_returned_or_written_is_made_anew_in_each_call():
    def f(x):
        steps = torch.arange(4).sort().values
        table = torch.arange(4).sort().values
        table[1] = 7
        return steps, x + table

    graph = check(f, torch.randn(4), fused=False)
    assert externs(graph) == ["sort", "sort"]


HIDDEN_BASES = {
    "one": lambda x: (x + 1)[0],
    "two that share it": lambda x: ((t := x * 2 + 1)[0], t[1:], t.view(-1)[3:]),
    "two bases": lambda x: ((x + 1)[0], (x + 1)[1:], (x + 2).mT),
    "of a product": lambda x: (x @ x.mT).view(2, 3, 2, 3).transpose(1, 2),
    "made of several": lambda x: (x + 1).unbind(0),
    "made without gradients": lambda x: _without_gradients(x),
    "a detached input": lambda x: (x.detach()[1:], x[1:].detach(), x.detach()[0], x[0]),
    "a detached base": lambda x: ((t := x + 1).detach(), t[0], t.detach()[1], t[2]),
    "a base with strides": lambda x: ((t := (x + 1).mT.clone())[1], t[:, 0]),
    "a base that is written": lambda x: ((t := x + 1)[0], t.add_(1)[1]),
    "a base that views write": lambda x: ((t := torch.zeros_like(x))[0].copy_(x[1]), t[1:].mul_(2)),
    "not at the beginning": lambda x: torch.cat([x, x + 1])[4:].view(4, 8),
    "a view that is written into": lambda x: ((t := x + 1)[0].mul_(2), t[0].expand(3, 4)),
    "one element": lambda x: ((t := x[:1, :1] + 1).view(()), t[0]),
    "no elements": lambda x: ((t := x[:0] + 1)[:, 0], t.view(4, 0)),
    "the same twice": lambda x: (v := (x + 1)[0], v, v.view(2, 2)),
}


SHOWN_BASES = {
    "the base itself": lambda x: ((t := x + 1)[0], t),
    "laid out in other dimensions": lambda x: ((t := x[:1].expand(6, 4).flatten())[3:7], t, t.view(8, 3)[1:], t[::2]),
    "all of it": lambda x: ((t := x[:1].expand(6, 4).flatten()).squeeze(), t.view(-1), t, x),
    "a view of a view": lambda x: ((t := x[:1].expand(6, 4).flatten()).view(6, 4)[1][2:], t, t.view(6, 4).mT),
    "written into": lambda x: ((t := x[:1].expand(6, 4).flatten())[3:].mul_(2), t.add_(1), t[1:]),
}


@pytest.mark.parametrize("name", SHOWN_BASES)
def test_views_of_an_output(name):
    _same_views(SHOWN_BASES[name])


def _without_gradients(x):
    with torch.no_grad():
        return (t := x + 1)[0], t.unbind(0)[1]


@pytest.mark.parametrize("name", HIDDEN_BASES)
def test_views_of_what_is_no_output(name):
    """Their base is a tensor that nobody else has: results with the same base share its version, and autograd allows
    for them what it does in eager."""
    _same_views(HIDDEN_BASES[name])


def _same_views(fn):
    x, p = torch.randn(6, 4), torch.ones((), requires_grad=True)
    compiled, graphs = planned(fn)
    for _ in range(2):
        expected, got = (_listed(f(x.clone())) for f in (fn, compiled))
        assert _views_of(got) == _views_of(expected)
        written = []
        for results in (expected, got):
            failures, before = [], [t._version for t in results]
            results[0].add_(1)
            try:
                results[-1].mul_(p)
            except RuntimeError as e:
                failures.append(str(e))
            written.append([
                failures,
                [
                    (t._version - v, t.requires_grad, t.grad_fn and t.grad_fn.name())
                    for t, v in zip(results, before)
                ],
            ])
        assert written[0] == written[1]
        for one, other in zip(got, expected):
            torch.testing.assert_close(one, other)
    assert not graphs[0].reason


@pytest.mark.parametrize(
    "fn",
    [HIDDEN_BASES["two that share it"], lambda x: ((t := x[:1].expand(x.shape).flatten())[3:], t, t.view(x.shape)[1])],
)
def test_views_in_symbolic_sizes(fn):
    compiled = framejit.optimize(fn, backend="fuse", dynamic=True)
    for rows in (4, 5, 9):
        x = torch.randn(rows, 7)
        assert _views_of(_listed(compiled(x))) == _views_of(_listed(fn(x)))


VIEWS_IN_OTHER_DTYPES = {
    "of an input": lambda x: (torch.view_as_complex(x.view(6, 2, 2)), torch.view_as_complex(x.view(6, 2, 2))[1:, 0]),
    "of an input's storage": lambda x: (x.view(torch.int16)[1:, 3:], x.view(torch.int64)[1:]),
    "of a result": lambda x: ((z := torch.complex(x, x * 2)), z.real, z.imag[1:], torch.view_as_real(z)),
    "of what is no result": lambda x: ((z := torch.complex(x, x * 2)).real, z.imag[1:]),
    "of a detached input": lambda x: ((z := x.detach()), z.view(torch.int32)[2:], z[:]),
    "there and back": lambda x: (
        torch.view_as_complex(x.view(6, 2, 2)).real,
        torch.view_as_complex((x + 1).view(6, 2, 2)).imag,
    ),
    "of nothing": lambda x: torch.complex(x[:0], x[:0]).real,
}


@pytest.mark.parametrize("fn", VIEWS_IN_OTHER_DTYPES.values(), ids=VIEWS_IN_OTHER_DTYPES)
def test_views_in_another_dtype_are_views(fn):
    x = torch.randn(6, 4)
    compiled, graphs = planned(fn)
    expected, got = (_listed(f(x)) for f in (fn, compiled))
    assert _views_of(got) == _views_of(expected)
    assert [(t.dtype, t.shape, t.stride(), t.storage_offset()) for t in got] == [
        (t.dtype, t.shape, t.stride(), t.storage_offset()) for t in expected
    ]
    assert not graphs[0].reason
    for one, other in zip(got, expected):
        assert one.tolist() == other.tolist()


VIEWS_OF_INPUTS = {
    "slices": lambda x: (x[:], x[1:], x[:1].unsqueeze(0)),
    "several of one operation": lambda x: (*x.split(2), *x.unbind()[:2], *x[1:].chunk(2)),
    "under no_grad()": lambda x: _in_no_grad(lambda: (x[:], x[1:], *x.split(3))),
    "of a detached one": lambda x: ((z := x.detach()), z.squeeze(), z[1:], *z.split(3)),
    "of a detached part": lambda x: ((z := x[1:].detach()), z[1:], z.t()),
    "of a detached part of a detached one": lambda x: ((z := x[1:].detach()[1:].detach()), z[1:], z.t(), x[2:]),
    "of detached parts that are no results": lambda x: (
        *((z := x[1:].detach())[1:], z.t()),
        *((z := (x * 2)[1:].detach())[0], z.t()),
    ),
}


def _in_no_grad(made):
    with torch.no_grad():
        return made()


@pytest.mark.parametrize(
    "around",
    [contextlib.nullcontext, torch.no_grad, lambda: torch.autocast("cpu")],
    ids=["plain", "no_grad", "autocast"],
)
@pytest.mark.parametrize("fn", VIEWS_OF_INPUTS.values(), ids=VIEWS_OF_INPUTS)
@pytest.mark.parametrize("needs_grad", [False, True])
def test_views_of_inputs_are_made_as_eager_makes_them(fn, around, needs_grad):
    compiled = framejit.optimize(fn, backend="fuse")
    for base in (torch.randn(6, 4), torch.randn(7, 4)[1:]):
        x = base.detach().requires_grad_(needs_grad)
        with around():
            expected, got = _listed(fn(x)), _listed(compiled(x))
        assert _views_of(got) == _views_of(expected)
        assert [t.requires_grad for t in got] == [t.requires_grad for t in expected]
        assert [t._base is x for t in got] == [t._base is x for t in expected]


def _listed(results):
    return list(results) if isinstance(results, (tuple, list)) else [results]


def _views_of(results):
    """What autograd knows of results as views: of what, which of them have the same base, and what may be done to
    them."""
    return [
        (
            result._is_view(), result.is_leaf,
            result._base is not None and (result._base.shape, result._base.stride(), result._base._is_view()),
            [result._base is other._base for other in results], [result._base is other for other in results],
            str(torch._C._autograd._get_creation_meta(result)) if result._is_view() else None,
        )
        for result in results
    ]


@pytest.mark.parametrize("around", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
def test_results_in_the_memory_of_a_product_are_no_views(around):
    weights = [torch.randn(4, 4) for _ in range(2)]

    def fn(x):
        for weight in weights:  # a product of more than two dimensions is a view of one of two
            x = torch.nn.functional.linear(x, weight) + x
        return x, torch.matmul(x, weights[0]).relu() * 2

    compiled = framejit.optimize(fn, backend="fuse")
    for _ in range(2):
        with around():
            x = torch.randn(2, 3, 4)
            assert _views_of(compiled(x)) == _views_of(fn(x))
