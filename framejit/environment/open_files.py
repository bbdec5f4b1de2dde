"""The files that a fork has open of what it was forked from."""
from __future__ import annotations

import contextlib
import os


def keep_only(*kept: int) -> None:
    """In a forked process: close all files but these and the standard ones. What is at the other end of a pipe sees it
    closed when the program closes it."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):  # of the listing itself
                os.close(number)
