"""Dtypes and layouts that kernels do not have."""

from __future__ import annotations

import pytest
import torch

import framejit
from tests.fuse.lowering.lowering_checks import copies
from tests.fuse.lowering.plan_checks import check, planned


def test_views_in_another_dtype():
    x = torch.randn(4, 8)
    check(
        lambda x: (
            (x + 1).view(torch.int32) & 0x7FFFFFFF, x.view(torch.int32) + 1, (x * 2).view(torch.int16),
            x.view(torch.uint8)[:, ::4],
        ),
        x,
    )


def test_complex_numbers():
    z = torch.randn(4, 4, dtype=torch.complex64)
    check(lambda z: (z * 2, z + z, z.real + 1, z.imag * 2, z.abs() + 1, z @ z, torch.view_as_real(z) * 2), z)


def test_lazy_conjugates_and_negatives():
    z = torch.randn(4, dtype=torch.complex64)
    compiled, graphs = planned(lambda x: (x + 1, x.conj(), torch.view_as_real(x * 2)))
    torch.testing.assert_close(compiled(z.conj())[0], z.conj() + 1)
    assert "conjugate" in graphs[0].reason
    x = z.conj().imag
    assert x.is_neg()
    compiled, _ = planned(lambda x: x + 1)
    torch.testing.assert_close(compiled(x.resolve_neg()), x + 1)
    torch.testing.assert_close(compiled(x), x + 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 4).relu().to_sparse(),
        lambda: torch.randn(4, 4).relu().to_sparse_csr(),
        lambda: torch.randn(4, 4).to_mkldnn(),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_other_layouts_run_as_aten(make):
    x, y = make(), torch.randn(4, 4)
    program = (lambda x, y: (torch.sparse.mm(x, y) + 1)) if not x.is_mkldnn else (lambda x, y: x.to_dense() + y)
    torch.testing.assert_close(framejit.optimize(program)(x, y), program(x, y))


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_run_as_aten():
    x = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.quint8)
    program = lambda x: x.dequantize() * 2 + 1  # noqa: E731
    torch.testing.assert_close(framejit.optimize(program)(x), program(x))


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.complex32, torch.complex128],
)
def test_rare_dtypes(dtype):
    x = torch.arange(6).to(dtype)
    warned_of = dtype is torch.complex32
    check(
        lambda x: (x.to(torch.float64 if not x.is_complex() else torch.complex128) + 1, x.clone(), x[1:]),
        x,
        refused=warned_of,
    )


def test_numbers_of_the_cpu_among_tensors():
    x, s = torch.randn(4), torch.tensor(3)
    check(lambda x, s: (x * s, x ** s, x + s.item() if False else x, torch.where(x > s, x, s), x.clamp(max=s)), x, s)
    assert copies((x, s))[1].dim() == 0
