"""The gradient of nll_loss has one element in each row that is not zero, so that a log_softmax along the rows has their
sums without a reduction. Along other dimensions, and of other gradients, it has to add them up."""

import pytest
import torch
import torch.nn.functional as F

import framejit

PROGRAMS = {
    "along the rows": lambda x, y: F.nll_loss(F.log_softmax(x, 1), y),
    "along the rows, from the end": lambda x, y: F.nll_loss(F.log_softmax(x, -1), y),
    "along the columns": lambda x, y: F.nll_loss(F.log_softmax(x, 0), y),
    "both": lambda x, y: F.nll_loss(F.log_softmax(x, 0), y) + F.nll_loss(F.log_softmax(x, 1), y),
    "turned": lambda x, y: F.nll_loss(F.log_softmax(x, 0).t(), y),
    "with another loss of it": lambda x, y: (lambda z: F.nll_loss(z, y) + (z.exp() * z).sum())(F.log_softmax(x, 1)),
    "two of it": lambda x, y: (lambda z: F.nll_loss(z, y) + F.nll_loss(z, y.flip(0)))(F.log_softmax(x, 1)),
    "scaled": lambda x, y: F.nll_loss(F.log_softmax(x, 1) * 2, y),
    "some ignored": lambda x, y: F.nll_loss(F.log_softmax(x, 0), y, ignore_index=2),
    "each": lambda x, y: F.nll_loss(F.log_softmax(x, 0), y, reduction="none").square().sum(),
    "images, by channels": lambda x, y: F.nll_loss(F.log_softmax(x.view(2, 3, 3, 2), 1), y.view(2, 3, 1)[:, :, [0, 0]]),
    "images, by rows": lambda x, y: F.nll_loss(F.log_softmax(x.view(2, 3, 3, 2), 2), y.view(2, 3, 1)[:, :, [0, 0]]),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_log_softmax_along_any_dimension(program):
    def hooked(x, y):
        z = x * 1
        z.register_hook(lambda gradient: gradient * 2)
        return program(z, y)

    y = torch.tensor([0, 2, 1, 2, 0, 1])
    for fn in (program, hooked):
        compiled = framejit.optimize(fn, backend="fuse")
        for seed in range(2):
            x = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
            mine, theirs = (torch.autograd.grad(f(x, y), x)[0] for f in (compiled, fn))
            torch.testing.assert_close(mine, theirs)
