"""What commands have to say to the person at the terminal."""
from __future__ import annotations

import sys


def say(text: str) -> None:
    """Tell the person at the terminal something: on standard error, since standard output is the script's."""
    sys.stderr.write("".join(f"[framejit] {line}".rstrip() + "\n" for line in text.splitlines()))
    sys.stderr.flush()
