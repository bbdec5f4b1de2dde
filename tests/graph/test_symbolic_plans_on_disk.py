"""Plans for symbolic sizes come from the disk: with no pass and no lowering, for the sizes that they hold for, and with
eager's results."""

from __future__ import annotations

import os
import pathlib
import textwrap

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit import events
from framejit.backends.fuse.account.stage_counts import stages
from framejit.backends.fuse.cache import disk_cache, plan_cache
from framejit.backends.fuse.cache.kernel_record import BadRecord, pack, unpack
from framejit.backends.fuse.cache.size_record import (
    read_condition,
    read_expression,
    written_condition,
    written_expression,
)
from framejit.symbols.conditions import Condition
from framejit.symbols.expression import Expression, Symbol

import forked
from comparison import assert_same

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache"), keep_captures=False):
        yield tmp_path / "cache"


def open_events() -> list[tuple[bool, str]]:
    return [(event.hit, event.reason) for event in events.events("cache") if event.what == plan_cache.SYMBOLIC]


def ran(f, *inputs: torch.Tensor) -> set[str]:
    """The stages that run for calls of a function that was never compiled in this process; results are eager's."""
    framejit.reset()
    fast = framejit.optimize(f, dynamic=True)
    stages.clear()
    for x in inputs:
        own, theirs = x.clone(), x.clone()
        assert_same(f(theirs), fast(own), atol=1e-5, rtol=1e-4)
        assert torch.equal(own, theirs)
    return {*stages}


def normalise(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def joined(x):
    return torch.cat([x, x * 2], 1).flip(0), x.reshape(-1)[1:], x.t()


def by_aten(x):
    return F.pad(x @ x.t(), (1, 2)).relu(), x.sort(1)[0], torch.arange(x.shape[0]) + 1


def written(x):
    x.add_(1)
    x[1:].mul_(2)
    return x.sum(0)


PROGRAMS = [normalise, joined, by_aten, written]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_no_pass_and_no_lowering(program):
    first = ran(program, torch.randn(6, 5), torch.randn(9, 5))
    assert {"record", "decompose", "lower", "schedule"} <= first
    assert ran(program, torch.randn(6, 5), torch.randn(9, 5)) == {"record"}
    assert open_events()[-1] == (True, "")


def test_other_sizes_than_those_it_was_made_for_take_a_plan_that_holds_for_them():
    def f(x):
        return x.softmax(-1).sum(0) if x.shape[0] > 4 else x * 2

    ran(f, torch.randn(6, 39))  # odd rows: rows of whole vectors, of whatever width, are a variant of their own
    assert ran(f, torch.randn(60, 41)) == {"record"}
    assert ran(f, torch.randn(3, 41)) >= {"record", "lower"}
    assert ran(f, torch.randn(3, 33)) == {"record"} and ran(f, torch.randn(33, 33)) == {"record"}


def test_a_plan_for_sizes_that_do_not_meet_its_conditions_is_not_taken(monkeypatch):
    """Several plans of one graph are kept together, and the one is taken whose conditions hold."""
    from framejit.backends.fuse import compile_graph

    lower_graph = compile_graph.lower_graph

    def choosy(graph, tracked):
        (value,) = graph.inputs
        if isinstance(value.shape[0], torch.SymInt):
            assert isinstance(value.shape[0] > 100, torch.SymBool)
            bool(value.shape[0] > 100)
        return lower_graph(graph, tracked)

    monkeypatch.setattr(compile_graph, "lower_graph", choosy)
    assert "lower" in ran(normalise, torch.randn(6, 5))
    assert ran(normalise, torch.randn(50, 7)) == {"record"}
    assert "lower" in ran(normalise, torch.randn(500, 7))
    assert (False, "what was found is for other sizes") in open_events()
    assert ran(normalise, torch.randn(50, 7)) == {"record"} and ran(normalise, torch.randn(5000, 7)) == {"record"}
    framejit.reset()
    _, data = entry()
    assert len(unpack(data)[1]) == 2


def entry() -> tuple[str, bytes]:
    """The only entry of this kind in the cache, and its key."""
    (file,) = [
        file for file in pathlib.Path(framejit.config.cache_dir).iterdir() if file.name.startswith(plan_cache.SYMBOLIC)
    ]
    key = file.name.split("-")[1]
    data = disk_cache.get(plan_cache.SYMBOLIC, key)
    assert data is not None
    return key, data


@pytest.mark.parametrize("wrong", ["no record", "one that is cut", "another condition", "a symbol too many"])
def test_an_entry_that_is_wrong_is_told_once_and_not_used(wrong):
    ran(normalise, torch.randn(6, 5))
    key, data = entry()
    if wrong == "no record":
        data = b"nonsense"
    else:
        (record,) = unpack(data)[1].values()
        fields, blobs = unpack(record)
        if wrong == "another condition":
            fields["conditions"] = [["x", "==", True]]
        if wrong == "a symbol too many":
            fields["conditions"] = [[[[1, 7]], "==", True]]
        data = pack({}, {"0": record[:-3] if wrong == "one that is cut" else pack(fields, blobs)})
    disk_cache.put(plan_cache.SYMBOLIC, key, data)
    assert ran(normalise, torch.randn(6, 5)) >= {"record", "lower"}
    told = [reason for hit, reason in open_events() if not hit and "can't be used" in reason]
    assert len(told) == 1
    assert ran(normalise, torch.randn(6, 5)) == {"record"}  # and a good one is kept instead


def test_another_process_runs_no_pass_and_no_lowering(folder, tmp_path):
    program = """
        import sys, torch, framejit
        from framejit.backends.fuse.account.stage_counts import stages

        def f(x, weight):
            return torch.nn.functional.linear(x, weight).softmax(-1).sum(0), x.flip(0)

        weight = torch.arange(8.0).view(2, 4) / 5
        fast = framejit.optimize(f, dynamic=True)
        for n in map(int, sys.argv[1:]):
            x = torch.arange(4.0 * n).view(n, 4) / 7
            torch.testing.assert_close(fast(x, weight), f(x, weight))
        print(sorted(stages))
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))

    def run(*sizes: int) -> str:
        environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(folder), "FRAMEJIT_KEEP_CAPTURES": "0"}
        done = forked.run(["-W", "error", script, *sizes], env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert "'lower'" in run(5, 6)
    assert run(7, 8, 9) == "['record']"


def test_expressions_and_conditions_come_back_as_they_were():
    n, m = Symbol("n", 5, (2, 100)), Symbol("m", 7, (2, 100))
    a, b = Expression.of(n), Expression.of(m)
    one, four = Expression.constant(1), Expression.constant(4)
    expressions = [
        Expression.constant(0), Expression.constant(-3), a * b + a * a - b, (a + one) // b, a % four, a.maximum(b),
    ]
    for expression in expressions:
        assert read_expression(written_expression(expression, {n: 0, m: 1}), [n, m]) == expression
        condition = Condition(expression, "<", False)
        assert read_condition(written_condition(condition, {n: 0, m: 1}), [n, m]) == condition
    for wrong in (None, [1], [[1, 2]], [["a", 0]], [[1, ["**", [], []]]], [[1, -1]], [[1, True]]):
        with pytest.raises(BadRecord):
            read_expression(wrong, [n, m])
