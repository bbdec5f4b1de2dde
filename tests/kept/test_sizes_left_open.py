"""Captures that leave sizes and numbers open, found by a second process: right for all sizes that they are for, and
captured anew for others."""

from __future__ import annotations

import pytest
import torch
from kept.processes import PROGRAM as PROGRAM_NAME
from kept.processes import Run, loaded, one_folder

import framejit
from framejit import events

from comparison import assert_same

PROGRAM = """
import torch
net = torch.nn.Linear(4, 4)
with torch.no_grad():
    for p in net.parameters():
        p.fill_(0.1)
def target(x):
    with torch.no_grad():
        return torch.relu(net(x) * 2.0 + x.shape[0]).softmax(-1) + x.sum(1, keepdim=True)
args = (torch.ones(5, 4),)
"""
BACKENDS = pytest.mark.parametrize("backend", ["eager", "fuse"])
SIZES = (5, 7, 33, 64, 1000, 1, 0, 7, 8, 9, 33, 12000, 5000, 1, 12000)


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield


def captures(run, *args):
    """How many captures a call of what was optimized leads to; its result is compared with eager's."""
    log = []
    unsubscribe = events.subscribe(log.append)
    try:
        got = run.optimized(*args)
    finally:
        unsubscribe()
    assert_same(got, run.module.target(*args), atol=1e-5, rtol=1e-4)
    return sum(event.kind == "capture_started" for event in log)


@BACKENDS
def test_other_sizes_run_the_same_entry(backend):
    assert Run(PROGRAM, backend=backend, dynamic=True).captured
    second = Run(PROGRAM, backend=backend, dynamic=True)
    assert not second.captured, second.said
    for size in SIZES:
        assert captures(second, torch.rand(size, 4)) == 0 or size < 2 or backend == "fuse"
    assert captures(second, torch.rand(5, 5)[:, :4]) == 1  # other strides
    assert captures(second, torch.rand(5, 4, dtype=torch.float64).float()) == 0


@BACKENDS
def test_the_first_size_of_the_second_process_is_another(backend):
    assert Run(PROGRAM, backend=backend, dynamic=True).captured
    other = PROGRAM.replace("torch.ones(5, 4)", "torch.ones(9, 4)")
    second = Run(other, backend=backend, dynamic=True)
    assert not second.captured, second.said
    third = Run(other.replace("9, 4", "1, 4"), backend=backend, dynamic=True)
    assert third.captured


@BACKENDS
def test_a_size_that_was_learnt_to_change(backend):
    first = Run(PROGRAM, backend=backend)
    assert first.captured
    for size in (6, 8):
        captures(first, torch.rand(size, 4))
    second = Run(PROGRAM.replace("5, 4", "11, 4"), backend=backend)
    assert not second.captured, second.said
    for size in (12, 13, 5):
        assert captures(second, torch.rand(size, 4)) == 0


@BACKENDS
def test_numbers_that_change(backend):
    program = PROGRAM.replace("def target(x):", "def target(x, n=3):").replace("x.shape[0]", "n * x.shape[0] - n // 2")
    first = Run(program, backend=backend)
    for number in (4, 5, 6):
        captures(first, torch.ones(5, 4), number)
    second = Run(program.replace("torch.ones(5, 4),)", "torch.ones(5, 4), 9)"), backend=backend)
    assert not second.captured, second.said
    for number in (4, 5, 6, 100, 0):
        captures(second, torch.ones(5, 4), number)
    captures(second, torch.ones(5, 4), True)
    captures(second, torch.ones(5, 4), 2.5)
    captures(second, torch.ones(5, 4), -4)


@BACKENDS
def test_conditions_on_sizes_hold_in_the_second_process(backend):
    program = PROGRAM.replace("        return ", "        if x.shape[0] > 10 and x.shape[0] % 2 == 0:\n"
                              "            return x.reshape(2, -1).sum(1)\n        return ")
    assert Run(program, backend=backend, dynamic=True).captured
    second = Run(program, backend=backend, dynamic=True)
    assert not second.captured, second.said
    for size in (5, 7, 11, 12, 14, 13, 6, 4):
        captures(second, torch.rand(size, 4))


@BACKENDS
def test_two_inputs_of_one_size(backend):
    program = """
import torch
def target(x, y):
    with torch.no_grad():
        return (x @ y + x.size(0)).relu() * x.size(1)
args = (torch.ones(3, 5), torch.ones(5, 3))
"""
    assert Run(program, backend=backend, dynamic=True).captured
    second = Run(program, backend=backend, dynamic=True)
    assert not second.captured, second.said
    for m, n in ((3, 5), (4, 7), (9, 9), (6, 2)):
        captures(second, torch.rand(m, n), torch.rand(n, m))
    with pytest.raises(RuntimeError):
        second.optimized(torch.rand(3, 4), torch.rand(5, 3))


def test_sizes_that_no_kept_plan_fits_are_compiled_here():
    """The kept variant is for sizes that lead to other loops: the entry goes, and another is made."""
    program = """
import torch
def target(x):
    with torch.no_grad():
        return (x * 2.0).sum(0) + x.mean(0).relu()
args = (torch.ones(4, 3),)
"""
    assert Run(program, backend="fuse", dynamic=True).captured
    second = Run(program, backend="fuse", dynamic=True)
    assert not second.captured, second.said
    seen = [captures(second, torch.rand(size, 70000)) for size in (300, 301, 302, 300, 301, 302, 303) for _ in range(2)]
    assert sum(seen) <= 1
    third = Run(program.replace("4, 3", "300, 70000"), backend="fuse", dynamic=True)
    assert not third.captured or not sum(seen), third.said


@BACKENDS
def test_a_cache_that_grows(backend):
    """As decoding has it: each call leaves a longer tensor behind."""
    program = """
import torch
class Cache: pass
cache = Cache()
cache.keys = torch.ones(2, 4)
def target(x):
    with torch.no_grad():
        cache.keys = torch.cat((cache.keys, x))
        return cache.keys.softmax(0).sum(1)[-1:] + cache.keys.shape[0] * 0.0
args = (torch.ones(1, 4),)
"""
    for _ in range(2):
        module, twin = (loaded(name, program, "/nowhere/kept_program.py") for name in (PROGRAM_NAME, "kept_twin"))
        run = framejit.optimize(module.target, backend=backend)
        log = []
        unsubscribe = events.subscribe(log.append)
        for _ in range(6):
            assert_same(run(*module.args), twin.target(*twin.args), atol=1e-5, rtol=1e-4)
        unsubscribe()
    assert not any(event.kind == "capture_started" for event in log), [
        event.reason for event in log if event.kind == "cache"
    ]


@BACKENDS
def test_whole_numbers_and_comparisons_of_floats_of_sizes(backend):
    program = """
import math
import torch
def target(x, n=40):
    with torch.no_grad():
        k = int((x.shape[0] + 1) * 0.7)
        x = x * x.shape[0] ** -0.5 if x.shape[0] / 2 >= 4 else x
        return x[:k] * 2.0, math.isqrt(n) * x, x.new_zeros(round(n * 0.3)), k
args = (torch.ones(12, 4),)
"""
    assert Run(program, backend=backend, dynamic=True).captured
    second = Run(program, backend=backend, dynamic=True)
    assert not second.captured, second.said
    for size in (13, 14, 15, 30, 100, 7, 5, 3, 2, 1, 0, 12):
        seen = captures(second, torch.rand(size, 4))
        assert seen == 0 or size < 10
    for number in (50, 60, 3, 1, 0, -1, 2.5):
        try:
            second.module.target(torch.rand(12, 4), number)
        except (ValueError, TypeError, RuntimeError) as e:
            with pytest.raises(type(e)):
                second.optimized(torch.rand(12, 4), number)
        else:
            captures(second, torch.rand(12, 4), number)


@BACKENDS
def test_functions_of_numpy_of_numbers(backend):
    program = """
import numpy as np
import torch
def target(x, n=3):
    with torch.no_grad():
        return x * np.cos(np.pi * n / 20) + float(np.sqrt(n + 1.5)), np.exp(-n / 10)
args = (torch.ones(12, 4),)
"""
    assert Run(program, backend=backend, dynamic=True).captured
    second = Run(program, backend=backend, dynamic=True)
    assert not second.captured, second.said
    for number in (4, 5, 7, 19, 3):
        assert captures(second, torch.rand(12, 4), number) <= 1
