"""The process that has the terminal while a view is shown: relays what the script writes, draws, takes keys."""
from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import traceback
from time import monotonic
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from framejit.environment.open_files import keep_only
from framejit.watch.channel import ENDS, EVERY_S, Heard
from framejit.watch.keys import LEAVE, keys
from framejit.watch.output import Marks, Output
from framejit.watch.terminal import Keyboard, Terminal, copy_size, in_foreground
from framejit.watch.view import View

_AT_ONCE: Final = 2**16
_LAST_MS: Final = 100
"""Output of a script that was killed comes for so long after the last."""
_GONE: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL


class _TerminalGone(Exception):
    """Nothing can be shown any more, and nobody is there to see it."""


class Viewer:
    """Shows a view until the script ends, is about to read from the terminal or the person leaves it; then what the
    script has written follows, and from then on all that it writes comes at once.

    Ends when nobody can write to the copy of the terminal any more, or when the terminal is gone.
    """

    def __init__(self, terminal: Terminal, master: int, channel: socket.socket, sign: bytes, title: str) -> None:
        gc.freeze()  # what the script's process has is not looked through, and so not copied
        self._master, self._channel = master, channel
        self._wake, woken = os.pipe()
        os.set_blocking(woken, False)
        keep_only(master, channel.fileno(), self._wake, woken)
        self._handle_signals(woken)
        nowhere = os.open(os.devnull, os.O_RDWR)
        if not terminal.has_keyboard:
            os.dup2(nowhere, 0)
        os.close(nowhere)
        self._marks, self._output, self._heard = Marks(sign), Output(), Heard()
        self._signals: list[int] = []
        self._poll = select.poll()
        for number in (master, self._channel.fileno(), self._wake):
            self._poll.register(number, select.POLLIN)
        self._poll.register(1, 0)  # whether the terminal is there
        self._keyboard: Keyboard | None = None
        self._live: Live | None = None
        self._view, self._drawn, self._is_new = View(title, terminal.has_keyboard), 0.0, True
        self._console = self._start(terminal)

    def _start(self, terminal: Terminal) -> Console:
        # the size is the terminal's, whatever the environment says
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        console = Console(
            file=open(1, "w", encoding="utf-8", closefd=False), force_terminal=True, force_jupyter=False,
            _environ=environment,
        )
        if terminal.has_keyboard:
            self._keyboard = Keyboard(0)
            self._poll.register(0, select.POLLIN)
        self._live = Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()
        return console

    def run(self) -> None:
        """Show the view and relay, until there is nothing to relay any more."""
        try:
            while self._step():
                pass
        except (_TerminalGone, OSError):  # nobody is there to be shown anything
            pass

    def _step(self) -> bool:
        """Wait for something and deal with it. Whether there is more to come."""
        for number, came in self._poll.poll(self._patience()):
            if number == 1:
                raise _TerminalGone
            if number == 0:
                if self._live is not None:  # else the keyboard was given back for what came together with the keys
                    self._take_keys(came)
            elif number == self._wake:
                self._take_signals()
            elif number == self._master and not self._relay():
                return False
            elif number == self._channel.fileno() and not self._listen():
                self._script_is_gone()
        if self._live is not None and self._is_new and monotonic() - self._drawn >= EVERY_S:
            self._draw()
        return True

    def _patience(self) -> int | None:
        """How many milliseconds may pass until the next picture is due."""
        if self._live is None or not self._is_new:
            return None
        return max(0, int((self._drawn + EVERY_S - monotonic()) * 1000) + 1)

    # ---- what the script writes -------------------------------------------------------------------------

    def _relay(self) -> bool:
        """Take in what was written. Whether somebody can still write."""
        try:
            data = os.read(self._master, _AT_ONCE)
        except OSError:  # as a terminal of Linux says that all who wrote have closed it
            data = b""
        if not data:
            self._show(self._marks.rest())
            self._listen_to_the_last()
            self._leave(with_picture=True)
            return False
        for text, mark in self._marks.read(data):
            self._show(text)
            if mark:
                self._listen_to_the_last()
                self._leave(with_picture=mark == ENDS)
                self._channel.send(mark, socket.MSG_NOSIGNAL)
        return True

    def _show(self, data: bytes) -> None:
        if self._live is None:
            _write(data)
        else:
            self._output.keep(data)
            self._is_new = True

    # ---- what is told -----------------------------------------------------------------------------------

    def _listen(self) -> bool:
        """Take in what was told. Whether there is somebody to tell more."""
        try:
            heard = self._channel.recv(_AT_ONCE, socket.MSG_DONTWAIT)
        except BlockingIOError:  # taken in for a mark in the output that came together with it
            return True
        except ConnectionError:
            heard = b""
        if not heard:
            self._forget(self._channel.fileno())
        for told in self._heard.read(heard):
            self._view.take(told)
            self._is_new = True
        return bool(heard)

    def _listen_to_the_last(self) -> None:
        """Take in what was told before a mark in the output, or the output's end."""
        waiting = select.poll()
        waiting.register(self._channel, select.POLLIN)
        while self._live is not None and waiting.poll(0) and self._listen():
            pass

    def _script_is_gone(self) -> None:
        """The script's process has ended by a way on which it could not say so."""
        while self._live is not None and self._can_read(self._master) and self._relay():
            pass
        self._leave(with_picture=True)

    def _can_read(self, file: int) -> bool:
        waiting = select.poll()
        waiting.register(file, select.POLLIN)
        return bool(waiting.poll(_LAST_MS))

    def _forget(self, file: int) -> None:
        """Wait for nothing from there any more."""
        with contextlib.suppress(KeyError):  # forgotten before
            self._poll.unregister(file)

    # ---- the person -------------------------------------------------------------------------------------

    def _take_keys(self, came: int) -> None:
        try:
            data = os.read(0, _AT_ONCE)
        except OSError:  # the script runs in the background by now
            data = b""
        if not data:
            if came & _GONE:
                raise _TerminalGone
            self._forget(0)
        for key in keys(data):
            if key == LEAVE:
                self._leave()
                self._channel.shutdown(socket.SHUT_RD)  # nothing needs to be told any more
                self._forget(self._channel.fileno())
                return
            self._view.press(key)
            self._is_new = True

    def _handle_signals(self, woken: int) -> None:
        # an interrupt is the script's, and so is what ends it, which is told by its output's end
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTSTP, signal.SIGWINCH):
            signal.signal(number, lambda number, frame: self._signals.append(number))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)

    def _take_signals(self) -> None:
        os.read(self._wake, _AT_ONCE)
        while self._signals:
            if self._signals.pop(0) == signal.SIGWINCH:
                copy_size(1, self._master)
                self._is_new = True
            else:
                self._wait_in_the_background()

    def _wait_in_the_background(self) -> None:
        """Stop as the script does, and show the view again when it goes on before the person."""
        live = self._live
        if live is not None:
            live.stop()
            if self._keyboard is not None:
                self._keyboard.give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        if live is None:
            return
        if not in_foreground(1):
            self._live = None
            self._show_kept()
            return
        if self._keyboard is not None:
            self._keyboard.take()
        live.start()
        self._is_new = True

    # ---- the picture --------------------------------------------------------------------------------------

    def _draw(self) -> None:
        assert self._live is not None
        self._is_new, self._drawn = False, monotonic()
        try:
            self._live.update(self._view.picture(self._console.size, self._output.last_lines), refresh=True)
        except OSError:
            raise _TerminalGone from None
        except Exception:  # the script's output must come all the same
            self._leave()
            traceback.print_exc()

    def _leave(self, with_picture: bool = False) -> None:
        """Give the terminal back: the output as it was written, and below it the picture as it is at the end."""
        if self._live is None:
            return
        live, self._live = self._live, None
        live.stop()
        if self._keyboard is not None:
            self._keyboard.give_back()
            self._forget(0)
        self._show_kept()
        last: Any = self._view.last_picture() if with_picture else None
        if last is not None:
            self._console.print(last)

    def _show_kept(self) -> None:
        for data in self._output.taken():
            _write(data)


def _write(data: bytes) -> None:
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        raise _TerminalGone from None
