"""`framejit explain` and `report`: whatever the script does, the report of what was seen is written and the exit code
is the script's."""
import json
import signal
import subprocess
import textwrap

import pytest

from framejit.findings.at_exit import TERMINATED

import forked

pytestmark = pytest.mark.process

SCRIPT = """
import os, signal, sys, threading, time
import torch

def outer(x):
    y = x * 2
    return y / y.max().repeat(17).tolist()[0]

def work():
    return outer(torch.arange(1.0, 4.0))

work()
print("worked", flush=True)
"""

ENDINGS = {
    "normally": "sys.exit(7)",
    "by an exception": "raise ValueError('as asked')",
    "by os._exit": "os._exit(5)",
    "by Ctrl-C": "os.kill(os.getpid(), signal.SIGINT); time.sleep(10)",
    "by os.abort": "os.abort()",
    "by SIGTERM to a handler of its own": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nos.kill(os.getpid(), signal.SIGTERM); time.sleep(10)"
    ),
    "with a child that is terminated": (
        "import multiprocessing\nif __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('fork').Process(target=time.sleep, args=(60,))\n"
        "    process.start(); process.terminate(); process.join(); print(process.exitcode)"
    ),
    "with a forked child": (
        "pid = os.fork()\nif pid == 0:\n    work(); sys.exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    ),
    "with a forked child that calls os._exit": (
        "pid = os.fork()\nif pid == 0:\n    work(); os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    ),
    "with processes": (
        "import multiprocessing\nif __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('fork').Process(target=work)\n"
        "    process.start(); process.join(); print(process.exitcode)"
    ),
    "with a spawned process": (
        "import multiprocessing\nif __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    process.start(); process.join(); print(process.exitcode)"
    ),
    "with threads": (
        "threads = [threading.Thread(target=work) for _ in range(3)]\n[t.start() for t in threads]\n"
        "[t.join() for t in threads]"
    ),
    "with a thread that goes on": "threading.Thread(target=lambda: (time.sleep(0.5), work())).start()",
    "in another folder": "os.chdir('/')",
    "with work in an exit handler": "import atexit\natexit.register(work)",
    "by replacing itself": "os.execv(sys.executable, [sys.executable, '-c', 'print(4)'])",
}


BY_SIGTERM = {
    "at once": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)",
    "in a thread's place": (
        "threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)"
    ),
    "after a handler of its own": (
        "before = signal.signal(signal.SIGTERM, lambda *_: print('not yet', flush=True))\n"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.1)\n"
        "print(before, signal.signal(signal.SIGTERM, before) is before, signal.getsignal(signal.SIGTERM), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)"
    ),
    "with text that was not written yet": "print('lost', end='')\nos.kill(os.getpid(), signal.SIGTERM); time.sleep(10)",
}


@pytest.fixture
def shell(tmp_path):
    def run(*arguments: str) -> subprocess.CompletedProcess:
        return forked.run(arguments, cwd=tmp_path, timeout=120)

    return run


@pytest.mark.parametrize("ending", ENDINGS)
def test_however_a_script_ends(shell, tmp_path, ending):
    (tmp_path / "script.py").write_text(SCRIPT + ENDINGS[ending] + "\n")
    plain = shell("script.py")
    done = shell(
        "-m", "framejit", "explain", "--rewrites", "all", "--json", "report.json", "--sarif", "report.sarif",
        "script.py",
    )
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout), done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    [finding] = report["findings"]
    assert (finding["code"], finding["line"], finding["function"]) == ("FJ101", 7, "outer")
    assert finding["rewrite_checked"]
    assert json.loads((tmp_path / "report.sarif").read_text())["runs"][0]["results"]
    assert done.stderr.count("graph break, ") == 1


@pytest.mark.parametrize("ending", BY_SIGTERM)
def test_a_script_ended_by_sigterm(shell, tmp_path, ending):
    (tmp_path / "script.py").write_text(SCRIPT + BY_SIGTERM[ending] + "\n")
    plain = shell("script.py")
    done = shell("-m", "framejit", "explain", "--json", "report.json", "script.py")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout), done.stderr
    assert done.returncode == -signal.SIGTERM
    [finding] = json.loads((tmp_path / "report.json").read_text())["findings"]
    assert (finding["code"], finding["rewrite"], finding["rewrite_note"]) == ("FJ101", None, TERMINATED)
    assert done.stderr.count("graph break, ") == 1 and TERMINATED in done.stderr


def test_a_report_is_printed_again(shell, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    explained = shell("-m", "framejit", "explain", "--json", "report.json", "script.py")
    printed = shell("-m", "framejit", "report", "report.json")
    said = [
        line.removeprefix("[framejit]").removeprefix(" ")
        for line in explained.stderr.splitlines()
        if line.startswith("[framejit]")
    ]
    assert [line.rstrip() for line in printed.stdout.splitlines()] == said
    assert shell("-m", "framejit", "report", "--sarif", "again.sarif", "report.json").stdout == ""
    assert (tmp_path / "again.sarif").exists()


@pytest.mark.parametrize(
    ("file", "complaint"), [("nowhere.json", "No such file"), ("script.py", "not JSON"), (".", "Is a directory")]
)
def test_what_is_no_report(shell, tmp_path, file, complaint):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = shell("-m", "framejit", "report", file)
    assert done.returncode == 1
    assert complaint in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("path", ["nowhere/report.json", "."])
def test_a_file_that_can_not_be_written_is_refused_before_the_script_runs(shell, tmp_path, path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = shell("-m", "framejit", "explain", "--json", path, "script.py")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("framejit: cannot write")


def test_a_script_that_is_not_there(shell):
    done = shell("-m", "framejit", "explain", "nowhere.py")
    assert done.returncode == 1
    assert done.stderr.startswith("framejit: cannot run 'nowhere.py'")


def test_only_one_function(shell, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT + "def other(x): return x + 1\nother(torch.ones(3))\n")
    done = shell("-m", "framejit", "status", "--only", "script.other", "script.py")
    rows = [line for line in done.stderr.splitlines() if "script.py:" in line]
    assert len(rows) == 1 and "other" in rows[0] and "compiled" in rows[0]
    missing = shell("-m", "framejit", "run", "--only", "script.nothing", "script.py")
    assert missing.returncode == 0 and "no function called 'script.nothing' ran" in missing.stderr
    (tmp_path / "plain.py").write_text("value = 3\n")  # a module is no function
    (tmp_path / "user.py").write_text("import plain\n")
    missing = shell("-m", "framejit", "run", "--only", "plain.*", "user.py")
    assert missing.returncode == 0 and "no function called 'plain.*' ran" in missing.stderr


def test_graphs_that_are_too_small(shell, tmp_path):
    (tmp_path / "script.py").write_text(
        "import torch\ndef f(x): return x + 1\ndef g(x): return (x + 1) * 2\nf(torch.ones(3)); g(torch.ones(3))\n"
    )
    done = shell("-m", "framejit", "status", "--min-graph-size", "2", "script.py")
    [f, g] = [line.split() for line in done.stderr.splitlines() if "script.py:" in line]
    assert (f[2], g[2]) == ("eager", "compiled")
    assert shell("-m", "framejit", "run", "--min-graph-size", "few", "script.py").returncode == 2


def test_status_counts_what_ran(shell, tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT) + "for _ in range(4): work()\n")
    done = shell("-m", "framejit", "status", "script.py")
    [row] = [line.split() for line in done.stderr.splitlines() if "script.py:5" in line]
    assert "80%" in row  # three operations and a division in graphs, .tolist() outside
