"""A script under `framejit run --watch` on a terminal does what it does without: output, exit code, exceptions, what it
reads; and the view goes when the script or the terminal does."""
import os
import re
import signal
import textwrap
import time

import pytest

import forked
from terminals import OnTerminal, watch

pytestmark = pytest.mark.process

SCRIPT = """
import os, signal, sys, time
import torch

def step(x):
    y = torch.relu(x) * 2
    if y.sum().item() > 1e9:
        print("large")
    return y + 1

print("isatty", sys.stdout.isatty(), sys.stderr.isatty(), sys.stdout.isatty() and os.get_terminal_size().columns)
for i in range(8):
    step(torch.ones(4, 4) * i)
    print("out", i)
    print("err", i, "[bold]", file=sys.stderr)
os.write(1, b"raw \\x1b[31mred\\x1b[0m\\n")
os.system("echo of another process")
print("no line end", end="")
how = sys.argv[1]
if how == "exit":
    sys.exit(7)
if how == "raise":
    raise ValueError("as asked")
if how == "_exit":
    sys.stdout.flush()
    os._exit(3)
if how == "killed":
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def without_progress(output: str) -> str:
    """On a busy machine compiling takes long enough to be told."""
    return re.sub(r"\r(?!\n)(\x1b\[K)?(\[framejit\] compiling[^\r\n]*)?", "", output)


@pytest.mark.parametrize(("how", "code"), [("end", 0), ("exit", 7), ("raise", 1), ("_exit", 3)])
def test_output_and_exit_code_are_the_script_s(script, how, code):
    plain = OnTerminal("-m", "framejit", "run", "script.py", how, folder=script)
    watched = watch("script.py", how, folder=script)
    codes = plain.wait(), watched.wait()
    assert codes == (code, code)
    assert without_progress(watched.output) == without_progress(plain.output)
    assert "err 7 [bold]\r\n" in plain.output and "isatty True True 130" in plain.output
    assert "framejit run --watch script.py" in watched.text.rpartition("\x1b[?1049l")[2]  # the last picture stays


def below_another(*arguments, folder):
    """`python -m framejit arguments...`, not as the session's first process, whose end hangs up the terminal; its exit
    code is written at the end."""
    return OnTerminal(
        "-c", "import subprocess, sys, time; "
        "code = subprocess.call([sys.executable, '-m', 'framejit', *sys.argv[1:]]); time.sleep(3); print('code', code)",
        *arguments, folder=folder,
    )


def test_output_of_a_script_that_is_killed(script):
    plain = below_another("run", "script.py", "killed", folder=script)
    watched = below_another("run", "--watch", "script.py", "killed", folder=script)
    assert (plain.wait(), watched.wait()) == (0, 0)
    assert plain.output.endswith("no line endcode -9\r\n")
    # the exit code comes last, or before that on a busy machine: nobody waits for the view
    left = watched.text.rpartition("\x1b[?1049l")[2].replace("code -9\r\n", "")
    assert without_progress(left).startswith(without_progress(plain.text).removesuffix("code -9\r\n"))
    assert "code -9\r\n" in watched.text


READS = """
import time, torch, sys

def step(x):
    return torch.relu(x) * 2

for i in range(3):
    step(torch.ones(4))
print("before")
name = input("name? ")
print("hello", name)
print("read", repr(sys.stdin.readline()), type(sys.stdin).__name__, sys.stdin.name, sys.stdin.mode)
"""


def test_a_script_that_reads_gets_its_terminal(tmp_path):
    (tmp_path / "reads.py").write_text(READS)
    program = watch("reads.py", folder=tmp_path)
    program.wait_for(lambda program: "name? " in program.output)
    program.press("q\n")  # is no key of the view any more
    program.wait_for(lambda program: "hello q" in program.output)
    program.press("more\n")
    assert program.wait() == 0
    assert "read 'more\\n' TextIOWrapper <stdin> r" in program.output


ON_AND_ON = """
import os, signal, sys, time
import torch

def outer(x):
    y = inner(x)
    return y / y.max().repeat(17).tolist()[0]

def inner(x):
    return torch.relu(x) + 1

def awaited(name):
    return os.path.exists(name)

if sys.argv[1:] == ["hangs on"]:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
while not awaited("done"):
    outer(torch.arange(3.0))
    time.sleep(0.01)
    if awaited("idle"):
        start = time.process_time()
        time.sleep(2)
        with open("used", "w") as f:
            f.write(str(time.process_time() - start))
        break
print("went on", flush=True)
"""


@pytest.fixture
def endless(tmp_path):
    (tmp_path / "on_and_on.py").write_text(ON_AND_ON)
    return tmp_path


def test_the_view_shows_functions_and_breaks_and_keys_open_findings(endless):
    program = watch("on_and_on.py", folder=endless)
    program.wait_for(lambda program: re.search(r"compiled in parts .* ms +\d+ +FJ101", program.screen, re.S))
    shown = program.screen
    assert "outer " in shown and "on_and_on.py:5" in shown and "outer, on_and_on.py:7" in shown
    assert ".tolist() of a tensor needs its data" in shown
    program.press("\r")
    program.wait_for(lambda program: "finding 1 of 1" in program.screen)
    shown = program.screen
    # with the source, as explain prints it
    assert "return y / y.max().repeat(17).tolist()[0]" in shown and "^^^^^^^^" in shown
    assert "hint: " in shown and "[FJ101]" in shown and "outside graphs" in shown
    program.press("\x1b")
    program.wait_for(lambda program: "finding 1 of 1" not in program.screen and "by cost" in program.screen)
    program.press("q")
    program.wait_for(lambda program: program.text.endswith("\x1b[?1049l"))
    (endless / "done").touch()
    assert program.wait() == 0
    assert program.output == "went on\r\n"


def test_an_interrupt_is_the_script_s(endless):
    program = watch("on_and_on.py", folder=endless)
    program.wait_for(lambda program: "compiled in parts" in program.screen)
    program.press("\x03")
    assert program.wait() == -signal.SIGINT
    assert program.output.rstrip().endswith("KeyboardInterrupt") and "Traceback (most recent call last):" in (
        program.output
    )


def session(leader):
    """The processes of a session that have not ended."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as f:
                state, _, _, of = f.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of) == leader and state not in "ZX":
            found.append(int(name))
    return found


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_nothing_is_left_when_the_terminal_is_gone(endless):
    program = watch("on_and_on.py", folder=endless)
    program.wait_for(lambda program: "compiled in parts" in program.screen)
    assert len(session(program.pid)) == 2
    program.close()
    assert program.wait() == -signal.SIGHUP
    wait_until(lambda: session(program.pid) == [])


def test_a_script_that_outlives_its_terminal_goes_on_without_a_view(endless):
    program = watch("on_and_on.py", "hangs on", folder=endless)
    program.wait_for(lambda program: "compiled in parts" in program.screen)
    program.close()
    wait_until(lambda: session(program.pid) == [program.pid])
    (endless / "idle").touch()
    # that there is no terminal to print to is the script's own affair
    assert program.wait() == 1
    assert float((endless / "used").read_text()) < 0.5  # of the two seconds that it slept


READS_AT_ONCE = """
import os, time, torch

def step(x):
    return torch.relu(x) * 2

while not os.path.exists("view stands"):
    step(torch.ones(4))
for _ in range(5):
    step(torch.ones(4))
    time.sleep(0.1)
open("about to read", "w").close()
print("hello", input("name? "))
"""


def test_a_view_that_comes_late_to_what_was_told_and_written(tmp_path):
    """Both wait for it, with a key, and a mark in what was written takes in what was told before."""
    (tmp_path / "reads.py").write_text(READS_AT_ONCE)
    program = watch("reads.py", folder=tmp_path)
    program.wait_for(lambda program: "reads.py:4" in program.screen)
    viewer, = set(session(program.pid)) - {program.pid}
    os.kill(viewer, signal.SIGSTOP)
    (tmp_path / "view stands").touch()
    wait_until((tmp_path / "about to read").exists)
    time.sleep(0.3)
    program.press("j")
    os.kill(viewer, signal.SIGCONT)
    program.wait_for(lambda program: "name? " in program.output)
    program.press("q\n")
    assert program.wait() == 0
    assert "hello jq" in program.output


FORKS = """
import multiprocessing, os, sys, time
import torch

def step(x):
    return (torch.softmax(x @ x, -1) * 2 + 1).sum()

def work(n):
    os.write(1, f"in a child {n} {float(step(torch.ones(n, n)))}\\n".encode())  # at once, among those of others

for _ in range(300):
    step(torch.ones(8, 8))
    time.sleep(0.005)
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(work, [2, 3, 4], 1)
for i in range(20):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
print("threads", __import__("threading").active_count())
"""


@pytest.mark.parametrize("options", [(), ("--background",)])
def test_forks_and_compiling_beside_the_script(tmp_path, options):
    (tmp_path / "forks.py").write_text(FORKS)
    program = watch(*options, "forks.py", folder=tmp_path, FRAMEJIT_CACHE_DIR=str(tmp_path / "cache"))
    assert program.wait() == 0
    for n in (2, 3, 4):
        assert f"in a child {n} {n * (n + 2.0)}\r\n" in program.output, program.output
    if not options:
        assert "threads 1\r\n" in program.output


STAYS = """
import os, time
if os.fork() == 0:
    time.sleep(1)
    print("from one that stays", flush=True)
    os._exit(0)
print("from the script")
"""


def test_what_a_child_writes_after_the_script(tmp_path):
    (tmp_path / "stays.py").write_text(STAYS)
    program = below_another("run", "--watch", "stays.py", folder=tmp_path)
    assert program.wait() == 0
    assert program.output == "from the script\r\nfrom one that stays\r\ncode 0\r\n"


def test_without_a_terminal_the_script_runs_and_one_sentence_says_so(script):
    plain = forked.run(["-m", "framejit", "run", "script.py", "exit"], cwd=script, timeout=120)
    done = forked.run(["-m", "framejit", "run", "--watch", "script.py", "exit"], cwd=script, timeout=120)
    assert (done.returncode, done.stdout) == (7, plain.stdout)
    told = "[framejit] --watch shows nothing: neither standard output nor standard error is a terminal\n"
    assert done.stderr == told + plain.stderr


@pytest.mark.parametrize(
    ("terminal", "reason"), [("dumb", "the terminal can't move its cursor (TERM)"), ("", "the terminal can't move")]
)
def test_a_terminal_that_can_show_no_view(script, terminal, reason):
    program = watch("script.py", "exit", folder=script, TERM=terminal)
    assert program.wait() == 7
    assert f"[framejit] --watch shows nothing: {reason}" in program.text and "out 7" in program.text


def test_without_rich_one_sentence_says_how_to_install_it(tmp_path):
    (tmp_path / "script.py").write_text("print('never')")
    program = OnTerminal(
        "-c", textwrap.dedent("""
            import sys
            sys.modules["rich"] = None
            from framejit.cli import main
            main(["run", "--watch", "script.py"])
        """), folder=tmp_path,
    )
    assert program.wait() == 1
    assert program.text == "framejit: --watch draws with rich, which is not installed: pip install rich\r\n"
