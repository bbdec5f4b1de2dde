"""The report of `framejit explain`: written when the script ends, however it ends."""
from __future__ import annotations

import atexit
import math
import os
import time
from collections.abc import Callable
from typing import Any

from framejit import coverage, inspect_compiled, payback  # noqa: F401  as those of findings, below
from framejit.environment.leaving import before_leaving
from framejit.environment.saying import say
from framejit.findings import rewrites, sarif, schema  # noqa: F401  a module that is first imported at exit can spoil the exit code of Ctrl-C
from framejit.findings.explanation import Explanation
from framejit.findings.sigterm import before_sigterm
from framejit.late_dataclass import write_all

FLOOR_S, SHARE = 1.0, 0.25
"""Looking for rewrites may take so many seconds, or this share of what the program itself took, imports included:
`explain` is to cost at most twice the program's time plus compiling, and what listening and measuring cost comes
first."""

TERMINATED = "the program was ended by SIGTERM, and a rewrite not looked for"


class ReportAtExit:
    """Explains the program from now on, and calls `write` with the explanation once, when this process ends. Forked
    children are silent.

    `all_rewrites`: look for rewrites in libraries too, however long it takes.
    """

    def __init__(self, write: Callable[[Explanation], Any], all_rewrites: bool = False) -> None:
        write_all()
        self._write, self._process, self._written = write, os.getpid(), False
        # imports are part of the program
        self._all_rewrites, self._start = all_rewrites, time.perf_counter() - time.process_time()
        self._explanation = Explanation()
        self._listening = self._explanation.listen()
        atexit.register(self.finish)
        before_leaving(self.finish)
        before_sigterm(self._terminated)

    def _terminated(self) -> None:
        """SIGTERM may come at any moment, in the middle of a capture too, and whoever sent it waits."""
        self._explanation.leave_rewrites(TERMINATED)
        self.finish()

    def finish(self) -> None:
        """Write the report, if that was not done. Nothing that goes wrong here may change how the script ends."""
        if self._written or os.getpid() != self._process:
            return
        self._written = True
        try:
            self._listening.stop()
            try:
                self._find_rewrites()
            except KeyboardInterrupt:
                say("interrupted: some rewrites were not looked for")
            self._write(self._explanation)
        except OSError as e:
            say(f"the report could not be written: {e}")


    def _find_rewrites(self) -> None:
        took = time.perf_counter() - self._start - self._explanation.compiling_s
        seconds = math.inf if self._all_rewrites else max(FLOOR_S, SHARE * took)
        self._explanation.find_rewrites(seconds, self._all_rewrites)
