"""What programs put into torch, or switch in it, between two runs is noticed by kept captures."""

from __future__ import annotations

import functools
import importlib
import os
import pathlib
import sys
import types

import pytest
import torch
import typing_extensions
from kept.processes import Run, one_folder

import framejit
from framejit.backends.fuse.cache.file_content import content_of
from framejit.kept import surroundings
from framejit.kept.not_kept import NotKept
from framejit.kept.torch_functions import torch_functions

ATTENTION = """
import torch
net = torch.nn.MultiheadAttention(8, 2).train()
with torch.no_grad():
    for p in net.parameters():
        p.fill_(0.1)
x = torch.arange(32.0).reshape(4, 1, 8)
def target(x):
    with torch.no_grad():
        return net(x, x, x)[0] + torch.nn.functional.gelu(x)
args = (x,)
"""
PLAIN = """
import torch
def target(x):
    return torch.nn.functional.gelu(x).sum(0)
args = (torch.arange(6.0).reshape(2, 3),)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield


def own(x, *args, **kwargs):
    return x * 3.0


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_what_a_function_of_torch_calls_is_replaced(monkeypatch, backend):
    assert Run(ATTENTION, backend=backend).captured
    assert not Run(ATTENTION, backend=backend).captured
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", own)
    changed = Run(ATTENTION, backend=backend)
    assert changed.captured and any("in the place of torch's" in text for text in changed.said)
    assert Run(ATTENTION, backend=backend).captured  # what one's own function depends on is not known
    monkeypatch.undo()
    assert not Run(ATTENTION, backend=backend).captured


@pytest.mark.parametrize(
    "put",
    [
        own, lambda x: x, functools.partial(torch.relu), functools.wraps(torch.nn.functional.gelu)(lambda x: x),
        functools.lru_cache(own), typing_extensions.deprecated("old")(lambda x: x), types.SimpleNamespace().__repr__,
        Run, type("Own", (), {"__call__": own})(), NotKept("x").with_traceback, marshal_like := __import__("math").sin,
    ],
    ids=range(11),
)
@pytest.mark.parametrize("place", [torch, torch.nn.functional, torch._C._nn, torch.Tensor], ids=lambda p: p.__name__)
def test_an_object_of_the_program_in_the_place_of_a_function_of_torchs(monkeypatch, put, place):
    before = torch_functions()
    monkeypatch.setattr(place, "relu" if place is not torch._C._nn else "gelu", put, raising=False)
    with pytest.raises(NotKept, match="in the place of torch's"):
        torch_functions()
    monkeypatch.undo()
    assert torch_functions() == before


def test_functions_of_torch_that_change_places(monkeypatch):
    before = torch_functions()
    monkeypatch.setattr(torch._C._nn, "gelu", torch._C._nn.silu)
    assert torch_functions() != before
    monkeypatch.undo()
    monkeypatch.setattr(torch.nn.functional, "softmax", torch.nn.functional.softmin)
    assert torch_functions() != before


def test_code_in_a_function_of_torchs(monkeypatch):
    before = torch_functions()
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(softmax, "__code__", torch.nn.functional.softmin.__code__)
    assert torch_functions() != before


def test_an_edited_file_of_torchs_is_noticed(monkeypatch):
    """Another constant in a function that graphs call as it is, as an edit would leave it."""
    assert Run(ATTENTION).captured
    function = torch.nn.functional.multi_head_attention_forward
    code = function.__code__
    monkeypatch.setattr(function, "__code__", code.replace(co_consts=(*code.co_consts, "edited")))
    assert Run(ATTENTION).captured


def test_what_torch_does_later_of_itself_is_no_change():
    before = torch_functions()
    with torch.device("meta"):
        torch.zeros(3)
    torch.set_default_dtype(torch.float64)
    torch.set_default_dtype(torch.float32)
    importlib.import_module("torch._dynamo")  # puts a wrapper around torch.manual_seed

    assert torch_functions() == before


def test_kernels_of_the_programs_are_not_trusted():
    program = PLAIN.replace("torch.nn.functional.gelu(x)", "torch.special.bessel_j1(x)")
    assert Run(program).captured
    for change in (1.0, 2.0):
        library = torch.library.Library("aten", "IMPL")
        library.impl("special_bessel_j1", lambda x, change=change: x + change, "CPU")
        try:
            run = Run(program)
            assert run.captured and any("registered a kernel" in text for text in run.said), run.said
        finally:
            library._destroy()
    assert not Run(program).captured


def test_operations_of_the_programs_are_not_kept():
    program = """
import torch
@torch.library.custom_op("kept_test::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR
@scale.register_fake
def _(x):
    return torch.empty_like(x)
def target(x):
    return scale(x) + 1.0
args = (torch.ones(3),)
"""
    for factor in ("2.0", "3.0"):
        assert Run(program.replace("FACTOR", factor)).captured


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize(
    "switch, back",
    [
        (lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False)),
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
        (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True)),
        (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.set_autocast_enabled("cpu", False)),
        (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
    ],
    ids=["deterministic", "default dtype", "gradients", "autocast", "default device"],
)
def test_switches_of_torch(switch, back, backend):
    program = PLAIN.replace("return ", "return torch.ones(3, dtype=torch.get_default_dtype()).cpu() @ ").replace(
        "(0)", "(0).to(torch.get_default_dtype())"
    ).replace("args = (torch.arange(6.0)", 'args = (torch.arange(6.0, device="cpu")')
    plain = Run(program, backend=backend)
    assert plain.captured
    switch()
    try:
        try:
            program_now = Run(program, backend=backend)
        except NotImplementedError:  # eager has no such operation for the default device
            return
        assert program_now.captured
    finally:
        back()
    assert not Run(program, backend=backend).captured


def test_threads_of_a_plan_are_noticed():
    assert Run(PLAIN, backend="fuse").captured
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        Run(PLAIN, backend="fuse")  # the results are compared with eager's
    finally:
        torch.set_num_threads(threads)
    assert not Run(PLAIN, backend="fuse").captured


@pytest.mark.parametrize("name", ["_sources", "_of_torch"])
def test_files_are_noticed(monkeypatch, tmp_path, name):
    assert Run(PLAIN).captured
    found = getattr(surroundings, name)()
    assert len(found) > 10
    copy = tmp_path / os.path.basename(found[-1])
    copy.write_bytes(pathlib.Path(found[-1]).read_bytes())
    monkeypatch.setattr(surroundings, name, lambda: [*found[:-1], str(copy)])
    assert not Run(PLAIN).captured  # the same content, elsewhere
    copy.write_bytes(copy.read_bytes() + b"#")
    content_of.cache_clear()
    assert Run(PLAIN).captured


def other_flags(**other):
    """The flags of a Python that was started with other options."""
    flags = {name: getattr(sys.flags, name) for name in sys.flags.__match_args__}
    return types.SimpleNamespace(**flags | other, __match_args__=tuple(flags))


@pytest.mark.parametrize(
    "what, value",
    [
        ("version", "3.99.0 (main)"), ("platform", "other"), ("flags", other_flags(optimize=9)),
        ("flags", other_flags(bytes_warning=9)), ("flags", other_flags(dev_mode="other")),
    ],
    ids=["version", "platform", "-O", "-b", "-X dev"],
)
def test_another_python_is_noticed(monkeypatch, what, value):
    assert Run(PLAIN).captured
    fake = types.SimpleNamespace(**{**vars(surroundings.sys), what: value})
    monkeypatch.setattr(surroundings, "sys", fake)
    assert Run(PLAIN).captured


@pytest.mark.parametrize("name", sorted(surroundings._FLAGS_WITHOUT_SAY))
def test_flags_that_change_no_capture_have_no_say(monkeypatch, name):
    assert Run(PLAIN).captured
    fake = types.SimpleNamespace(**{**vars(surroundings.sys), "flags": other_flags(**{name: 9})})
    monkeypatch.setattr(surroundings, "sys", fake)
    assert not Run(PLAIN).captured


@pytest.mark.parametrize("name", ["git_version", "cuda"])
def test_another_build_of_torch_is_noticed(monkeypatch, name):
    assert Run(PLAIN).captured
    monkeypatch.setattr(torch.version, name, "other")
    assert Run(PLAIN).captured


def test_another_machine_is_noticed(monkeypatch):
    assert Run(PLAIN, backend="fuse").captured
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "OTHER")
    assert Run(PLAIN, backend="fuse").captured


def test_passes_that_are_off_are_noticed():
    assert Run(PLAIN, backend="fuse").captured
    with framejit.config.patch(passes_off="decompose"):
        assert Run(PLAIN, backend="fuse").captured
