"""Whole programs that compile in the background: `framejit run --background`, and how they end while a compile is under
way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forked

pytestmark = pytest.mark.process
PROGRAMS = Path(__file__).parents[1] / "explain" / "programs"


def environment(folder, **more):
    return {**os.environ, "FRAMEJIT_KEEP_CAPTURES": "1", "FRAMEJIT_CACHE_DIR": str(folder / "cache"), **more}


OFTEN = """
import sys, time
import torch

def work(x):
    return torch.sin(x) * 2 + torch.cos(x).sum()

def is_compiled():
    framejit = sys.modules.get("framejit")
    return framejit is None or any(f.function == "work" and f.hits for f in framejit.status().functions)

x, end = torch.arange(64.0), time.monotonic() + 60
result = work(x)
while not is_compiled() and time.monotonic() < end:
    result = work(x)
    time.sleep(0.01)
print(f"{result.sum().item():.3f}")
"""


def test_an_unchanged_script_has_its_functions_compiled_beside_it(tmp_path):
    (tmp_path / "often.py").write_text(OFTEN)
    done = forked.run(
        ["-m", "framejit", "run", "--background", "often.py"], cwd=tmp_path,
        env=environment(tmp_path, FRAMEJIT_LOGS="status,background"), timeout=120,
    )
    plain = forked.run(["often.py"], cwd=tmp_path, env=environment(tmp_path, FRAMEJIT_DISABLE="1"), timeout=60)
    assert done.returncode == 0, done.stderr
    row, = (line for line in done.stderr.splitlines() if " work " in line and "compiled" in line)
    assert "work (" in done.stderr and ": started" in done.stderr and ": kept after" in done.stderr, row
    assert done.stdout == plain.stdout


@pytest.mark.parametrize("program", ["detection.py", "scientific.py", "distributions.py"])
def test_programs_give_the_same(tmp_path, program):
    env = environment(tmp_path)
    plain, beside, again = (
        forked.run([*how, str(PROGRAMS / program)], cwd=tmp_path, env=env, timeout=240)
        for how in ([], ["-m", "framejit", "run", "--background", "--compile-after", "0"],
                    ["-m", "framejit", "run", "--background", "--compile-after", "0"])
    )
    assert (beside.returncode, again.returncode) == (plain.returncode, plain.returncode), beside.stderr
    assert beside.stdout == again.stdout == plain.stdout
    assert "Traceback" not in beside.stderr + again.stderr


ENDS = """
import os, sys, time
import torch, framejit
from framejit.background import compiling
from framejit.background.imports_ahead import are_imported

while not are_imported():
    time.sleep(0.01)

def hangs(*args):
    while True:
        time.sleep(1)

from framejit.backends.fuse import backend
backend.plan_record = hangs

@framejit.optimize(background=True)
def work(x):
    return torch.sin(x) * 2

work(torch.ones(3))
print(compiling._under_way[0].worker._pid, flush=True)
"""


def ended(pid):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(("how", "status"), [
    ("", 0), ("sys.exit(3)", 3), ("os._exit(4)", 4), ("os.kill(os.getpid(), 9)", -9),
    ("import signal; signal.raise_signal(signal.SIGINT)", -signal.SIGINT),
])
def test_a_program_that_ends_takes_its_worker_along(tmp_path, how, status):
    (tmp_path / "ends.py").write_text(ENDS + how)
    start = time.monotonic()
    done = forked.run(["ends.py"], cwd=tmp_path, env=environment(tmp_path), timeout=60)
    assert time.monotonic() - start < 30
    assert done.returncode == status
    assert done.stderr.count("Traceback") == ("SIGINT" in how), done.stderr
    assert ended(int(done.stdout))


AT_ONCE = """
import torch, framejit
@framejit.optimize(background=True)
def work(x):
    return torch.sin(x) * 2
print(work(torch.ones(2)).shape)
"""


def test_a_program_that_ends_while_modules_are_imported_for_it(tmp_path):
    (tmp_path / "once.py").write_text(AT_ONCE)
    done = forked.run(["once.py"], cwd=tmp_path, env=environment(tmp_path), timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "torch.Size([2])\n", "")


def test_a_fork_while_modules_are_imported(tmp_path):
    """It is as good as one at another time: the locks of modules are nobody's by then."""
    (tmp_path / "forks.py").write_text(AT_ONCE + """
import os, time
child = os.fork()
end = time.monotonic() + 60
while not work.hits and time.monotonic() < end:
    work(torch.ones(2))
if child == 0:
    os._exit(0 if work.hits else 5)
print(bool(work.hits), os.waitpid(child, 0)[1])
""")
    quiet = ["-W", "ignore:This process:DeprecationWarning"]  # of CPython from 3.12 on: there are threads
    done = forked.run([*quiet, "forks.py"], cwd=tmp_path, env=environment(tmp_path), timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "torch.Size([2])\nTrue 0\n", "")


def test_an_interrupt_from_the_terminal_ends_both_and_is_shown_once(tmp_path):
    (tmp_path / "waits.py").write_text(ENDS + "\ntime.sleep(60)")
    program = subprocess.Popen(
        [sys.executable, "waits.py"], cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )
    pid = int(program.stdout.readline())
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode != 0 and errors.count("KeyboardInterrupt") == 1
    assert ended(pid)
