"""Tensor guards: every way of reading tensors tells the same tensors apart, and tells apart whatever a graph depends
on."""

from __future__ import annotations

import sys
import weakref

import pytest
import torch

from framejit import _native as native
from framejit.guards import tensor_layout

from native_support import arg, tree


def guard(example):
    return tree(arg(0, (native.C_TENSOR, example)))


class Subclass(torch.Tensor):
    pass


def _one_of_each():
    base = torch.zeros(4, 6)
    grad = torch.zeros(4, 6, requires_grad=True)
    with torch.inference_mode():
        inference = torch.zeros(4, 6)
    tensors = {
        "base": base,
        "transposed": torch.zeros(6, 4).t(),
        "other size": torch.zeros(4, 5),
        "broadcast": torch.zeros(4, 1).expand(4, 6),
        "vector": torch.zeros(24),
        "scalar": torch.zeros(()),
        "empty": torch.zeros(0, 6),
        "double": base.double(),
        "bool": base.bool(),
        "meta": base.to("meta"),
        "requires grad": grad,
        "parameter": torch.nn.Parameter(torch.zeros(4, 6)),
        "inference": inference,
        "complex": torch.zeros(4, 6, dtype=torch.complex64),
        "conjugate": torch.zeros(4, 6, dtype=torch.complex64).conj(),
        "negative": torch.zeros(4, 6, dtype=torch.complex64).conj().imag,
        "subclass": torch.zeros(4, 6).as_subclass(Subclass),
        "sparse": base.to_sparse(),
        "csr": base.to_sparse_csr(),
        "channels last": torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "contiguous": torch.zeros(2, 3, 4, 5),
        "quantized": torch.quantize_per_tensor(torch.zeros(4, 6), 0.1, 0, torch.qint8),
    }
    for dims in (5, 6, 7, 9):
        tensors[f"{dims} dimensions"] = torch.zeros(*range(1, dims + 1))[..., ::2]
        tensors[f"{dims} dimensions transposed"] = torch.zeros(*range(1, dims + 1))[..., ::2].transpose(0, 1)
    for dtype in (
        torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
        torch.float8_e4m3fn,
    ):
        tensors[str(dtype)] = torch.zeros(4, 6, dtype=dtype)
    return tensors


def test_this_torch_is_read_directly():
    assert native.tensor_access() == "direct" and tensor_layout.LAYOUT["direct"]


def test_each_tensor_matches_its_like_and_nothing_else(way):
    ones, others = _one_of_each(), _one_of_each()
    for name, example in ones.items():
        built = guard(example)
        for other_name, other in others.items():
            assert built.check((other,), None) is (name == other_name), (way, name, other_name)


def test_values_that_are_no_tensors(way):
    built = guard(torch.zeros(2))
    for value in (None, 3, [0.0, 0.0], torch.Size([2]), torch.float32, torch.zeros(2).numpy()):
        assert not built.check((value,), None)


def test_changes_in_place_are_seen(way):
    tensor = torch.zeros(4, 6)
    built = guard(tensor)
    assert built.check((tensor,), None)
    tensor.resize_(6, 4)
    assert not built.check((tensor,), None)
    tensor.resize_(4, 6)
    assert built.check((tensor,), None)
    tensor.requires_grad_()
    assert not built.check((tensor,), None)
    tensor.requires_grad_(False)
    assert built.check((tensor,), None)
    tensor.data = torch.zeros(4, 6, dtype=torch.float64)
    assert not built.check((tensor,), None)


def test_results_of_autograd(way):
    leaf = torch.zeros(4, requires_grad=True)
    result = leaf * 2
    assert guard(result).check((leaf * 3,), None) and guard(result).check((leaf,), None)
    assert not guard(result).check((result.detach(),), None)
    detached = guard(torch.zeros(4))
    assert detached.check((result.detach(),), None)
    with torch.no_grad():
        assert detached.check((leaf * 2,), None)


def test_the_example_is_not_kept(way):
    example = torch.zeros(3).as_subclass(Subclass)
    gone, before = weakref.ref(example), sys.getrefcount(example)
    built = guard(example)
    assert sys.getrefcount(example) == before
    del example
    assert gone() is None and built.check((torch.zeros(3).as_subclass(Subclass),), None)


def test_free_dimensions(way):
    built = tree(arg(0, (native.C_TENSOR, (torch.zeros(4, 6), 0b01))))
    assert built.check((torch.zeros(9, 6),), None) and not built.check((torch.zeros(4, 7),), None)
    assert not built.check((torch.zeros(4, 6).double(),), None) and not built.check((torch.zeros(6),), None)
    sizes_only = tree(arg(0, (native.C_TENSOR, (torch.zeros(4, 6), 0b10, 0b01))))
    assert sizes_only.check((torch.zeros(4, 9),), None) and not sizes_only.check((torch.zeros(4, 12)[:, ::2],), None)


def test_wrapped_tensors_of_functorch(way):
    plain = guard(torch.zeros(4))
    seen = []

    def fn(x):
        seen.append((plain.check((x,), None), guard(x).check((x,), None)))
        return x * 2

    torch.vmap(fn)(torch.zeros(3, 4))
    torch.func.grad(lambda x: fn(x).sum())(torch.zeros(4))
    torch.func.jvp(fn, (torch.zeros(4),), (torch.zeros(4),))
    assert seen == [(False, True)] * 3


def test_fake_tensors_with_symbols_are_refused(way):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    sizes = ShapeEnv()
    with FakeTensorMode(shape_env=sizes):
        known, fake = torch.empty(4, 6), torch.empty(sizes.create_unbacked_symint(), 6)
    with pytest.raises(TypeError, match="a tensor with symbolic sizes cannot be guarded"):
        guard(fake)
    assert guard(known).check((known,), None) and not guard(known).check((fake,), None)
    with pytest.raises(TypeError):
        native.GuardTree([arg(0, (native.C_TENSOR, 3))])


def test_access_must_be_possible():
    with pytest.raises(ValueError, match="direct"):
        native.force_tensor_access("telepathy")


@pytest.mark.gpu
def test_devices(way):
    cpu, cuda = torch.zeros(4), torch.zeros(4, device="cuda")
    assert guard(cuda).check((torch.ones(4, device="cuda"),), None)
    assert not guard(cuda).check((cpu,), None) and not guard(cpu).check((cuda,), None)
