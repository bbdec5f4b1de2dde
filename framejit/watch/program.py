"""The script's side of a view: what is told of it while it runs, and when it has its terminal back."""
from __future__ import annotations

import _thread
import atexit
import contextlib
import marshal
import os
import signal
import socket
import sys
import time
import traceback
from importlib.util import find_spec
from typing import Final

from framejit import _native
from framejit.environment.leaving import before_leaving
from framejit.errors import MissingPackage
from framejit.progress import progress
from framejit.watch.channel import ENDS, EVERY_S, READS, send
from framejit.watch.output import mark, new_sign
from framejit.watch.reading import before_reading
from framejit.watch.terminal import Terminal, copy_of
from framejit.watch.told import Telling

MOST_SHARE: Final = 0.02
"""The share of one processor that gathering what is told may take: where there are thousands of functions, it is told
less often."""
PATIENCE_S: Final = 5.0
"""The script waits so long for its terminal, should the view not answer."""


def check_installed() -> None:
    """Raises MissingPackage where there is nothing to draw a view with."""
    if find_spec("rich") is None:
        raise MissingPackage("--watch draws with rich, which is not installed: pip install rich")


class Watched:
    """This process is shown on a terminal from now on, by another one, until it ends.

    Its outputs on the terminal go to a copy of the terminal, which the other process reads: all of it in order,
    whoever writes. Standard input stays as it is. A thread tells what the compiler does. The thread holds no lock
    while the process forks, and it is none of `threading`'s, which the script could count.
    """

    def __init__(self, terminal: Terminal, title: str) -> None:
        self._process, self._terminal = os.getpid(), terminal
        self._sign = new_sign()
        self._lock, self._sending, self._holder = _thread.allocate_lock(), _thread.allocate_lock(), 0
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(PATIENCE_S)
        self._is_shown = True
        sys.stdout.flush()
        sys.stderr.flush()
        master, self._slave = copy_of(terminal.file)
        _start_viewer(terminal, master, theirs, self._sign, title)
        os.close(master)
        theirs.close()
        for number in terminal.outputs:
            os.dup2(self._slave, number)
        self._telling, progress.is_shown_elsewhere = Telling(), True
        self._last_told = b""
        os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_fork)
        atexit.register(self.end)
        before_leaving(self.end)
        if terminal.has_keyboard:
            before_reading(self._reads)
        _thread.start_new_thread(self._tell_always, ())

    # ---- telling --------------------------------------------------------------------------------------

    def _tell_always(self) -> None:
        while self._is_shown:
            time.sleep(max(EVERY_S, self._tell() / MOST_SHARE))

    def _tell(self) -> float:
        """Tell what has changed. Returns how long it took to gather that, in seconds."""
        start = time.perf_counter()
        with self._lock:
            if not self._is_shown or os.getpid() != self._process:
                return 0.0
            try:
                told = marshal.dumps(self._telling.now())
            except RuntimeError:  # another thread has changed what was looked through; it will do so no longer
                return 0.0
        took = time.perf_counter() - start
        if told != self._last_told and self._sending.acquire(timeout=PATIENCE_S):
            try:
                send(self._channel, told)
                self._last_told = told
            except OSError:  # the view was left
                self._tell_no_more()
            finally:
                self._sending.release()
        return took

    def tell_last(self) -> None:
        """Tell once more, while what was compiled is still there, and then no more."""
        if os.getpid() == self._process:
            self._tell()
            self._tell_no_more()

    def _tell_no_more(self) -> None:
        with self._lock:
            if self._is_shown:
                self._is_shown = progress.is_shown_elsewhere = False
                self._telling.stop()

    # ---- forks ----------------------------------------------------------------------------------------

    def _before_fork(self) -> None:
        # not for ever: what this thread has locked may be what the other one waits for
        if self._lock.acquire(timeout=1.0):
            self._holder = _thread.get_ident()

    def _after_fork(self) -> None:
        if self._holder == _thread.get_ident():
            self._holder = 0
            self._lock.release()

    def _in_fork(self) -> None:
        """Nothing is told of forks, but what they write is shown."""
        self._lock = _thread.allocate_lock()
        self._is_shown = False
        with contextlib.suppress(OSError):  # the script has closed it
            self._channel.close()
        with contextlib.suppress(OSError):  # likewise, or the view had ended
            os.close(self._slave)

    # ---- the terminal ---------------------------------------------------------------------------------

    def _reads(self) -> None:
        """The script is about to read from the terminal: the view goes, and its keys."""
        if self._is_shown and os.getpid() == self._process:
            self._ask(READS)
            self._tell_no_more()

    def end(self) -> None:
        """Give the terminal back, when all that was written is on it. What is written from now on goes to it as if
        there had been no view. Forks do nothing here."""
        if os.getpid() != self._process or self._slave < 0:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or replaced by something else
                stream.flush()
        self.tell_last()
        self._ask(ENDS)
        for number in self._terminal.outputs:
            if _is_same_file(number, self._slave):
                os.dup2(self._terminal.file, number)
        self._channel.close()
        os.close(self._slave)
        self._slave = -1

    def _ask(self, meaning: bytes) -> None:
        """Say something behind all that was written, and wait until it is done."""
        with contextlib.suppress(OSError):  # the view has gone with its terminal, or was stopped
            os.write(self._slave, mark(self._sign, meaning))
            self._channel.recv(1)


def _is_same_file(number: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(number, other)
    except OSError:  # the script has closed it
        return False


def _start_viewer(terminal: Terminal, master: int, channel: socket.socket, sign: bytes, title: str) -> None:
    """A process that is nobody's child whom the script could wait for."""
    between = _native.fork()
    if between:
        with contextlib.suppress(ChildProcessError):  # the program has asked not to be told of children
            os.waitpid(between, 0)
        return
    try:
        if _native.fork_again() == 0:
            # until it handles them itself: they are for the script
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            try:
                from framejit.watch.viewer import Viewer  # with rich, which the script's process does without

                Viewer(terminal, master, channel, sign, title).run()
            except Exception:  # the script's output must come all the same
                traceback.print_exc()
                channel.close()
                _relay(master)
    finally:
        os._exit(0)


def _relay(master: int) -> None:
    with contextlib.suppress(OSError):  # nobody writes any more, or the terminal is gone
        while data := os.read(master, 2**16):
            os.write(1, data)
