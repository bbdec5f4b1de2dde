"""The time for which a thread had no processor is what Linux says of it."""
from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from framejit.environment import processor_waits
from framejit.environment.processor_waits import waited_for_processors

has_it = pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="the system does not tell")


@has_it
def test_waits_beside_others():
    """With as many others as processors and more, a thread that computes waits, and one that sleeps does not."""
    spin = [sys.executable, "-c", "import time; end = time.time() + 20\nwhile time.time() < end: pass"]
    others = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        begun, waited, ran = time.monotonic(), waited_for_processors(), time.thread_time()
        while time.monotonic() - begun < 1.5:
            pass
        wall, ran = time.monotonic() - begun, time.thread_time() - ran
        assert waited_for_processors() - waited == pytest.approx(wall - ran, abs=0.2)
        time.sleep(0.1)
        waited = waited_for_processors()
        time.sleep(0.5)
        assert waited_for_processors() - waited < 0.4
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_where_nothing_is_told(monkeypatch):
    def refused(*args):
        raise RuntimeError("no files here")

    monkeypatch.setattr(processor_waits, "FileIO", refused)
    monkeypatch.setattr(processor_waits, "_FRESH_S", -1.0)
    assert waited_for_processors() == 0.0
