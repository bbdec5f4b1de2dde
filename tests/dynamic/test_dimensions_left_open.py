"""Which dimensions are left open: by themselves, marked, and to backends of the program's."""

from __future__ import annotations

import pytest
import torch

import framejit
from framejit.backends.symbolic_sizes import with_symbolic_sizes
from framejit.optimized_module import dispatcher_of

from comparison import assert_same


def double(x):
    return x * 2


def test_after_some_sizes_of_a_dimension_it_is_left_open():
    fast = framejit.optimize(double, backend="eager")
    for n in (4, 5, 6, 7, 8, 9):
        assert fast(torch.ones(n, 3)).shape == (n, 3)
    assert len(fast.entries) == framejit.config.dynamic_after == 2
    assert sum("float32[*, 3]" in str(entry.tag.records) for entry in fast.entries) == 1
    assert fast(torch.ones(4, 5)).shape == (4, 5)  # another dimension is assumed as before


def test_never_by_itself_where_sizes_are_to_be_known():
    fast = framejit.optimize(double, backend="eager", dynamic=False)
    for n in (4, 5, 6, 7, 8):
        fast(torch.ones(n, 3))
    assert len(fast.entries) == 5


def test_mark_dynamic():
    fast = framejit.optimize(double, backend="eager")
    for n in (4, 5, 6):
        x = torch.ones(n, 3)
        framejit.mark_dynamic(x, 0)
        assert_same(x * 2, fast(x))
    assert len(fast.entries) == 1


def test_mark_dynamic_with_bounds():
    fast = framejit.optimize(lambda x: x.shape[0] < 100, backend="eager")
    x = torch.ones(8, 3)
    framejit.mark_dynamic(x, -2, min=4, max=64)
    assert fast(x) is True
    assert fast(torch.ones(64, 3)) is True and len(fast.entries) == 1  # that it is less than 100 goes without saying
    assert fast(torch.ones(65, 3)) is True and fast(torch.ones(3, 3)) is True and fast(torch.ones(200, 3)) is False
    assert len(fast.entries) == 3


def test_marks_of_dynamo_count():
    fast = framejit.optimize(double, backend="eager")
    for n in (4, 5, 6):
        x = torch.ones(n, 3)
        x._dynamo_dynamic_indices = {0}
        fast(x)
    assert len(fast.entries) == 1


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((3, 0), {}), ((torch.ones(2), 1), {}), ((torch.ones(2), "a"), {}), ((torch.ones(2), 0), {"min": 1}),
        ((torch.ones(2), 0), {"min": 5, "max": 4}),
    ],
)
def test_mark_dynamic_refuses(arguments, options):
    with pytest.raises(framejit.errors.InvalidOption, match="mark_dynamic"):
        framejit.mark_dynamic(*arguments, **options)


def test_parameters_are_assumed():
    model = torch.nn.Linear(4, 4)
    fast = framejit.optimize(model, backend="eager", dynamic=True)
    for n in (2, 3, 4):
        fast(torch.ones(n, 4))
    (entry,) = dispatcher_of(fast).entries
    shapes = [record.text for record in entry.tag.records if record.text.startswith("tensor ")]
    assert any("float32[*, *]" in text for text in shapes) and any("float32[4, 4]" in text for text in shapes)


def test_a_custom_backend_sees_symbols_and_other_sizes():
    seen = []

    @with_symbolic_sizes
    def backend(gm, inputs):
        seen.append(gm)
        return gm.forward

    def f(x):
        return x.view(x.shape[0] // 2, -1) + x.shape[0]

    fast = framejit.optimize(f, backend=backend, dynamic=True)
    for n in (4, 6, 8):
        x = torch.randn(n, 6)
        assert_same(f(x), fast(x))
    (gm,) = seen
    placeholder = next(iter(gm.graph.nodes))
    assert isinstance(placeholder.meta["val"].shape[0], torch.SymInt)
    assert any(node.target is torch.ops.aten.sym_size.int for node in gm.graph.nodes)
    gm.graph.lint()
