"""What torch does, asked where no mode of the program's is on."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def asked_apart(question: Callable[[], Answer]) -> Answer | None:
    """What a function gives in a thread of its own; None if it raises there, which `threading.excepthook` is told."""
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(question()))
    thread.start()
    thread.join()
    return found[0] if found else None
