"""Kernels compiled by other processes: Triton's front is Python, and threads of one process wait for each other there.

A server (`compile_server.py`) is started as soon as kernels are expected. It imports Triton while the program is still
captured, and forks a process for each core. Nothing depends on it: where it can't be started, ends, or does not answer,
threads of this process compile instead.
"""
from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, Final

from framejit.backends.fuse.triton.passes import Job, MachineCode, outcome
from framejit.events import emit

LEAST_CORES: Final = 4
"""With fewer, a server takes from the program what it gives."""
MOST_PROCESSES: Final = 32
FEW_KERNELS: Final = 4
"""Fewer are compiled sooner by threads than a server is there."""
IDLE_SECONDS: Final = 60.0
"""So long a server waits for the next kernel before it ends."""
SECONDS_TO_START: Final = 30.0
SECONDS_A_KERNEL: Final = 300.0
"""Without any outcome for so long, it is taken not to answer."""

_lock = threading.Lock()
_server: _Server | None = None
_unusable = False
"""Whether a server could not be started, or failed: none is tried again."""


class _Server:
    """The process, and the connection to it. Raises OSError if it can't be started."""

    def __init__(self) -> None:
        self.connection, its = Pipe()
        self.has_answered = False
        with contextlib.closing(its):
            script = Path(__file__).with_name("compile_server.py")
            # -I and -S: neither the environment nor `site` has a say in what a process imports that is told where to
            # look. A session of its own: an interrupt from a terminal is for the program.
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(its.fileno())], pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )
        self.connection.send((sys.path, min(_cores(), MOST_PROCESSES), IDLE_SECONDS))

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def is_ready(self) -> bool:
        """Whether it could begin at once."""
        return not self.has_ended and (self.has_answered or self.connection.poll())

    def outcomes(self, jobs: Sequence[Job]) -> list[MachineCode | Exception]:
        """What became of each job: where Triton raises there, it does so here once more. Raises EOFError or OSError if
        the server has ended, TimeoutError if it does not answer."""
        if not self.has_answered:
            self._received(SECONDS_TO_START)
            self.has_answered = True
        for numbered in enumerate(jobs):
            self.connection.send(numbered)
        found: dict[int, MachineCode | None] = {}
        while len(found) < len(jobs):
            number, made = self._received(SECONDS_A_KERNEL)
            found[number] = made
        return [made if (made := found[number]) is not None else outcome(job) for number, job in enumerate(jobs)]

    def _received(self, seconds: float) -> Any:
        if not self.connection.poll(seconds):
            raise TimeoutError(f"nothing was heard for {seconds:.0f} seconds")
        return self.connection.recv()

    def end(self) -> None:
        self.connection.close()
        self.process.kill()  # and with it its forks
        self.process.wait()

    def forget(self) -> None:
        """In a fork of this process: the server is the parent's."""
        self.connection.close()
        self.process.returncode = 0  # nobody's to wait for


def begin() -> bool:
    """Start a server, unless there is one. Whether there is, as far as is known."""
    if not _is_possible():
        return False
    with _lock:
        return _running() is not None


def outcomes(jobs: Sequence[Job]) -> list[MachineCode | Exception] | None:
    """What became of each job; None if this process is to compile by itself."""
    global _unusable
    if not jobs or not _is_possible():
        return None
    with _lock:
        if len(jobs) < FEW_KERNELS and (_server is None or not _server.is_ready):
            return None
        server = _running()
        if server is None:
            return None
        try:
            return server.outcomes(jobs)
        except (EOFError, OSError) as error:  # TimeoutError is one of the latter
            _unusable = not isinstance(error, EOFError) or not server.has_answered
            why = f"{type(error).__name__}: {error}"
            emit("kernel_failed", kernel=jobs[0].name, error=why, instead="threads in the place of other processes")
            _end()
            return None
        except BaseException:  # an interrupt: answers would come that nobody waits for
            _end()
            raise


def _is_possible() -> bool:
    return not _unusable and sys.platform == "linux" and bool(sys.executable) and _cores() >= LEAST_CORES


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _running() -> _Server | None:
    """The server, started if there is none; None if that fails. One that had nothing to do has ended."""
    global _server, _unusable
    if _server is not None and _server.has_ended:
        _end()
    if _server is None:
        try:
            _server = _Server()
        except OSError:
            _unusable = True
    return _server


def _end() -> None:
    global _server
    if _server is not None:
        _server.end()
        _server = None


def _in_fork() -> None:
    global _server, _lock
    _lock = threading.Lock()
    if _server is not None:
        _server.forget()
        _server = None


atexit.register(_end)
os.register_at_fork(after_in_child=_in_fork)
