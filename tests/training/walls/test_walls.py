"""A part of what `gradient_wall.py` and `module_wall.py` go through, which `make gradients` does as a whole."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import framejit
from tests.fuse.operators.operator_cases import operators
from tests.training.walls.gradient_wall import (
    FUSED,
    Differs,
    Report,
    Sample,
    check_operator,
    check_sample,
    differentiable_operators,
)
from tests.training.walls.module_wall import ModuleCase, check_module, check_modules, modules

EVERY: int = 24
"""Of so many operators one, of half as many modules one."""
OPERATORS = ("nn.functional.layer_norm", "softmax.with_dtype", "nn.functional.gelu", "cumsum", "linalg.vector_norm")
MODULES = (
    "nn.Linear", "nn.GroupNorm", "nn.LSTM", "nn.InstanceNorm2d", "nn.TransformerEncoderLayer",
    "nn.GRUCell", "nn.CircularPad2d",
)


def test_gradients_of_operators():
    report = Report()
    for name in sorted({*OPERATORS, *differentiable_operators()[::EVERY]}):
        check_operator(name, report, 2)
    assert not report.failures, report
    assert report.counts[FUSED] > 0.8 * sum(report.counts.values()), report
    assert {report.operators[name] for name in OPERATORS} == {FUSED}, report.operators


def test_gradients_of_modules():
    report = Report()
    for name in sorted({*MODULES, *[*modules()][:: EVERY // 2]}):
        check_modules(name, report, 2)
    assert not report.failures, report
    assert {report.operators[name] for name in MODULES} == {FUSED}, report


def wrong(x):
    """Another gradient where it is compiled, and the same value."""
    return x.sin() if not framejit.is_compiling() else x.sin().detach() + (x - x.detach())


@pytest.mark.parametrize(
    ("function", "difference"),
    [
        (lambda x: (wrong(x),), "call 0: gradient 0: .*not close"),
        (lambda x: (x.sin() * (1 + 1e-5 * framejit.is_compiling()),), "call 0: result 0: .*not close"),
        (lambda x: (x.float().sin() if framejit.is_compiling() else x.sin(),), "float32"),
    ],
)
def test_the_wall_of_operators_sees_what_is_wrong(function, difference):
    tensors = [torch.randn(4, dtype=torch.float64, requires_grad=True)]
    with pytest.raises(Differs, match=difference):
        check_sample(Sample("made up", function, tensors, operators()["sin"]))


def test_the_wall_of_modules_sees_what_is_wrong():
    class Wrong(nn.Linear):
        def forward(self, x):
            return wrong(super().forward(x))

    with pytest.raises(Differs, match="call 0: gradient of .*not close"):
        check_module(ModuleCase("made up", Wrong(3, 4).double(), (torch.randn(2, 3, dtype=torch.float64),), {}))
