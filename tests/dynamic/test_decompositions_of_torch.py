"""With sizes that are left open torch decomposes operations in Python, for some of them wrongly: results and gradients
are eager's all the same."""

import pytest
import torch
import torch.nn.functional as F

import framejit


def labels(x):
    last = torch.full((x.shape[0], 1), -1)
    return torch.cat([torch.arange(x.shape[0])[:, None] % 3, last, last + 1], 1)


PROGRAMS = {
    "lines": lambda x: F.interpolate(x.flatten(2)[..., :5], scale_factor=2.1),
    "images": lambda x: F.interpolate(x, scale_factor=2.1),
    "images with sizes that are kept": lambda x: F.interpolate(x, scale_factor=2.1, recompute_scale_factor=True),
    "images by sizes": lambda x: F.interpolate(x, size=(x.shape[2] * 2, 10)),
    "smaller images": lambda x: F.interpolate(x, scale_factor=0.45),
    "volumes": lambda x: F.interpolate(x[:, :, None], scale_factor=2.1),
    "exact": lambda x: F.interpolate(x, scale_factor=2.1, mode="nearest-exact"),
    "by twice": lambda x: F.interpolate(x, scale_factor=2),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x[:, :, 0, 0], labels(x)),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x[:, :, 0, 0], labels(x)[:, 0]),
    "hardshrink": lambda x: F.hardshrink(x, 0.3) + F.softshrink(x, 0.2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
}


@pytest.mark.parametrize("wants_gradients", [False, True])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_results_are_eager_s(program, wants_gradients):
    compiled = framejit.optimize(program, backend="fuse", dynamic=True)
    for n in (2, 5, 3):
        x = torch.randn(n, 3, n + 2, 5, dtype=torch.float64, requires_grad=wants_gradients)
        mine, theirs = compiled(x), program(x)
        torch.testing.assert_close(mine, theirs)
        if wants_gradients:
            torch.testing.assert_close(*(torch.autograd.grad(y.sin().sum(), x) for y in (mine, theirs)))


def test_torch_s_decompositions_are_put_back():
    ops = torch.ops.aten
    before = [dict(op.py_kernels) for op in (ops.upsample_nearest2d.vec, ops.multilabel_margin_loss_forward.default)]
    test_results_are_eager_s(PROGRAMS["images"], True)
    after = [dict(op.py_kernels) for op in (ops.upsample_nearest2d.vec, ops.multilabel_margin_loss_forward.default)]
    assert before == after
