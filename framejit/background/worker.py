"""A copy of the process that works for it and is seen by nothing of the program.

It is a fork, so that it has the objects, the torch state and the memory of the very moment at which it was made, and
what it does to them nobody else sees.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import signal
import struct
import threading
from collections.abc import Callable
from typing import Final

from framejit import _native
from framejit.environment.intra_op_threads import go_without_threads
from framejit.environment.open_files import keep_only
from framejit.environment.signal_handlers import go_without_handlers

NICENESS: Final = 10
"""What a worker is nicer by than the program, which has its processors first."""
_GRACE_S: Final = 5
"""Code in C that does not return is ended by the system so many seconds after it should have been."""
_PID: Final = struct.Struct("q")
_SAID, _RAISED, _TOOK_TOO_LONG = b"s", b"r", b"t"


class WorkerEnded(Exception):
    """A worker has ended without saying anything; the text says how."""


class Worker:
    """A process that calls `work` and says what that returns; it has so many seconds (0: all there are).

    Its parent is not this process: the program waits for none of its own children by mistake, and no signal tells of
    its end. It has a session of its own, which the terminal's signals do not reach, and none of the program's files:
    what is at the other end of a pipe sees it closed when the program closes it. It ends with the program. Raises
    OSError where there can be no other process.
    """

    def __init__(self, work: Callable[[], bytes], seconds: int) -> None:
        self._seconds, self._heard = seconds, b""
        self._pipe, writing = os.pipe()
        program = os.getpid()
        try:
            between = _native.fork()
            if between == 0:
                try:
                    if _native.fork_again() == 0:
                        os.write(writing, _PID.pack(os.getpid()))
                        _work(work, program, fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, 3), seconds)
                finally:
                    os._exit(0)
            os.close(writing)
            writing = -1
            with contextlib.suppress(ChildProcessError):  # the program has asked not to be told of children
                os.waitpid(between, 0)
            told = os.read(self._pipe, _PID.size)
            if not told:
                raise OSError("the process can't be forked")
            self._pid, = _PID.unpack(told)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            if writing >= 0:
                os.close(writing)
        self._handle = _handle(self._pid)
        os.set_blocking(self._pipe, False)

    def said(self) -> bytes | None:
        """What the worker has to say; None while it works. Raises WorkerEnded."""
        while True:
            try:
                read = os.read(self._pipe, 2**16)
            except BlockingIOError:
                return None
            if not read:
                break
            self._heard += read
        if self._heard[:1] == _SAID:
            return self._heard[1:]
        if self._heard[:1] == _RAISED:
            raise WorkerEnded(f"its process raised {self._heard[1:].decode()}")
        if self._heard[:1] == _TOOK_TOO_LONG:
            raise WorkerEnded(f"it took longer than {self._seconds} seconds (config.background_seconds)")
        raise WorkerEnded("its process was killed")

    def end(self) -> None:
        """End the process, whatever it does."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            if self._handle is None:
                os.kill(self._pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Listen no longer, in a fork of this process or when all was said."""
        os.close(self._pipe)
        if self._handle is not None:
            os.close(self._handle)


def _handle(pid: int) -> int | None:
    """A file that stands for a process, whose number may be another's when it has ended; None where the kernel has no
    such files."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


# ---- in the worker -----------------------------------------------------------------------------------------


def _work(work: Callable[[], bytes], program: int, pipe: int, seconds: int) -> None:
    try:
        _detach(program, pipe, seconds)
        said = _SAID + work()
    except BaseException as e:
        said = _RAISED + f"{type(e).__name__}: {e}".encode()
    while said:
        said = said[os.write(pipe, said) :]


def _detach(program: int, pipe: int, seconds: int) -> None:
    os.setsid()
    _without_files(pipe)
    go_without_handlers()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.alarm(seconds and seconds + _GRACE_S)
    os.nice(NICENESS)
    gc.disable()  # finalizers are the program's
    go_without_threads()
    threading.Thread(target=_end_in_time, args=(_handle(program), pipe, seconds), daemon=True).start()


def _without_files(pipe: int) -> None:
    """Close all files but one; what is written to the standard ones goes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    keep_only(pipe)


def _end_in_time(program: int | None, pipe: int, seconds: int) -> None:
    """End this process when the program ends, or when its time is over."""
    waiting = select.poll()
    if program is not None:
        waiting.register(program, select.POLLIN)
    if not waiting.poll(seconds * 1000 if seconds else None):
        os.write(pipe, _TOOK_TOO_LONG)
    os._exit(0)
