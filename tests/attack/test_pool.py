"""A program that crashes its process, or hangs, is a difference, and the others are compared all the same."""
from __future__ import annotations

import json
import pathlib

import pytest

from tests.attack import pool

pytestmark = pytest.mark.process

ODD = """
import os, sys, time
from tests.attack.checkout import make_importable
make_importable()
from tests.attack import compare, worker
def stand_in(program):
    if program.seed == 1:
        os.abort()
    if program.seed == 2:
        time.sleep(600)
    if program.seed == 3 and compared:
        raise ValueError("an earlier program has spoilt the process")
    compared.append(program.seed)
    return compare.Difference("result", 0, "other") if program.seed == 4 else None
compared = []
compare.compare = stand_in
worker.work(open(int(sys.argv[-2])), open(int(sys.argv[-1]), "w"), False, "cpu")
"""


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    start = pool.subprocess.Popen

    def popen(command: list[str], **options: object) -> object:
        return start([command[0], "-X", "faulthandler", "-c", ODD, *command[-2:]], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(pool.subprocess, "Popen", popen)


def test_crashes_and_hangs_are_differences(odd: None, tmp_path: pathlib.Path) -> None:
    done = pool.Pool(range(6), tmp_path, jobs=1, seconds=5).run()
    assert {seed: outcome["kind"] for seed, outcome in done.items()} == {
        0: "equal", 1: "crash", 2: "hang", 3: "equal", 4: "result", 5: "equal",
    }
    assert "SIGABRT" in done[1]["message"] and "stand_in" in done[1]["message"] and "stand_in" in done[2]["message"]
    lines = [json.loads(line) for line in (tmp_path / "differences.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in lines] == [1, 2, 4] and lines[2]["alone"]


def test_a_second_run_goes_on(odd: None, tmp_path: pathlib.Path) -> None:
    first = pool.Pool([0, 5], tmp_path).run()
    again = pool.Pool([0, 5, 6], tmp_path, minutes=0)
    assert again.done == first and list(again.todo) == [6]
    assert again.run() == first  # no time was left
