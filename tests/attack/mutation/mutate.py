"""Captures a program's first call, then changes one thing at a time that the call can look at: the next call must
notice."""
from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Callable
from typing import Any

import torch

import framejit
from framejit.backends.fuse.thread_state import default_dtype
from tests.attack.compare import Difference, Watch, difference_of, optimizing
from tests.attack.generator.program import Program
from tests.attack.mutation.mutants import Mutant, mutants
from tests.attack.mutation.places import Path, places, read, words, write
from tests.attack.world import World, quiet_collector

MODES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default dtype": lambda: default_dtype(torch.float64),
    "deterministic": lambda: deterministic(),
}
MOST = 30  # changes of one program
# after which a changed program is taken to run for ever in plain Python too: a count of 2**40 may be one of turns
SECONDS = 10.0


class EndlessError(BaseException):
    """The program takes too long; no `except Exception` of its own catches this."""


@contextlib.contextmanager
def at_most(seconds: float) -> Any:
    def stop(number: int, frame: Any) -> None:
        raise EndlessError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def deterministic() -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def roots(world: World, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    fn = world.globals["fn"]
    state = {
        name: value for name, value in world.globals.items() if name not in world.hidden and not name.startswith("__")
    }
    return {"args": list(args), "kwargs": kwargs, "globals": world.globals, "own": state, "fn": fn}


class Change:
    """One place and what is put there; both worlds are changed alike."""

    def __init__(self, path: Path, mutant: Mutant) -> None:
        self.path, (self.name, self.make) = path, mutant
        self.undo: list[Callable[[], None]] = []

    def __str__(self) -> str:
        return f"{words(self.path)}: {self.name}"

    def __call__(
        self, world: World, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        root = roots(world, args, kwargs)
        path = self.path if self.path[0] != ("item", "own") else (("item", "globals"), *self.path[1:])
        self.undo.append(write(root, path, self.make(read(root, path))))
        return tuple(root["args"]), root["kwargs"]


def changes(world: World, rng: random.Random) -> list[Change]:
    """All that the first call can look at, each with every change, in random order."""
    found: list[Change] = []

    def look(of: World, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        root = roots(of, args, kwargs)
        del root["globals"]
        for path, value in places(root):
            found.extend(Change(path, mutant) for mutant in mutants(value) if len(path) > 1)
        return args, kwargs

    world.call(0, look)
    rng.shuffle(found)
    return found


def mutate(program: Program) -> Difference | None:
    """The first change that a compiled call does not notice, or None."""
    framejit.reset()
    name = f"program_{program.seed}"
    rng = random.Random(program.seed)
    with quiet_collector(), Watch() as watch, framejit.config.patch(recompile_limit=1000):
        eager = World(name, program.text)
        compiled = World(name, program.text, optimizing(program))
        todo = changes(eager, rng)[:MOST]
        compiled.call(0)  # as often as eager: what the call changes it has changed once on both sides
        for mode in (None, *MODES):
            around = MODES[mode] if mode else contextlib.nullcontext
            difference = step(program, watch, eager, compiled, None, around)
            if difference:
                return named(difference, mode or "nothing")
        for change in todo:
            try:
                difference = step(program, watch, eager, compiled, change, contextlib.nullcontext)
            except EndlessError:
                return None  # the worlds differ by what one did before it was stopped
            for undo in change.undo:
                with contextlib.suppress(Exception):
                    undo()
            difference = difference or step(program, watch, eager, compiled, None, contextlib.nullcontext)
            if difference:
                return named(difference, str(change))
    return None


def named(difference: Difference, change: str) -> Difference:
    difference.message = f"after a change of {change}: {difference.message}"
    return difference


def step(
    program: Program, watch: Any, eager: World, compiled: World, change: Change | None, around: Callable[[], Any]
) -> Difference | None:
    watch.clear()
    with around():
        with at_most(SECONDS):
            expected = eager.call(0, change)
        got = compiled.call(0, change)
    if not expected.called and not got.called:
        return None  # the change itself was not possible
    return watch.internal(0) or difference_of(program, 0, expected, got, watch.captured, lifetimes=False)
