"""Has rewrites tried in another process, and says what that showed."""
from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator

import torch

from framejit import _native
from framejit.findings.evidence import Evidence
from framejit.findings.finding import NextBreak
from framejit.findings.rewrites.proposal import Proposal, Verdict
from framejit.findings.rewrites.trial import answer
from framejit.late_dataclass import dataclass

_exit = os._exit  # the command line puts its own in place of it


@dataclass
class Process:
    """A process that tries proposals and writes a line of JSON for each."""

    pipe: int
    end: Callable[[], object]
    _unread: bytes = b""

    def line(self, seconds: float) -> bytes:
        """The next line that the other process writes; empty if it takes longer, or has ended."""
        end = time.monotonic() + seconds
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self.pipe], [], [], max(end - time.monotonic(), 0.0))
            read = os.read(self.pipe, 2**16) if ready else b""
            if not read:
                return b""
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line


Start = Callable[[list[Proposal]], Process]


def can_check(evidence: Evidence | None) -> bool:
    """Whether the call can be made again."""
    return evidence is not None and evidence.args is not None


def can_fork() -> bool:
    """CUDA does not survive a fork."""
    return hasattr(os, "fork") and not torch.cuda.is_initialized()


def verdicts(
    proposals: list[Proposal], start: Start, end: float, each: float
) -> Iterator[tuple[Proposal, Verdict | None]]:
    """Try proposals, in turn and for each finding until one works, up to a time of `time.monotonic()`. None is said of
    those for which none was left.

    What goes wrong in the process, and what takes longer than `each` seconds, does not work; another process then goes
    on with the rest.
    """
    left = list(proposals)
    while left and time.monotonic() < end:
        process = start(left)
        try:
            while left:
                line = process.line(min(each, end - time.monotonic()))
                if not line and time.monotonic() >= end:
                    break
                proposal, verdict = left.pop(0), _verdict(line)
                yield proposal, verdict
                if verdict.works:
                    left = [other for other in left if other.finding is not proposal.finding]
                if not line:
                    break
        finally:
            os.close(process.pipe)
            process.end()
    for proposal in left:
        yield proposal, None


def _verdict(line: bytes) -> Verdict:
    if not line:
        return Verdict(False)
    data = json.loads(line)
    after = data["next_break"]
    return Verdict(data["works"], NextBreak(**after) if after else None, data["untried"])


def forked(proposals: list[Proposal]) -> Process:
    """A copy of this process that tries the proposals."""
    reading, writing = os.pipe()
    child = _native.fork()
    if child == 0:
        os.close(reading)
        try:
            _silence()
            answer(proposals, writing)
        finally:
            _exit(0)
    os.close(writing)

    def end() -> None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    return Process(reading, end)


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
