"""An entry that serves a call it does not fit is found out, and the guard that it lacks is named."""

import pytest
import torch

import framejit
from framejit import _native
from framejit.errors import FramejitWarning

import forked
from shadows import outcomes

scale = 2.0


def scaled(x):
    return x * scale


def doubled(x, flag):
    return x * 2 if flag else x


@pytest.fixture
def forgets(monkeypatch):
    """Makes captures forget guards on sources of a name."""
    from framejit.capture.capture import Capture

    add = Capture.add_guard

    def forget(name: str) -> None:
        def add_guard(self, source, check, payload=None, also=()):
            if source.name() != name or check not in (_native.C_EQUALS, _native.C_ID, _native.C_TYPE):
                add(self, source, check, payload, also)

        monkeypatch.setattr(Capture, "add_guard", add_guard)

    forget.end = monkeypatch.undo
    return forget


def test_a_missing_guard_is_named(forgets, folder):
    forgets("flag")
    fast = framejit.optimize(doubled, verify=True)
    x = torch.ones(2)
    fast(x, True)
    forgets.end()
    with outcomes() as seen, pytest.warns(FramejitWarning, match="missing guard: flag.*False.*FJ402"):
        assert fast(x, False).tolist() == [2.0, 2.0]  # what the entry makes of it
    [event] = seen
    assert (event.outcome, event.code) == ("different", "FJ402")
    assert "flag" in event.guard and f"{__file__}:{doubled.__code__.co_firstlineno + 1}" in event.guard


def test_the_reproduction_has_both_calls(forgets):
    forgets("flag")
    fast = framejit.optimize(doubled, verify=True)
    fast(torch.ones(2), True)
    forgets.end()
    with outcomes() as seen, pytest.warns(FramejitWarning):
        fast(torch.ones(2), False)
    script = open(seen[0].script).read()
    assert "'doubled'" in script
    folder = seen[0].script.rsplit("/", 1)[0]
    assert [torch.load(f"{folder}/call-{i}.pt", weights_only=False)[0][1] for i in (1, 2)] == [True, False]


def test_a_guard_on_a_global(forgets, monkeypatch):
    forgets("scale")
    fast = framejit.optimize(scaled, verify=True)
    fast(torch.ones(2))
    forgets.end()
    monkeypatch.setitem(globals(), "scale", 3.0)
    with outcomes() as seen, pytest.warns(FramejitWarning):
        fast(torch.ones(2))
    assert seen[0].code == "FJ402" and "scale" in seen[0].guard


def test_a_wrong_capture_is_told_from_a_missing_guard(monkeypatch):
    """The side effect is left out: the graphs are right, and a new capture does it again."""
    from framejit.capture.side_effects import SideEffects

    monkeypatch.setattr(SideEffects, "replay", lambda self, cg: None)

    def f(x, items):
        items.append(1)
        return x + 1

    items = []
    with (
        outcomes() as seen,
        pytest.warns(FramejitWarning, match="argument items: length 1 was expected, got 0.*the capture is at fault"),
    ):
        framejit.optimize(f, verify=True)(torch.ones(2), items)
    assert seen[0].code == "FJ403"


def test_a_graph_that_raises_where_its_operations_do_not():
    def refuses(gm, inputs):
        def run(*args):
            raise ZeroDivisionError("in the kernel")

        return run

    with (
        outcomes() as seen,
        pytest.warns(FramejitWarning, match="raised ZeroDivisionError: in the kernel, and its operations don't raise"),
    ):
        assert framejit.optimize(lambda x: x + 1, backend=refuses, verify=True)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert seen[0].outcome == "same"


PROGRAM = """
import sys
import torch
import framejit
from framejit.capture.capture import Capture

def f(x, flag):
    return x * 2 if flag else x

if __name__ == "__main__":
    add = Capture.add_guard
    Capture.add_guard = lambda self, source, *rest: None if source.name() == "flag" else add(self, source, *rest)
    fast = framejit.optimize(f, verify=True)
    fast(torch.ones(2), True)
    Capture.add_guard = add
    fast(torch.ones(2), False)
"""


def test_the_reproduction_of_a_script_runs(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    first = forked.run(["program.py"], cwd=tmp_path, timeout=120)
    assert "missing guard: flag" in first.stderr
    again = forked.run([tmp_path / "framejit-verify" / "f-1" / "reproduce.py"], timeout=120)
    # only the program had taken the guard away
    assert again.stdout == "call-1.pt no difference\ncall-2.pt no difference\n", again.stderr
