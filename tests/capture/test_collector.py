"""Capturing leaves the garbage collector as it was, but that what a process has by its first captures is old to it."""
import gc
import subprocess
import sys
import time

import pytest
import torch

import framejit
from framejit.environment import collector
from framejit.environment.collector import rests_for_others


def wait_for_others() -> None:
    """Until no thread that an earlier test has left has the collector rest."""
    end = time.monotonic() + 30
    while rests_for_others() and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_and_rests_only_outside_the_backend(enabled):
    seen = []

    def backend(module, inputs):
        seen.append(gc.isenabled())
        return module.forward

    wait_for_others()
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        framejit.optimize(lambda x: x + 1, backend=backend)(torch.ones(2))
        assert seen == [enabled] and gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_it_goes_on_after_a_failing_backend():
    def backend(module, inputs):
        raise RuntimeError("no")

    with pytest.warns():
        framejit.optimize(lambda x: x + 1, backend=backend)(torch.ones(2))
    wait_for_others()
    assert gc.isenabled()


FRESH = """
import gc, sys
import framejit, torch
from framejit.environment.collector import FIRST, resting

frozen = sys.argv[1] == "frozen"
if frozen:
    gc.freeze()
before = gc.get_freeze_count()
young = [[] for _ in range(100)]
with resting():
    pass
old = {id(each) for each in gc.get_objects(generation=2)}
print(all(id(each) in old for each in young), gc.get_freeze_count() == (before if frozen else 0), gc.isenabled())
for _ in range(FIRST):
    with resting():
        pass
with resting():
    made = [[] for _ in range(100)]
old = {id(each) for each in gc.get_objects(generation=2)}
print(any(id(each) in old for each in made))
"""


@pytest.mark.process
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="collections go by increments")
@pytest.mark.parametrize("how", ["plain", "frozen"])
def test_what_the_first_captures_leave_is_taken_for_old(tmp_path, how):
    program = tmp_path / "first.py"
    program.write_text(FRESH)
    done = subprocess.run([sys.executable, program, how], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{how == 'plain'} True True", "False"]


def test_it_goes_on_behind_the_next_rest_where_an_exception_kept_it_from(monkeypatch):
    wait_for_others()
    with monkeypatch.context() as patch:
        patch.setattr(collector.gc, "enable", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError), collector.resting():
            pass
    assert not gc.isenabled()
    with collector.resting():
        pass
    assert gc.isenabled()
    gc.disable()
    try:
        with collector.resting():
            pass
        assert not gc.isenabled()  # as the program wants it
    finally:
        gc.enable()
