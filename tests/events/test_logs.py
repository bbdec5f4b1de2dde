"""FRAMEJIT_LOGS and `set_logs`: what is written, where, and what is said about a name that does not exist."""
import io
import json
import subprocess

import pytest
import torch

import framejit
from framejit.errors import InvalidOption
from framejit.events import emit
from framejit.events.log import meanings

import forked

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
    return x * x.sum().repeat(17).tolist()[0]


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
    assert "reason: .tolist()" in text and "hint: " in text
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


class CantBeShown:
    def __repr__(self):
        raise ValueError("what is not there yet can't be shown")

    def __call__(self, x):
        print(end="")
        return x + 1


def test_bytecode_does_not_ask_objects_for_their_text(log):
    """Neither the program's, nor graphs, whose text fills pages."""
    framejit.set_logs("bytecode", stream=log)
    model, held = torch.nn.Linear(3, 3), CantBeShown()
    fast = framejit.optimize(lambda x: held(model(x).relu()).sum())
    fast(torch.ones(3)).backward()
    text = log.getvalue()
    assert "RETURN_VALUE" in text and "<Slot <Differentiable>>" in text and len(max(text.splitlines(), key=len)) < 200


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
    assert {line.split("]")[0].split()[1] for line in log.getvalue().splitlines()} >= set(NAMES)


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


def test_levels(log):
    def lines_at(name: str) -> list[str]:
        framejit.reset()
        log.truncate(0)
        framejit.set_logs(name, stream=log)
        fast = framejit.optimize(broken)
        fast(X)
        fast(torch.ones(3))
        return log.getvalue().strip("\0").splitlines()

    for name in NAMES:
        brief, normal, full = ("".join(lines_at(sign + name)).replace(" ", "") for sign in ("-", "", "+"))
        assert 0 < len(brief) < len(normal) <= len(full), name


def test_brief_breaks_and_recompiles_say_why(log):
    framejit.set_logs("-graph_breaks", "-recompiles", stream=log)
    fast = framejit.optimize(broken)
    fast(X)
    fast(torch.ones(3))
    text = log.getvalue()
    assert "in broken: framejit.graph_break() asks for it [FJ100]" in text
    assert "because no earlier entry fits: tensor 'x': size 4 was expected at dimension 0, got 3" in text


def test_full_breaks_underline_the_expression(log):
    framejit.set_logs("+graph_breaks", stream=log)
    framejit.optimize(outer)(X)
    assert "return x * x.sum().repeat(17).tolist()[0]" in log.getvalue() and "^^^^" in log.getvalue()


def test_full_graphs_have_shapes_and_places(log):
    framejit.set_logs("+graph", stream=log)
    framejit.optimize(outer)(X)
    assert "# float32[4] on cpu" in log.getvalue() and f'File "{__file__}", line' in log.getvalue()


def test_a_later_word_about_a_log_counts(log):
    framejit.set_logs("+all,-graph", stream=log)
    framejit.optimize(lambda x: x + 1)(X)
    assert [line for line in log.getvalue().splitlines() if line.startswith("[framejit graph]")] == [
        line for line in log.getvalue().splitlines() if "1 operations" in line
    ]


def test_bytecode_stands_side_by_side(log):
    framejit.set_logs("bytecode", stream=log)
    framejit.optimize(lambda x: x + 1)(X)
    [titles] = [line for line in log.getvalue().splitlines() if "original:" in line]
    column = titles.index("rewritten:")
    rows = log.getvalue().splitlines()[2:]
    assert any("RETURN_VALUE" in row[column:] for row in rows)
    assert any("RETURN_VALUE" in row[:column] for row in rows)


def test_a_file(tmp_path):
    path = tmp_path / "framejit.log"
    path.write_text("before\n")
    framejit.set_logs("graph", f"file={path}")
    framejit.optimize(lambda x: x + 1)(X)
    framejit.set_logs()
    assert path.read_text().startswith("before\n[framejit graph] graph ")


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InvalidOption, match="the logs can't be written to .*: No such file or directory"):
        framejit.set_logs("graph", f"file={tmp_path}/no/such/folder/log")
    with pytest.raises(InvalidOption, match="file= needs the name"):
        framejit.set_logs("graph,file=")


def test_json_lines(log):
    framejit.set_logs("all,json", stream=log)
    fast = framejit.optimize(broken)
    fast(X)
    fast(torch.ones(3))
    records = [json.loads(line) for line in log.getvalue().splitlines()]
    assert {record["log"] for record in records} >= set(NAMES)
    [*_, graph] = [record for record in records if record["log"] == "graph"]
    assert {"kind", "time_ns", "thread", "text", "n_ops", "graph_id"} <= set(graph) and "graph_module" not in graph


def test_help(log):
    framejit.set_logs("help", stream=log)
    for name in meanings():
        assert f"\n  {name} " in log.getvalue()
    for word in ("all", "+NAME", "-NAME", "file=FILE", "json"):
        assert f"\n  {word} " in log.getvalue()


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("fusion", {"graph_id": 3, "text": "kernel 0: add, mul"}, ["fusion of graph 3", "kernel 0: add, mul"]),
        (
            "output_code",
            {"graph_id": 3, "name": "k0", "language": "LLVM", "source": "define void", "kernel": None},
            ["LLVM code of kernel k0 for graph 3", "define void"],
        ),
        (
            "perf",
            {"graph": "f", "compiled_us": 10.0, "eager_us": 25.0, "state": "compiled"},
            ["f: compiled, 10.0 us compiled, 25.0 us eager (2.50x)"],
        ),
        (
            "perf",
            {"graph": "f", "compiled_us": 10.0, "eager_us": None, "state": "new"},
            ["f: new, 10.0 us compiled, not measured eager"],
        ),
        (
            "perf",
            {"graph": "f", "compiled_us": 10.0, "eager_us": 25.0, "eager_is_least": True, "state": "compiled"},
            ["f: compiled, 10.0 us compiled, at least 25.0 us eager (2.50x)"],
        ),
        ("cache", {"what": "kernel k0", "hit": True, "key": "a" * 64}, [f"hit: kernel k0, key {'a' * 16}"]),
        ("cache", {"what": "kernel k0", "hit": False, "key": "b"}, ["miss: kernel k0, key b"]),
    ],
)
def test_what_backends_report(log, name, fields, expected):
    framejit.set_logs(name, stream=log)
    emit(name, **fields)
    assert log.getvalue().splitlines() == [f"[framejit {name}] {line}" for line in expected]


def test_verified_calls(log):
    framejit.set_logs("verify", stream=log)
    framejit.optimize(broken, verify=True)(X)
    assert log.getvalue() == f"[framejit verify] broken ({__file__}:{broken.__code__.co_firstlineno}): same\n"


def run(program: str, logs: str) -> subprocess.CompletedProcess:
    import os

    return forked.run(["-c", program], env={**os.environ, "FRAMEJIT_LOGS": logs}, timeout=120)


def test_the_environment_variable_writes_to_stderr():
    done = run("import torch, framejit; framejit.optimize(torch.relu)(torch.ones(2)); print('out')", "graph,status")
    assert done.stdout == "out\n"
    assert "[framejit graph] graph " in done.stderr
    assert "[framejit status] function" in done.stderr and "relu" in done.stderr


def test_the_environment_variable_with_an_unknown_name():
    done = run("import framejit", "gaurds")
    assert done.returncode == 1
    assert "InvalidOption: there is no log 'gaurds'; did you mean 'guards'" in done.stderr
