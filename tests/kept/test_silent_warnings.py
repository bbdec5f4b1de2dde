"""Captures of code that warns are kept, with whether anybody is shown the warning."""

from __future__ import annotations

import warnings

import pytest
from kept.processes import Run, one_folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield


PROGRAM = """
import warnings
import torch

class Own(UserWarning):
    pass

args = (torch.ones(3),)

def target(x):
    warnings.warn("a text", Own)
    return x * 2 + 1
"""


def run(action):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter(action)
        made = Run(PROGRAM)
    return made, len(seen)


def test_what_is_ignored():
    first, seen = run("ignore")
    assert first.captured and not seen
    second, seen = run("ignore")
    assert not second.captured and not seen


def test_what_is_shown():
    assert run("ignore")[0].captured
    shown, seen = run("always")
    assert shown.captured and seen == 3  # by plain Python, and by both calls
    shown, seen = run("always")
    assert not shown.captured and seen == 3
    assert not run("ignore")[0].captured
