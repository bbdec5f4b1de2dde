"""Something to be done before SIGTERM ends the process, which the program does not notice.

`signal.signal` and `signal.getsignal` are taken over: where the program asks for the default action, and where it sees
it, ours stands in its place.
"""
from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


def before_sigterm(act: Callable[[], Any]) -> None:
    """Call `act` once when SIGTERM comes and the program has no handler of its own; the process then ends as by
    SIGTERM's default action.

    Python calls handlers between two instructions of its own in the main thread: code in C that does not return keeps
    the signal waiting. Forked children, and programs in which the signal is ignored, are left as they are.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        return
    set_handler, get_handler = signal.signal, signal.getsignal

    def terminate(number: int, frame: FrameType | None) -> None:
        set_handler(signal.SIGTERM, signal.SIG_DFL)  # a second one ends the process at once
        try:
            act()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def shown(handler: Any) -> Any:
        return signal.SIG_DFL if handler is terminate else handler

    def set_signal(signalnum: int, handler: Any) -> Any:
        ours = signalnum == signal.SIGTERM and handler == signal.SIG_DFL and os.getpid() == process
        return shown(set_handler(signalnum, terminate if ours else handler))

    def get_signal(signalnum: int) -> Any:
        return shown(get_handler(signalnum))

    def before_fork() -> None:
        # Python forgets what comes before a child has its own handlers
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def in_child() -> None:
        if get_handler(signal.SIGTERM) is terminate:
            set_handler(signal.SIGTERM, signal.SIG_DFL)
        after_fork()

    def after_fork() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    process, masks = os.getpid(), threading.local()
    for ours, theirs, name in ((set_signal, set_handler, "signal"), (get_signal, get_handler, "getsignal")):
        ours.__name__, ours.__doc__ = name, theirs.__doc__
        setattr(signal, name, ours)
    os.register_at_fork(before=before_fork, after_in_parent=after_fork, after_in_child=in_child)
    set_handler(signal.SIGTERM, terminate)
