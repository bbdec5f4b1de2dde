"""FRAMEJIT_LOGS and `set_logs`: what is written, where, and what is said about a name that does not exist."""
import io
import subprocess
import sys

import pytest
import torch

import framejit
from framejit.errors import InvalidOption

X = torch.arange(4.0)
NAMES = ["guards", "recompiles", "graph_breaks", "bytecode", "graph"]


@pytest.fixture
def log():
    stream = io.StringIO()
    yield stream
    framejit.set_logs()


def broken(x):
    x = x + 1
    framejit.graph_break()
    return x * 2


def inner(x):
    return x * x.sum().item()


def outer(x):
    return inner(x) + 1


def test_nothing_is_written_unasked(capfd):
    framejit.optimize(broken)(X)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", NAMES)
def test_each_log_by_itself(log, name):
    framejit.set_logs(name, stream=log)
    fast = framejit.optimize(broken)
    fast(X)
    fast(torch.ones(3))
    lines = log.getvalue().splitlines()
    assert lines and all(line.startswith(f"[framejit {name}] ") for line in lines)


def test_graph_breaks(log):
    framejit.set_logs("graph_breaks", stream=log)
    framejit.optimize(outer)(X)
    text = log.getvalue()
    assert f"graph break at {__file__}:{inner.__code__.co_firstlineno + 1}, in inner" in text
    assert "reason: .item()" in text and "hint: " in text
    assert f"called from {__file__}:{outer.__code__.co_firstlineno + 1}, in outer" in text
    assert text.count("called from") == 1


def test_recompiles_say_which_guard_failed(log):
    framejit.set_logs("recompiles", stream=log)
    fast = framejit.optimize(lambda x: x + 1)
    fast(X)
    assert log.getvalue() == ""
    fast(torch.ones(7))
    for part in ("recompiling", "'x'", "size 4", "got 7", f"assumed at {__file__}:"):
        assert part in log.getvalue()


def test_guards_are_a_tree_with_the_lines_that_caused_them(log):
    framejit.set_logs("guards", stream=log)
    framejit.optimize(lambda x: x + 1)(X)
    assert "x: float32[4]" in log.getvalue()
    assert "test_logs.py:" in log.getvalue()


def test_bytecode_original_and_rewritten(log):
    framejit.set_logs("bytecode", stream=log)
    framejit.optimize(broken)(X)
    text = log.getvalue()
    assert "original:" in text and "rewritten:" in text and "RETURN_VALUE" in text


def test_graph(log):
    framejit.set_logs("graph", stream=log)
    framejit.optimize(lambda x: torch.relu(x))(X)
    assert "1 operations" in log.getvalue() and "torch.relu" in log.getvalue()


@pytest.mark.parametrize("names", [("graph", "guards"), ("graph,guards",), ("graph, guards ,",)])
def test_several_names(log, names):
    framejit.set_logs(*names, stream=log)
    framejit.optimize(lambda x: x + 1)(X)
    assert {line.split("]")[0] for line in log.getvalue().splitlines()} == {"[framejit graph", "[framejit guards"}


def test_all(log):
    framejit.set_logs("all", stream=log)
    fast = framejit.optimize(broken)
    fast(X)
    fast(torch.ones(3))
    assert {line.split("]")[0].split()[1] for line in log.getvalue().splitlines()} == set(NAMES)


def test_setting_anew_replaces(log):
    framejit.set_logs("graph", stream=log)
    framejit.set_logs("recompiles", stream=log)
    framejit.optimize(lambda x: x + 1)(X)
    assert log.getvalue() == ""


def test_an_unknown_name_gets_a_suggestion_and_changes_nothing(log):
    framejit.set_logs("graph", stream=log)
    with pytest.raises(InvalidOption, match="there is no log 'gaurds'; did you mean 'guards'"):
        framejit.set_logs("gaurds")
    framejit.optimize(lambda x: x + 1)(X)
    assert log.getvalue()


def run(program: str, logs: str) -> subprocess.CompletedProcess:
    import os

    return subprocess.run([sys.executable, "-c", program], env={**os.environ, "FRAMEJIT_LOGS": logs}, capture_output=True, text=True, timeout=120)


def test_the_environment_variable_writes_to_stderr():
    done = run("import torch, framejit; framejit.optimize(torch.relu)(torch.ones(2)); print('out')", "graph,status")
    assert done.stdout == "out\n"
    assert "[framejit graph] graph " in done.stderr
    assert "[framejit status] function" in done.stderr and "relu" in done.stderr


def test_the_environment_variable_with_an_unknown_name():
    done = run("import framejit", "gaurds")
    assert done.returncode == 1
    assert "InvalidOption: there is no log 'gaurds'; did you mean 'guards'" in done.stderr
