"""What a capture looked at is noticed when it changes: the mutator's own test, and a few programs."""
from __future__ import annotations

import pytest
import torch

import framejit
from tests.attack.generator.program import Program
from tests.attack.mutation import mutate as mutator

TEXT = """
import torch
SCALE = 2


class Box:
    scale = 3

    def __init__(self):
        self.factor = 2


box = Box()


def fn(x, n=2, items=(1, 2)):
    return x * SCALE * n + box.factor + Box.scale + len(items) + sum(items), x.stride(), x.requires_grad


def call_0(invoke):
    return invoke(torch.arange(6.0).reshape(2, 3), 2, [1, 2])
"""


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_every_change_is_noticed(backend, monkeypatch):
    monkeypatch.setattr(mutator, "MOST", 150)
    assert mutator.mutate(Program(0, TEXT, backend, {})) is None


@pytest.mark.parametrize("changed", ["SCALE", "factor", "args"])
def test_a_change_that_goes_unnoticed_is_found(changed, monkeypatch):
    """A function that remembers its first answers for a place stands in for one without the guard."""
    known = {
        "SCALE": lambda world: None,
        "factor": lambda world: world.globals["box"].factor,
        "args": lambda world: world.globals["SCALE"],
    }
    original = mutator.World

    def world(name, text, optimize=None, **options):
        made = original(name, text, None, **options)
        if optimize is not None:
            answers, plain = {}, made.fn

            def remembering(*args):
                key = known[changed](made)
                if key not in answers:
                    answers[key] = plain(*args)
                return answers[key]

            made.fn = remembering
        return made

    monkeypatch.setattr(mutator, "World", world)
    monkeypatch.setattr(mutator, "MOST", 150)
    assert mutator.mutate(Program(0, TEXT, "eager", {})) is not None


def test_places_are_written_and_put_back():
    from tests.attack.mutation.places import places, read, words, write

    root = {"a": [1, (2, {"k": 3})], "module": torch.nn.Linear(2, 2)}
    found = {words(path): path for path, _ in places(root)}
    assert {"['a'][1][1]['k']", "['module'].weight", "['module'].training"} <= set(found)
    undo = write(root, found["['a'][1][0]"], 9)
    assert root["a"][1][0] == 9 and read(root, found["['a'][1][0]"]) == 9
    undo()
    assert root["a"][1][0] == 2
    assert framejit.config.recompile_limit < 1000


ENDLESS = """
import torch


def fn(x, n):
    i = 0
    while i != n:
        try:
            i += 1
        except Exception:
            pass
    return x + i


def call_0(invoke):
    return invoke(torch.ones(2), 2)
"""


def test_a_change_that_makes_a_program_endless_ends_it(monkeypatch):
    monkeypatch.setattr(mutator, "MOST", 150)
    monkeypatch.setattr(mutator, "SECONDS", 0.5)
    assert mutator.mutate(Program(0, ENDLESS, "eager", {})) is None
    with pytest.raises(mutator.EndlessError), mutator.at_most(0.1):
        while True:
            pass
