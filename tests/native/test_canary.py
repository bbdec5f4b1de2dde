"""The canary of a torch or a CPython to come prints each part of the native core, and fails where one fell back."""

from __future__ import annotations

import pytest

from framejit import _native as native
from framejit.environment import cpython_layout
from framejit.guards.tensor_layout import LAYOUT
from tests import canary


def lost(name):
    return lambda patch: patch.setitem(cpython_layout.LAYOUT, name, False)


LOST = {
    **{f"CPython's {part}": lost(part) for part in cpython_layout.LAYOUT},
    "changes of instances' attributes": lambda patch: patch.setattr(cpython_layout, "ATTRIBUTES_ARE_TOLD", False),
    "changes of dictionaries": lambda patch: patch.setattr(native, "dict_access", lambda: "comparison"),
    "metadata of tensors": lambda patch: patch.setattr(native, "tensor_access", lambda: "attributes"),
    **{
        f"torch's {name}" if isinstance(place, bool) else f"offset of {name}": (
            lambda patch, name=name, place=place: patch.setitem(LAYOUT, name, False if place is True else -1)
        )
        for name, place in LAYOUT.items()
        if isinstance(place, (bool, int))
    },
}


@pytest.fixture(autouse=True)
def native_otherwise(monkeypatch):
    """3.13.0 itself tells nobody of some changes of attributes."""
    monkeypatch.setattr(cpython_layout, "ATTRIBUTES_ARE_TOLD", True)


def test_all_is_native_here(capsys):
    assert canary.main() == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"all {len(printed) - 2} are native" and set(LOST) <= {line[2:57].strip() for line in printed}


@pytest.mark.parametrize("part", LOST)
def test_it_fails_where_a_part_fell_back(part, monkeypatch, capsys):
    LOST[part](monkeypatch)
    assert canary.main() == 1
    *printed, last = capsys.readouterr().out.splitlines()
    assert [line[2:57].strip() for line in printed if line.startswith("! ")] == [part]
    assert last == f"1 of {len(printed) - 1} fell back: {part}"


@pytest.mark.parametrize("symbol", [name for name in native.torch_symbols() if canary.OF_CUDA not in name])
def test_it_fails_where_a_symbol_is_missing(symbol, capsys):
    native.withhold_symbols((symbol,))
    try:
        assert canary.main() == 1
    finally:
        native.withhold_symbols(())
    assert f"fell back: {symbol}" in capsys.readouterr().out
