"""Graphs that write into inputs, found by a second process: what they change, and what is undone where they raise."""

from __future__ import annotations

import pytest
import torch
from kept.processes import PROGRAM as PROGRAM_NAME
from kept.processes import loaded, one_folder

import framejit
from framejit import events
from framejit.capture.replacement import graph_failure

from comparison import assert_same
from support import of_kind, recorded

FILE = "/nowhere/kept_program.py"
TABLE = """
import torch
total = torch.zeros(3)
wide = torch.zeros(1).expand(3)
table = torch.arange(5.0)
def target(i):
    with torch.no_grad():
        total.add_(1.0)
        noise = torch.rand(1)
        try:
            return table[i] + noise
        except IndexError:
            return total + 5.0
state = [total]
calls = [torch.tensor([1, 2]), torch.tensor([1, 7]), torch.tensor([4, 4]), torch.tensor([9, 0]), torch.tensor([0, 0])]
"""
NORM = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).train()
with torch.no_grad():
    net[0].weight.fill_(0.5)
    net[0].bias.fill_(0.5)
def target(x):
    with torch.no_grad():
        return net(x).relu()
state = [net[1].running_mean, net[1].running_var, net[1].num_batches_tracked]
calls = [torch.arange(8.0).reshape(2, 4) * n for n in (1, 2, 3)]
"""
CACHE = """
import torch
cache = torch.zeros(8, 4)
def target(position, x):
    with torch.no_grad():
        cache.index_copy_(0, position, x)
        return cache.softmax(-1).sum(0) @ cache.T
state = [cache]
calls = [(torch.tensor([n]), torch.full((1, 4), n + 1.0)) for n in (0, 1, 5)]
"""
REFUSED = """
import torch
total = torch.zeros(3, dtype=torch.int64)
def target(x):
    with torch.no_grad():
        total.add_(1)
        return torch.linalg.inv(x.to(torch.float16)) if x.shape[0] == 3 else x + total.sum()
state = [total]
calls = [torch.eye(2), torch.eye(3), torch.eye(2)]
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield


def outcomes(function, module):
    torch.manual_seed(0)
    found = []
    for args in module.calls:
        try:
            result = function(*args) if type(args) is tuple else function(args)
        except RuntimeError as e:
            result = str(e)
        versions = [tensor._version for tensor in module.state]
        found.append((result, [tensor.clone() for tensor in module.state], versions, torch.rand(2)))
    return found


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", ["TABLE", "NORM", "CACHE", "REFUSED"])
def test_what_is_written(name, backend):
    program = globals()[name]
    for run in range(3):
        eager = loaded(PROGRAM_NAME, program, FILE)
        expected = outcomes(eager.target, eager)
        module = loaded(PROGRAM_NAME, program, FILE)
        log = []
        unsubscribe = events.subscribe(lambda event, log=log: log.append((event.kind, event.fields.get("reason", ""))))
        try:
            got = outcomes(framejit.optimize(module.target, backend=backend, dynamic=False), module)
        finally:
            unsubscribe()
        kinds = [kind for kind, _ in log]
        assert_same(got, expected, atol=1e-6, rtol=1e-5)
        found_first = "capture_found" in kinds and kinds.index("capture_found") < (kinds + ["capture_started"]).index(
            "capture_started"
        )
        assert found_first == (run > 0 and name in ("NORM", "CACHE")) or name in ("TABLE", "REFUSED"), log


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_what_was_written_before_a_found_graph_raises(backend):
    good = TABLE.partition("calls =")[0] + "calls = [torch.tensor([1, 2])]\n"
    module = loaded(PROGRAM_NAME, good, FILE)
    outcomes(framejit.optimize(module.target, backend=backend), module)
    found = events.events("capture_found")
    eager = loaded(PROGRAM_NAME, TABLE, FILE)
    eager.calls.pop(0)  # the very first call of the second process raises
    expected = outcomes(eager.target, eager)
    module = loaded(PROGRAM_NAME, TABLE, FILE)
    module.calls.pop(0)
    assert_same(outcomes(framejit.optimize(module.target, backend=backend), module), expected, atol=1e-6, rtol=1e-5)
    assert len(events.events("capture_found")) == len(found) + 1


def test_a_graph_whose_trial_ran_out_of_memory_is_not_kept(monkeypatch):
    def rehearse(*args, **options):
        raise torch.OutOfMemoryError("no memory for copies")

    eager = loaded(PROGRAM_NAME, CACHE, FILE)
    expected = outcomes(eager.target, eager)
    for is_short in (True, False, False):
        module = loaded(PROGRAM_NAME, CACHE, FILE)
        with monkeypatch.context() as patched, recorded() as log:
            if is_short:
                patched.setattr(graph_failure, "rehearse", rehearse)
            got = outcomes(framejit.optimize(module.target, dynamic=False), module)
        assert_same(got, expected, atol=1e-6, rtol=1e-5)
        if is_short:
            (told,) = of_kind(log, "capture_kept")
            assert told.reason == "memory ran out while its graph was tried on copies"
    assert of_kind(log, "capture_found")
