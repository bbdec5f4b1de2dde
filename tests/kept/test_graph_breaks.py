"""Captures that end at graph breaks: a second process finds each part, goes on where the first did, and notices what
has changed in any of them."""

from __future__ import annotations

import pytest
import torch
from kept.processes import LIBRARY, PROGRAM, Run, loaded, one_folder

import framejit
from framejit import events

from comparison import assert_same

HEAD = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 4)).eval()
seen = []
def data(x):
    print(end="")
    return x.tolist()
"""
CALL = HEAD + """
def target(x):
    with torch.no_grad():
        y = net(x)
        seen.append(data(y.sum()))
        return net(y * 2.0).softmax(-1), len(seen) > 0
args = (torch.ones(3, 4),)
"""
INLINED = HEAD + """
def helper(y, scale=2.0):
    z = y * scale
    seen.append(data(z.sum()))
    return z.cos()
def target(x):
    with torch.no_grad():
        y = helper(net(x)) + 1.0
        return helper(y, scale=3.0) @ net[0].weight
args = (torch.ones(3, 4),)
"""
LOOP = HEAD + """
def target(x):
    with torch.no_grad():
        for i in range(4):
            x = net(x) + i
            if data(x.sum()) > 1000.0:
                break
            x = x / (x.norm() + 1.0)
        else:
            x = x - 1.0
        return x
args = (torch.ones(3, 4),)
"""
BLOCKS = HEAD + """
import contextlib
class Noted(contextlib.AbstractContextManager):
    def __exit__(self, *exc):
        seen.append(exc[0])
        return exc[0] is ValueError
def raises(x):
    if data(x.sum()) < 1e9:
        raise ValueError("small")
    return x
def target(x):
    with torch.no_grad():
        y = net(x)
        with Noted():
            y = y + 1.0
            y = raises(y) * 7.0
        try:
            y = raises(y * 2.0)
        except ValueError as e:
            y = y * len(str(e))
        finally:
            y = y.sin()
        return y
args = (torch.ones(3, 4),)
"""
CELLS = HEAD + """
def make(factor):
    count = 0
    def target(x):
        nonlocal count
        with torch.no_grad():
            y = net(x) * factor
            count += 1
            seen.append(data(y.sum()))
            total = lambda: y.sum() * factor
            return total() + 1.0, count > 0
    return target
target = make(3.0)
args = (torch.ones(3, 4),)
"""
CLASSES = HEAD + """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = net
        self.calls = []
    def forward(self, x, *, scale=2.0):
        y = self.inner(x)
        self.note(y)
        return super().extra_repr() + "!", self.inner(y) * scale
    def note(self, y):
        self.calls.append(data(y.mean()))
model = Model().eval()
def target(x):
    with torch.no_grad():
        return model(x, scale=3.0)
args = (torch.ones(3, 4),)
"""
NO_GRAPH_BEFORE = HEAD + """
def target(x):
    seen.append(str(x.tolist()))
    with torch.no_grad():
        y = net(x)
    seen.append(str(y.shape))
    return y
args = (torch.ones(3, 4),)
"""
PROGRAMS = {
    "call": CALL, "inlined": INLINED, "loop": LOOP, "blocks": BLOCKS, "cells": CELLS, "classes": CLASSES,
    "no graph before": NO_GRAPH_BEFORE,
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_process_captures_nothing(name, backend):
    first = Run(PROGRAMS[name], backend=backend)
    assert first.captured and any(event.kind == "graph_break" for event in first.events)
    second = Run(PROGRAMS[name], backend=backend)
    assert not second.captured, second.said
    assert_same(list(second.module.seen), list(first.module.seen), atol=1e-5, rtol=1e-4)
    third = Run(PROGRAMS[name], backend=backend)
    assert not third.captured, third.said


def told(run):
    (record,) = [record for record in framejit.status().functions if record.function == "target"]
    parts = {"seconds", "breaks", "hits", "graph_seconds", "break_seconds"}
    said = {name: value for name, value in vars(record).items() if name not in parts}
    breaks = sorted((b.file, b.line, b.column, b.reason, b.code, b.hint, b.count) for b in record.breaks.values())
    return said, breaks


@pytest.mark.parametrize("name", ["inlined", "loop", "classes"])
def test_status_says_the_same(name):
    assert Run(PROGRAMS[name], backend="fuse").captured
    before = told(None)
    framejit.reset()
    assert not Run(PROGRAMS[name], backend="fuse").captured
    assert told(None) == before


CHANGES = {
    "a line before the break": (INLINED, "return helper(y, scale=3.0)", "return helper(y, scale=4.0)"),
    "a line behind the break": (INLINED, "return z.cos()", "return z.sin()"),
    "the caller behind the break": (INLINED, "helper(net(x)) + 1.0", "helper(net(x)) + 2.0"),
    "a default of the function that breaks": (INLINED, "scale=2.0)", "scale=2.5)"),
    "a function called behind the break": (CELLS, "y.sum() * factor", "y.sum() - factor"),
    "a cell": (CELLS, "make(3.0)", "make(5.0)"),
    "a method": (CLASSES, "self.inner(y) * scale", "self.inner(y) / scale"),
    "the module behind the break": (CALL, "torch.nn.GELU()", "torch.nn.ReLU()"),
    "what a handler does": (BLOCKS, "y * len(str(e))", "y + len(str(e))"),
    "what a manager does": (BLOCKS, "return exc[0] is ValueError", "return exc[0] is not None"),
    "the loop's end": (LOOP, "x = x - 1.0", "x = x - 3.0"),
    "the loop's body behind the break": (LOOP, "(x.norm() + 1.0)", "(x.norm() + 2.0)"),
    "what runs between": (CLASSES, "data(y.mean())", "data(y.max())"),
}


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change, backend):
    program, before, after = CHANGES[change]
    assert before in program
    assert Run(program, backend=backend).captured
    changed = Run(program.replace(before, after), backend=backend)  # which compares with plain Python
    plain = loaded(PROGRAM, program.replace(before, after), "/nowhere/kept_program.py")
    assert_same(changed.result, plain.target(*plain.args), atol=1e-5, rtol=1e-4)
    assert not Run(program, backend=backend).captured  # what was kept before is there still


def calls_of(source, inputs, backend, **options):
    """What calls of a program's `target` give, compared with plain Python; which events of captures there were."""
    plain, module = (loaded(PROGRAM, source, "/nowhere/kept_program.py") for _ in range(2))
    log = []
    unsubscribe = events.subscribe(lambda event: log.append(event.kind))
    try:
        optimized = framejit.optimize(module.target, backend=backend, **options)
        for x in inputs:
            expected = got = None
            try:
                expected = plain.target(x)
            except Exception as e:
                expected = type(e), str(e)
            try:
                got = optimized(x)
            except Exception as e:
                got = type(e), str(e)
            assert_same(got, expected, atol=1e-5, rtol=1e-4)
            assert_same(list(module.seen), list(plain.seen), atol=1e-5, rtol=1e-4)
    finally:
        unsubscribe()
    return log.count("capture_started"), log.count("capture_found")


SIDES = HEAD + """
def target(x):
    with torch.no_grad():
        y = net(x)
        if data(y.sum()) > 0.0:
            seen.append("positive")
            y = y.cos()
        else:
            seen.append("negative")
            y = y.sin()
        return y + 1.0
"""


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_side_that_no_process_has_taken_yet(backend):
    x = torch.ones(3, 4)
    assert calls_of(SIDES, [x], backend)[0] >= 2
    assert calls_of(SIDES, [x], backend)[0] == 0
    captured, found = calls_of(SIDES, [x * -40.0, x * -40.0, x], backend)
    assert captured >= 1 and found >= 2
    assert calls_of(SIDES, [x * -40.0, x], backend)[0] == 0


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_other_sizes_find_the_entries_for_them(backend):
    inputs = [torch.ones(3, 4), torch.ones(5, 4), torch.ones(7, 4)]
    assert calls_of(CALL.partition("args =")[0], inputs, backend)[0] > 2
    assert calls_of(CALL.partition("args =")[0], inputs, backend)[0] == 0


RAISES = HEAD + """
table = torch.arange(4.0)
def target(i):
    y = table[i] * 2.0
    seen.append(data(y.sum()))
    try:
        return y, table[i + 2] + 1.0
    except IndexError as e:
        seen.append("raised")
        return y - 1.0
"""


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_part_whose_graph_raises(backend):
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 3])
    assert calls_of(RAISES, [good], backend)[0] >= 2
    captured, found = calls_of(RAISES, [bad, good, bad, bad, torch.tensor([9])], backend)
    assert found >= 2
    calls_of(RAISES, [bad, good], backend)


def test_what_the_library_between_does_is_noticed():
    program = HEAD + f"""
import {LIBRARY}
def target(x):
    with torch.no_grad():
        y = net(x)
        seen.append(data(y.sum()))
        return {LIBRARY}.last(y)
args = (torch.ones(3, 4),)
"""
    library = "def last(y):\n    return y * 2.0\n"
    assert Run(program, library).captured
    assert not Run(program, library).captured
    assert Run(program, library.replace("2.0", "3.0")).captured


OBJECTS = HEAD + """
import enum, functools, numpy
class Mode(str, enum.Enum):
    FAST = "fast"
    SLOW = "slow"
@functools.lru_cache(maxsize=None)
def power(n):
    return 2.0 ** n
class Config:
    mode, kind = Mode.FAST, numpy.dtype("float32")
    power = power
config = Config()
def target(x):
    with torch.no_grad():
        y = net(x)
        if config.mode == Mode.FAST and config.kind == numpy.dtype("float32"):
            y = y + 1.0
        y = numpy.multiply(numpy.concatenate([y.numpy(), y.numpy()]), numpy.float32(2.0))
        seen.append(data(torch.from_numpy(y)))
        return torch.from_numpy(y).cos(), config.power is power
args = (torch.ones(3, 4),)
"""


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_members_of_enums_and_objects_of_numpy(backend):
    assert Run(OBJECTS, backend=backend).captured
    again = Run(OBJECTS, backend=backend)
    assert not again.captured, again.said
    for before, after in (
        ("Mode.FAST, numpy", "Mode.SLOW, numpy"), ('SLOW = "slow"', 'SLOW = "fast"'), ("numpy.multiply", "numpy.add"),
        ('kind = Mode.FAST, numpy.dtype("float32")', 'kind = Mode.FAST, numpy.dtype("float64")'),
        ("2.0 ** n", "3.0 ** n"), ("maxsize=None", "maxsize=4"),
    ):
        assert before in OBJECTS
        changed = Run(OBJECTS.replace(before, after), backend=backend)  # which compares with plain Python
        assert changed.captured or "** n" in before or "maxsize" in before
    assert not Run(OBJECTS, backend=backend).captured
