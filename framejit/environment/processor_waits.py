"""How long a thread could run and had no processor, because others had them."""
from __future__ import annotations

import threading
import time
from io import FileIO
from typing import Final

_FRESH_S: Final = 0.02
"""What was read is taken for so long: reading it takes as long as many calls of small functions."""
_read = threading.local()


def waited_for_processors() -> float:
    """The seconds that this thread has waited for a processor so far; 0 where the system does not tell (Linux does:
    Documentation/scheduler/sched-stats.rst)."""
    now = time.monotonic()
    if now - getattr(_read, "at", -1.0) > _FRESH_S:
        _read.at, _read.seconds = now, _seconds()
    seconds: float = _read.seconds
    return seconds


def _seconds() -> float:
    try:
        with FileIO("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except Exception:  # whatever the program's audit hooks raise, too
        return 0.0
