"""Each symbol of torch that the native core uses may be missing in a torch to come: something is done in its place, and
plans stay on."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch

import framejit
from framejit import _native as native
from framejit.guards import tensor_layout
from tests.native.guards.test_tensor_checks import _one_of_each, guard
from tests.native.guards.test_thread_state import MODES
from tests.native.plan.test_plan import ADD_RELU_DOUBLE, call, empty, plan, value

SYMBOLS = tuple(native.torch_symbols())
STATE = {name for name, (_, instead) in native.torch_symbols().items() if "torch's state" in instead}


@pytest.fixture
def without(request):
    """The native core as it would be with a torch that lacks the symbols."""
    names = request.param
    native.withhold_symbols(names)
    try:
        yield names, tensor_layout._set_up()
    finally:
        native.withhold_symbols(())
        restored = tensor_layout._set_up()
        assert restored == tensor_layout.LAYOUT


each_symbol = pytest.mark.parametrize("without", [(name,) for name in SYMBOLS], indirect=True, ids=SYMBOLS)
none_at_all = pytest.mark.parametrize("without", [SYMBOLS], indirect=True, ids=["all"])


def test_this_torch_exports_them_and_the_sources_name_no_others():
    missing = [name for name, (exported, _) in native.torch_symbols().items() if not exported and "cuda" not in name]
    assert missing == []
    sources = (Path(framejit.__file__).parent / "native").rglob("*.c")
    named = {name for path in sources for name in re.findall(r'torch_symbol\("(\w+)"\)', path.read_text())}
    assert named == set(SYMBOLS) - {"aoti_torch_device_type_cpu"}, (
        "that one is made of a prefix and the name of the device"
    )


def _plans_give_what_eager_gives():
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    steps = [
        empty(2, 4, 4),
        ("cpu_kernel", ADD_RELU_DOUBLE.address, (0, 1, 2), (), 16, 64),
        ("reinterpret", 3, 2, (2, 3), (4, 1), 1, torch.int32),
        ("expect", 2, (4, 4), (4, 1), torch.clone),
        call(torch.sub, value(2), 1, to=4),
    ]
    expected = (x + y).relu() * 2
    for _ in range(3):
        result, view, less = plan(2, 5, steps, [value(2), value(3), value(4)])(x, y)
        assert torch.equal(result, expected) and torch.equal(less, expected - 1)
        assert view.dtype is torch.int32 and torch.equal(
            view.view(torch.float32), expected.as_strided((2, 3), (4, 1), 1)
        )
        assert view._base is None and view.data_ptr() == result.data_ptr() + 4
    (transposed,) = plan(1, 2, [("reinterpret", 1, 0, (4, 4), (1, 4), 0, torch.float32)], [value(1)])(x)
    assert torch.equal(transposed, x.t())


def _tensors_are_told_apart():
    ones, others = _one_of_each(), _one_of_each()
    wrong = []
    for name, example in ones.items():
        built = guard(example)
        wrong += [(name, other) for other, tensor in others.items() if built.check((tensor,), None) != (name == other)]
    assert wrong == []


def _modes_are_told_apart():
    outside = native.snapshot_state()
    for name, mode in MODES.items():
        with mode():
            inside = native.snapshot_state()
            assert inside != outside and native.state_matches(inside) and not native.state_matches(outside), name
        assert native.state_matches(outside) and not native.state_matches(inside), name


def _programs_run_as_in_eager():
    def program(x, scale):
        y = (x * scale).sin().sum(1)
        return torch.cat([y, y + 1]), x.t() + 1

    compiled = framejit.optimize(program)
    leaf = torch.randn(4, 6, requires_grad=True)
    for x in (
        torch.randn(4, 6), torch.randn(4, 6), torch.randn(5, 6), leaf, leaf.detach(),
        torch.randn(4, 6, dtype=torch.float64),
    ):
        for scale in (2.0, 3.0):
            for got, expected in zip(compiled(x, scale), program(x, scale)):
                torch.testing.assert_close(got, expected)
                assert got.requires_grad == expected.requires_grad


@pytest.mark.filterwarnings("ignore")
@each_symbol
def test_without_one(without):
    (name,), layout = without
    assert native.torch_symbols()[name][0] is False
    assert native.tensor_access() == "direct", "one function less, and tensors are read where they are"
    assert layout["state"] is (name not in STATE) and len([part for part in layout if part.startswith("state of")]) <= 2
    _plans_give_what_eager_gives()
    _tensors_are_told_apart()
    _modes_are_told_apart()
    _programs_run_as_in_eager()


@pytest.mark.filterwarnings("ignore")
@none_at_all
def test_without_any(without):
    assert not without[1]["shim"] and not without[1]["state"]
    _plans_give_what_eager_gives()
    _tensors_are_told_apart()
    _modes_are_told_apart()
    _programs_run_as_in_eager()


OF_WARNINGS = [name for name in SYMBOLS if "Warning" in name]


def _told_of_a_resized_output(add, capfd):
    """Where it is told: on stderr (up to torch 2.14 by operators that are called by themselves), and as Python's
    warnings."""
    out = torch.zeros(3)
    capfd.readouterr()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = add(torch.ones(2), out)
    assert torch.equal(result, torch.full((2,), 2.0))
    assert all("resized" in str(warning.message) for warning in told)
    return "resized" in capfd.readouterr().err, [warning.category for warning in told]


@pytest.mark.parametrize("without", [(name,) for name in OF_WARNINGS], indirect=True, ids=OF_WARNINGS)
def test_what_operations_warn_of(without, capfd):
    (name,), _ = without
    resized = plan(2, 3, [call(torch.ops.aten.add.out, value(0), 1, out=value(1), to=2)], [value(2)])
    told = _told_of_a_resized_output(lambda x, out: resized(x, out)[0], capfd)
    if native.torch_symbols()[name][1].endswith("called by themselves"):
        assert told == _told_of_a_resized_output(lambda x, out: torch.ops.aten.add.out(x, 1, out=out), capfd)
        assert told in ((True, []), (False, [UserWarning]))
    else:
        assert told == (False, [UserWarning])
