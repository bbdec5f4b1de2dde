"""Every operator of torch's test database through the fusing backend: as eager does it, or left to ATen; see
operator_wall.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
import torch

import framejit
from tests.fuse.operators.operator_cases import Case, cases, operators
from tests.fuse.operators.operator_wall import Differs, Report, check_case, check_operator, check_optimized

import forked

EVERY: int = 8
"""One operator of so many also goes the whole way through `framejit.optimize`."""
KNOWN_FUSED = ("add", "sigmoid", "softmax", "nn.functional.layer_norm", "sum", "where", "nn.functional.gelu")


@pytest.fixture(scope="module")
def report() -> Iterator[Report]:
    collected = Report()
    yield collected
    print(f"\n{collected}")


@cache
def checked(name: str) -> Report:
    """What came of an operator's cases: each is tried once, whichever tests ask."""
    own = Report()
    with framejit.config.patch(debug=True):
        check_operator(name, own)
    return own


@pytest.mark.parametrize("name", operators())
def test_operator(name: str, report: Report) -> None:
    own = checked(name)
    report.merge(own)
    assert not own.failures, "\n".join(own.failures)


@pytest.mark.parametrize("name", list(operators())[::EVERY])
def test_operator_through_optimize(name: str) -> None:
    for case in islice(cases(name), 1):
        check_optimized(case)


@pytest.mark.parametrize("name", KNOWN_FUSED)
def test_what_is_meant_to_be_fused_is(name: str) -> None:
    own = checked(name)
    assert own.counts["float32"]["fused"] > own.counts["float32"]["extern"] + own.counts["float32"]["refused"], str(own)


def wrong_case(function) -> Case:
    """A case that what is compiled fails: what `function` does in single precision differs between the first call,
    eager's, and later ones."""
    calls = iter(range(100))
    return Case("made up", "function", torch.float32, lambda x: function(x, next(calls)), [torch.randn(4)])


@pytest.mark.parametrize(
    ("function", "difference"),
    [
        (lambda x, call: [x + (call and x.dtype == torch.float32)], "not close"),
        (lambda x, call: [x.double() if call else x * 1], "float64"),
        (lambda x, call: [x if call else x * 1], "the same ones"),
        (lambda x, call: [x[1:] if call else x[1:] * 1], "share memory"),
        (lambda x, call: [x.view(2, 2) * 1 if not call else (x.view(2, 2) * 1).t().contiguous().t()], "strides"),
        (lambda x, call: [x.add_(bool(call and x.dtype == torch.float32)) * 0], "argument"),
    ],
)
def test_the_wall_sees_what_is_wrong(function, difference: str) -> None:
    with pytest.raises(Differs, match=difference):
        check_case(wrong_case(function))


def test_the_wall_sees_a_missing_exception() -> None:
    def raises_once(x: torch.Tensor, call: int) -> list[torch.Tensor]:
        if not call:
            raise ValueError("only eagerly")
        return [x * 2]

    with pytest.raises(Differs, match="ValueError"):
        check_case(wrong_case(raises_once))


def test_the_command_writes_a_report(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    script = Path(__file__).with_name("operator_wall.py")
    done = forked.run([script, "--json", str(file), "sin", "nonzero"], timeout=120)
    assert done.returncode == 0, done.stderr
    assert "float32" in done.stdout
    written = json.loads(file.read_text())
    assert written["operators"] == {"nonzero": "refused", "sin": "extern"}  # complex numbers are left to ATen
    assert written["cases"]["float32"]["fused"] > 0
    assert any("nonzero" in reason for reason in written["reasons"])
