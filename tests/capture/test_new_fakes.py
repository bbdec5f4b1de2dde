"""Fakes that are made quickly are what torch's constructor makes."""

import gc
import warnings
import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from framejit.fakes import new_fakes
from framejit.fakes.new_fakes import fake_of

CPU = torch.device("cpu")


def memory(dtype=torch.float32, sizes=(4, 6), strides=(1, 4)):
    return torch.empty_strided(sizes, strides, dtype=dtype, device="meta")


def facts(fake):
    return (
        type(fake), fake.dtype, fake.shape, fake.stride(), fake.storage_offset(), fake.device, fake.requires_grad,
        fake.is_leaf, fake.is_inference(), fake._version, fake.layout, torch._C._dispatch_keys(fake).raw_repr(),
        {name: value for name, value in vars(fake).items()},
    )


@pytest.fixture(params=[CPU, torch.device("cuda"), torch.device("cuda", 1)], ids=str)
def device(request):
    return request.param


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_nothing_tells_them_apart(device, dtype):
    mode = FakeTensorMode()
    for _ in range(3):
        made, expected = fake_of(mode, memory(dtype), device), FakeTensor(mode, memory(dtype), device)
        assert facts(made) == facts(expected)


def test_views_share_memory_and_count_writes():
    mode = FakeTensorMode()
    fake_of(mode, memory(), CPU)
    base = memory()
    whole, part = fake_of(mode, base, CPU), fake_of(mode, base[1:], CPU)
    assert whole.untyped_storage()._cdata == part.untyped_storage()._cdata and part.storage_offset() == 1
    with mode:
        whole.add_(1)
        assert (whole @ whole.t()).shape == (4, 4) and whole.sum().dtype == torch.float32
    assert whole._version == 1


@pytest.mark.parametrize("unsafe", [False, True])
def test_reading_their_address_is_an_error_or_told_of(device, unsafe):
    mode = FakeTensorMode()
    mode._allow_unsafe_data_ptr_access = unsafe
    told = []
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    for made in (fake_of(mode, memory(), device), fake_of(mode, memory(), device), FakeTensor(mode, memory(), device)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                outcome = made.data_ptr()
            except RuntimeError as e:
                outcome = str(e)
        told.append((outcome, [str(one.message) for one in caught]))
    torch.set_warn_always(always)
    assert told[0] == told[1] == told[2]
    assert unsafe or "data pointer" in told[0][0]


def test_what_one_comes_to_know_the_others_do_not():
    mode = FakeTensorMode()
    fake_of(mode, memory(), CPU)
    one, other = fake_of(mode, memory(), CPU), fake_of(mode, memory(), CPU)
    one.nonzero_memo = 3
    one.constant = torch.ones(2)
    assert other.nonzero_memo is None and other.constant is None
    assert fake_of(mode, memory(), CPU).constant is None


def test_modes_do_not_share_and_end():
    first, second = FakeTensorMode(), FakeTensorMode()
    for mode in (first, second):
        assert [fake_of(mode, memory(), CPU).fake_mode for _ in range(2)] == [mode, mode]
    gone = weakref.ref(first)
    del first, mode
    gc.collect()
    assert gone() is None


def test_torch_s_constructor_is_used_where_fakes_have_something_of_their_own(monkeypatch):
    calls = []
    constructor = FakeTensor.__new__

    def noted(cls, *args, **kwargs):
        calls.append(args)
        made = constructor(cls, *args, **kwargs)
        made.own = []
        return made

    monkeypatch.setattr(new_fakes.FakeTensor, "__new__", noted)
    mode = FakeTensorMode()
    one, other = fake_of(mode, memory(), CPU), fake_of(mode, memory(), CPU)
    assert len(calls) == 2 and one.own is not other.own


def test_the_constructor_is_called_once_for_each_device(monkeypatch):
    calls = []
    constructor = FakeTensor.__new__

    def noted(cls, *args, **kwargs):
        calls.append(args)
        return constructor(cls, *args, **kwargs)

    monkeypatch.setattr(new_fakes.FakeTensor, "__new__", noted)
    mode = FakeTensorMode()
    for _ in range(4):
        fake_of(mode, memory(), CPU)
        fake_of(mode, memory(), torch.device("cuda"))
    assert len(calls) == 2
