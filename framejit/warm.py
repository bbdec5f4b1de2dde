"""`framejit warm script.py [args]`: a script is run once, so that its captures, plans and kernels are kept. What was
kept is told at the end, and what not and why."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable
from typing import Final

from framejit.backends.fuse.cache import disk_cache
from framejit.environment.saying import say
from framejit.errors import ArchiveError
from framejit.events import Event, subscribe
from framejit.kept.archive import save

Place = tuple[str, str, int]
"""A function: its name, file and line."""
_MOST_NAMED: Final = 20


class Warming:
    """Listens while a script runs, and says what was kept."""

    def __init__(self) -> None:
        self.kept: Counter[Place] = Counter()
        self.found: Counter[Place] = Counter()
        self.not_kept: Counter[tuple[Place, str]] = Counter()

    def __call__(self, event: Event) -> None:
        if event.kind not in ("capture_kept", "capture_found"):
            return
        place = event.function, event.file, event.line
        if event.kind == "capture_found":
            self.found[place] += 1
        elif event.reason:
            self.not_kept[place, event.reason] += 1
        else:
            self.kept[place] += 1

    def __str__(self) -> str:
        before = f"; {_count(self.found)} were there before" if self.found else ""
        lines = [f"kept {_count(self.kept)} in {disk_cache.current().folder}{before}"]
        if self.not_kept:
            lines.append("not kept:")
        for ((function, file, line), reason), count in self.not_kept.most_common(_MOST_NAMED):
            times = f", {count} times" if count > 1 else ""
            lines.append(f"  {function} ({os.path.basename(file)}:{line}{times}): {reason}")
        if len(self.not_kept) > _MOST_NAMED:
            lines.append(f"  and {len(self.not_kept) - _MOST_NAMED} more")
        return "\n".join(lines)


def _count(captures: Counter[Place]) -> str:
    number, functions = captures.total(), len(captures)
    return f"{number} capture{'' if number == 1 else 's'} of {functions} function{'' if functions == 1 else 's'}"


def add_options(command: argparse.ArgumentParser) -> None:
    """The options of `framejit warm` besides those of `framejit run`."""
    command.add_argument(
        "--save", metavar="FILE", help="also write them to FILE, for framejit.load on other machines of the same kind"
    )


def telling(options: argparse.Namespace) -> Callable[[], None]:
    """Listen from now on; gives what is to be called when the script is done."""
    warming, process = Warming(), os.getpid()
    file = options.save if options.save is None or "://" in options.save else os.path.abspath(options.save)
    subscribe(warming)

    def tell() -> None:
        if os.getpid() != process:
            return
        say(str(warming))
        if file is None:
            return
        try:
            say(f"wrote {save(file)} entries to {file}")
        except ArchiveError as e:
            say(f"nothing is written: {e}")

    return tell
