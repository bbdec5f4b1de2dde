"""Where a fork is no way to try rewrites (CUDA is in use), they are tried in a fresh process, and what can't be carried
there is said."""
import importlib.util
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch

import framejit
from framejit.findings.rewrites import carried, propose
from framejit.findings.rewrites.fresh import fresh
from framejit.findings.rewrites.trial import NOT_MET

X = torch.arange(1.0, 5.0)
PROGRAM = '''
    """A program whose module must not be run again."""
    from __future__ import annotations
    import collections
    import math
    import os
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    with open(os.environ["RUNS"], "a") as log:
        log.write("run ")
    scale, table = torch.full((4,), 2.0), {"offset": [1, 2.5, (3,)]}
    Pair = collections.namedtuple("Pair", "a b")
    limit = Pair(1, 2)


    class Step:
        factor = 3

        @staticmethod
        def by(x: Tensor, n: int = 2) -> Tensor:
            return x * (n + Step.factor)


    def inner(x: Tensor) -> Tensor:
        return F.relu(Step.by(x)) * scale + math.pi


    def outer(x, *rest, factor=1.0):
        y = inner(x) / x.max().repeat(17).tolist()[0]
        return y + table["offset"][1] * factor


    def branches(x):
        y = x * 2
        if y.sum() > 0:
            wide = torch.outer(y, y)
            y = wide @ y
        else:
            y = y - 1
        return y * 3


    def wrong(x):
        return inner(x), x.max().repeat(17).tolist()[0]


    def method_of_a_module(module, x):
        return module(x) / x.max().repeat(17).tolist()[0]


    def with_a_global_that_stays(x):
        return x * limit.b / x.max().repeat(17).tolist()[0]


    calls = []


    def cached(x):
        if os.environ.get("CACHED"):
            return x
        return x / x.max().repeat(17).tolist()[0]
'''


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(propose, "can_fork", lambda: False)
    path = tmp_path / "framejit_program.py"
    path.write_text(textwrap.dedent(PROGRAM).lstrip())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop(path.stem)
    assert (tmp_path / "runs").read_text() == "run "


def test_a_rewrite_is_checked_and_the_module_not_run_again(program, tmp_path):
    [finding] = framejit.explain(program.outer)(X, 1, factor=2.0).findings
    assert finding.rewrite_checked and finding.rewrite_note == ""
    expected = program.outer(X, 1, factor=2.0)
    copy = tmp_path / "changed" / "framejit_program.py"
    copy.parent.mkdir()
    shutil.copy(program.__file__, copy)
    subprocess.run(
        ["git", "apply", "--unsafe-paths", "-p1", "-"], input=finding.rewrite, cwd=copy.parent, text=True, check=True,
        timeout=60,
    )
    namespace = {"__name__": "changed", **{name: getattr(program, name) for name in ("inner", "table")}}
    source = copy.read_text()
    exec(source[source.index("def outer") : source.index("def branches")], namespace)
    after = framejit.explain(namespace["outer"])(X, 1, factor=2.0)
    assert after.findings == []
    torch.testing.assert_close(after.result, expected)


def test_several_functions_are_tried_in_one_process(program, monkeypatch):
    started = []
    monkeypatch.setattr(propose, "fresh", lambda proposals: started.append(len(proposals)) or fresh(proposals))
    explanation = framejit.findings.Explanation()
    listening = explanation.listen()
    framejit.optimize(program.outer)(X)
    framejit.optimize(program.branches)(X)
    listening.stop()
    explanation.find_rewrites()
    assert [finding.rewrite_checked for finding in explanation.findings] == [True, True]
    assert started == [2]


def test_where_it_would_take_too_long_it_is_not_begun(program, monkeypatch):
    monkeypatch.setattr(propose, "fresh", lambda proposals: pytest.fail("begun"))
    explanation = framejit.findings.Explanation()
    listening = explanation.listen()
    framejit.optimize(program.outer)(X)
    listening.stop()
    explanation.find_rewrites(propose.FRESH_S / 2)
    [finding] = explanation.findings
    assert (finding.rewrite, finding.rewrite_note) == (None, propose.NO_TIME)


def test_a_wrong_rewrite_is_not_shown(program):
    [finding] = framejit.explain(program.wrong)(X).findings
    assert finding.rewrite is None and finding.rewrite_note == ""


def test_an_argument_that_can_not_be_carried(program):
    [finding] = framejit.explain(program.method_of_a_module)(torch.nn.Linear(4, 4), X).findings
    assert finding.rewrite and not finding.rewrite_checked
    assert "the argument `module` is no plain data (Linear)" in finding.rewrite_note and finding.rewrite_note in str(
        finding
    )


def test_a_global_that_can_not_be_carried(program):
    [finding] = framejit.explain(program.with_a_global_that_stays)(X).findings
    assert not finding.rewrite_checked and "the global `limit` is no plain data (Pair)" in finding.rewrite_note


def test_a_function_inside_another(program):
    def fn(x):
        return x / x.max().repeat(17).tolist()[0]

    [finding] = framejit.explain(fn)(X).findings
    assert not finding.rewrite_checked and "is defined inside another function" in finding.rewrite_note


def test_a_call_that_does_something_else_there(program, monkeypatch):
    explanation = framejit.findings.Explanation()
    listening = explanation.listen()
    framejit.optimize(program.cached)(X)
    listening.stop()
    monkeypatch.setenv("CACHED", "1")
    explanation.find_rewrites()
    [finding] = explanation.findings
    assert finding.rewrite and not finding.rewrite_checked and finding.rewrite_note == NOT_MET


def test_only_what_weights_only_reads_is_carried(program):
    data = carried.carried(framejit.findings.evidence.Call(program.outer, (X, (), {})))
    assert set(data["definitions"]) == {"Step", "inner", "outer"} and set(data["values"]) == {"scale", "table"}
    assert {name: home for name, (home, _) in data["imports"].items()} == {
        "F": "torch.nn.functional", "math": "math", "Tensor": "torch",
    }
    again = carried.from_bytes(carried.to_bytes(data))
    assert again["text"] == data["text"] and torch.equal(again["values"]["scale"], program.scale)
