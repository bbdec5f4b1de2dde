"""Forking when the interpreter is about to end, which is when scripts are explained."""
from __future__ import annotations

import ctypes
import os


def fork() -> int:
    """`os.fork()`, at exit too. From CPython 3.12 on os.fork refuses then, because a child could go on to start
    threads; ours ends by `os._exit`."""
    try:
        return os.fork()
    except RuntimeError:
        api, libc = ctypes.pythonapi, ctypes.PyDLL(None)  # both keep the lock of the interpreter, as os.fork does
        api.PyOS_BeforeFork()
        child = int(libc.fork())
        if child == 0:
            api.PyOS_AfterFork_Child()
        else:
            api.PyOS_AfterFork_Parent()
        if child < 0:
            raise OSError("the process can't be forked") from None
        return child
