"""Conjugates and what is made of them, which torch has as views that are only read otherwise: graphs are fused with the
numbers themselves in their place, and give what eager gives."""

import pytest
import torch

import framejit

from twins import Twins, leaf

FUSED = {
    "rotary embedding": lambda x, z: torch.view_as_real(torch.view_as_complex(x) * z).flatten(-2),
    "filter": lambda x, z: torch.fft.irfft(torch.fft.rfft(x.flatten(1)) * z[0], n=8).relu(),
    "inside": lambda x, z: ((c := torch.view_as_complex(x)) * c.conj() * z).abs().sum(),
    "its parts": lambda x, z: ((c := torch.view_as_complex(x).conj()).imag * 2 + c.real).sum(-1),
    "of a product": lambda x, z: (((c := torch.view_as_complex(x)).mH @ c).abs(), (c @ z).real),
    "asked for": lambda x, z: (z.conj().is_conj(), z.conj().imag.is_neg(), ((z * 2).conj() * x.sum()).abs()),
}
REFUSED = {
    "given": lambda x, z: torch.view_as_complex(x).conj(),
    "a part given": lambda x, z: (torch.view_as_complex(x) * 1).conj().imag,
    "written behind it": lambda x, z: ((c := torch.view_as_complex(x) * 1), (v := c.conj()), c.mul_(2), v.abs())[3],
    "written": lambda x, z: ((c := torch.view_as_complex(x) * 1), c.conj().mul_(2 + 1j), c.abs())[2],
    "part written": lambda x, z: ((c := torch.view_as_complex(x) * 1), c.conj().imag.mul_(2), c.abs())[2],
}


def use(fn, x, z):
    x.grad = z.grad = None
    given = fn(x, z)
    given = given if isinstance(given, tuple) else (given,)
    facts = [(g.is_conj(), g.is_neg()) for g in given if isinstance(g, torch.Tensor)]
    total = sum(g.abs().sum() for g in given if isinstance(g, torch.Tensor) and g.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    gradients = [(g, g is not None and g.is_conj()) for g in (x.grad, z.grad)]
    return [g.resolve_conj().resolve_neg() if isinstance(g, torch.Tensor) else g for g in given], facts, gradients


@pytest.mark.parametrize("of_numbers", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", [*FUSED, *REFUSED])
def test_as_in_eager(name, gradients, of_numbers):
    x, z = leaf(4, 4, 2), torch.randn(4, dtype=torch.complex128)
    if name == "filter":
        z = torch.randn(1, 5, dtype=torch.complex128)
    x, z = x.detach().requires_grad_(gradients), z.requires_grad_(of_numbers)
    Twins((FUSED | REFUSED)[name], x, z, fused=name in FUSED).both(use)


def test_a_gradient_that_is_such_a_view():
    z = torch.randn(4, dtype=torch.complex128).requires_grad_()
    twins = Twins(lambda z: (z.conj() * 2).abs().sum(), z, fused=False)
    twins.both(lambda fn, z: (fn(z).backward(), z.grad.is_conj(), z.grad.resolve_conj())[1:])
    (graph,) = framejit.inspect(twins.compiled).graphs
    assert graph.reason == "a gradient is only a view as conjugate or negative"
