"""Snapshots of torch's modes: each mode that shapes a graph makes a difference, in the thread that sets it and in no
other."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from framejit import _native as native
from framejit.backends.fuse.thread_state import default_dtype
from framejit.guards import tensor_layout as layout

from native_support import node, tree


class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def functorch_level():
    level = torch._C._functorch._grad_increment_nesting()
    try:
        yield level
    finally:
        torch._C._functorch._grad_decrement_nesting()


MODES = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "forward_grad": lambda: torch.autograd.forward_ad._set_fwd_grad_enabled(False),
    "default_dtype": lambda: default_dtype(torch.float64),
    "default_device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu"),
    "autocast_float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast_without_cache": lambda: torch.autocast("cpu", cache_enabled=False),
    "functorch": functorch_level,
    "forward_level": torch.autograd.forward_ad.dual_level,
    "torch_function_mode": Mode,
    "dispatch_mode": DispatchMode,
    "no_torch_function": torch._C.DisableTorchFunction,
    "no_subclass_function": torch._C.DisableTorchFunctionSubclass,
}


def test_this_torch_is_read_natively():
    assert layout.LAYOUT["state"] and layout._function_state_known()


@pytest.mark.parametrize("name", MODES)
def test_each_mode_makes_a_difference(name):
    before = native.snapshot_state()
    built = tree(node(native.A_STATE, None, (native.C_STATE, before)))
    assert native.state_matches(before) and built.check((), None) and before == native.snapshot_state()
    with MODES[name]():
        inside = native.snapshot_state()
        assert not native.state_matches(before) and native.state_matches(inside) and not built.check((), None)
        assert inside != before and inside == native.snapshot_state()
    assert native.state_matches(before) and not native.state_matches(inside) and built.check((), None)
    changes = before.diff(inside)
    assert changes and all(expected != actual for _, expected, actual in changes)
    assert before.diff(native.snapshot_state()) == []


def test_all_modes_are_told_apart():
    states = {}
    for name, mode in MODES.items():
        with mode():
            states[name] = native.snapshot_state()
    for name, state in states.items():
        assert [other for other in states if states[other] == state] == [name]
        with MODES[name]():
            # also where the mode is made anew: what runs under a mode of the program is never captured, and a device is
            # a device
            assert [other for other in states if native.state_matches(states[other])] == [name]


def test_differences_have_names():
    before = native.snapshot_state()
    with torch.no_grad():
        assert before.diff(native.snapshot_state()) == [("grad mode", True, False)]
    with default_dtype(torch.float64):
        assert before.diff(native.snapshot_state()) == [("default dtype", torch.float32, torch.float64)]


def test_autocast_dtypes_do_not_matter_while_it_is_off():
    before = native.snapshot_state()
    usual = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        assert native.state_matches(before)
    finally:
        torch.set_autocast_dtype("cpu", usual)


def test_each_thread_has_its_own():
    with torch.no_grad():
        off = native.snapshot_state()
        answers = []

        def other_thread():
            answers.append((native.state_matches(off), torch.is_grad_enabled()))
            with torch.no_grad():
                answers.append((native.state_matches(off), torch.is_grad_enabled()))

        for _ in range(3):
            thread = threading.Thread(target=other_thread)
            thread.start()
            thread.join()
        assert answers == [(False, True), (True, False)] * 3 and native.state_matches(off)


def test_through_python_where_words_cannot_be_read():
    """What happens on a torch whose internals are not recognised."""
    describe, mode_at, device = layout._describe_state, torch._C._get_function_stack_at, layout.DeviceContext
    assert native.setup_state(describe, mode_at, device, 0, 0, False, layout.NAMES) == ("autograd",)
    try:
        for name in MODES:
            test_each_mode_makes_a_difference(name)
        assert native.setup_state(describe, mode_at, device, *layout._autograd_bits(), False, layout.NAMES) == ()
        for name in MODES:
            test_each_mode_makes_a_difference(name)
    finally:
        bits, known = layout._autograd_bits(), layout._function_state_known()
        assert native.setup_state(describe, mode_at, device, *bits, known, layout.NAMES) == ()
    assert native.state_matches(native.snapshot_state())


def test_states_are_made_by_snapshots_only():
    with pytest.raises(TypeError):
        native.State()
    with pytest.raises(TypeError):
        hash(native.snapshot_state())
    assert native.snapshot_state() != 3
    with pytest.raises(TypeError):
        native.snapshot_state().diff(3)
