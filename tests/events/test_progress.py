"""Long compiles show one line on a terminal, and nothing in a pipe."""
import io
import os
import pty
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from framejit import progress

import forked

PROGRAM = """
import sys, time, torch, framejit
def slow(gm, inputs):
    time.sleep({seconds})
    return gm.forward
def f(x):
    return x + 1
framejit.optimize(f, backend=slow)(torch.ones(2))
sys.stderr.write("done\\n")
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    monkeypatch.setattr(progress, "AFTER", 0.1)
    monkeypatch.setattr(progress, "EVERY", 0.05)
    return stream


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_short_work_shows_nothing(terminal):
    with progress.doing(lambda: "compiling"):
        pass
    assert terminal.getvalue() == ""


def test_long_work_shows_a_line_and_clears_it(terminal):
    with progress.doing(lambda: "compiling f"), progress.doing(lambda: "tuning k"):
        wait_for(lambda: "[framejit] compiling f, tuning k: 0 s" in terminal.getvalue())
    assert "\n" not in terminal.getvalue() and terminal.getvalue().endswith("\r\x1b[K")
    wait_for(lambda: all(thread.name != "framejit progress" for thread in threading.enumerate()))


def test_an_exception_ends_it(terminal):
    with pytest.raises(ValueError), progress.doing(lambda: "compiling"):
        wait_for(terminal.getvalue)
        raise ValueError
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_no_line_is_longer_than_the_terminal(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with progress.doing(lambda: "compiling " + "x" * 100):
        wait_for(terminal.getvalue)
    assert max(map(len, terminal.getvalue().split("\r\x1b[K"))) == 39


@pytest.mark.parametrize("stream", [None, io.StringIO(), object()])
def test_what_is_no_terminal_gets_nothing(monkeypatch, stream):
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    monkeypatch.setattr(progress, "AFTER", 0.01)
    with progress.doing(lambda: "compiling"):
        time.sleep(0.1)
        assert all(thread.name != "framejit progress" for thread in threading.enumerate())


def test_a_pipe_gets_nothing():
    done = forked.run(["-c", PROGRAM.format(seconds=1.6)], timeout=120)
    assert (done.stdout, done.stderr) == ("", "done\n")


def test_a_terminal_gets_a_line():
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(seconds=1.6)], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # how a terminal of Linux says that nobody writes to it any more
        pass
    assert process.wait(60) == 0
    assert b"[framejit] compiling f (<string>:6): 1 s" in shown
    assert shown.endswith(b"\r\x1b[Kdone\r\n")
