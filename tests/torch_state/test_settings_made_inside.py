"""Settings of torch that captured code makes: operations behind them follow, they stay or go as in plain Python, and
what was set outside is noticed."""
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import framejit

X = torch.arange(1.0, 5.0)
Q = torch.rand(1, 2, 4, 8)


def put_back(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.ones(4) * 0.1 + torch.tensor(1.0)
    torch.set_default_dtype(before)
    return x + y, y.dtype, torch.ones(1).dtype


def left(x):
    torch.set_default_dtype(torch.float64)
    return x + torch.ones(4)


def raises_between(x):
    torch.set_default_dtype(torch.float64)
    try:
        y = x + torch.ones(4)
        if y.dtype is torch.float64:
            raise ValueError
    except ValueError:
        return x * 2, torch.get_default_dtype()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("fn", [put_back, left, raises_between])
def test_default_dtype(fn):
    compiled = framejit.optimize(fn, fullgraph=True, backend="eager")
    for before in (torch.float32, torch.float64, torch.float32):
        found = []
        for f in (fn, compiled):
            torch.set_default_dtype(before)
            try:
                found.append((f(X), torch.get_default_dtype()))
            finally:
                torch.set_default_dtype(torch.float32)
        assert str(found[0]) == str(found[1])


def flags():
    names = ("flash", "mem_efficient", "math", "cudnn")
    return [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in names]


def attends(q):
    with sdpa_kernel(SDPBackend.MATH):
        y = F.scaled_dot_product_attention(q, q, q)
        inner = flags()
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            y = y + F.scaled_dot_product_attention(q, q, q)
            innermost = flags()
    return y, inner, innermost, flags()


def test_kernels_of_attention():
    # newer torches keep it in a context variable, which breaks the graph
    by_context = hasattr(torch.nn.attention, "_sdpa_kernel_uses_priority")
    compiled = framejit.optimize(attends, fullgraph=not by_context, backend="eager")
    for flash in (True, False, True, True):
        before = torch.backends.cuda.flash_sdp_enabled()
        torch.backends.cuda.enable_flash_sdp(flash)
        try:
            expected, got = attends(Q), compiled(Q)
            assert torch.allclose(expected[0], got[0]) and expected[1:] == got[1:]
            assert flags() == expected[3]
        finally:
            torch.backends.cuda.enable_flash_sdp(before)
    assert len(compiled.entries) <= 3


def test_members_of_torchs_enumerations():
    def fn(x, kind):
        table = {SDPBackend.MATH: 2, SDPBackend.FLASH_ATTENTION: 3}
        return x * table.get(kind, 5), kind.name, kind == SDPBackend.MATH, int(kind)

    compiled = framejit.optimize(fn, fullgraph=True, backend="eager")
    for kind in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.ERROR, SDPBackend.MATH):
        assert str(compiled(X, kind)) == str(fn(X, kind))


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_what_is_left_set_is_set_by_each_call(backend):
    """The fusing backend tries both ways in the first calls; each sets it."""

    def fn(x):
        torch.set_default_dtype(torch.float64)
        return x + 1, torch.tensor([1.5])

    compiled = framejit.optimize(fn, backend=backend)
    before = torch.get_default_dtype()
    try:
        for _ in range(8):
            torch.set_default_dtype(torch.float32)
            _, made = compiled(torch.ones(4, 4))
            assert made.dtype == torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(before)
