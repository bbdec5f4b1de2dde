"""Threads that compile, call, reset and drop random programs and shared functions at once, and compare every call with
plain Python."""
from __future__ import annotations

import contextlib
import faulthandler
import io
import random
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import framejit
from tests.attack.compare import Strict, mismatch
from tests.attack.generator.program import program
from tests.attack.world import World

STUCK = 240.0  # seconds without a step: threads wait for each other
# what the process has only one of: calls of several threads would see each other's
SHARED_STATE = (
    "rand", "seed", "dropout", "default_dtype", "bernoulli", "uniform_", "normal_", "stdout", "Dropout", "data_ptr",
    "empty", "multinomial",
)
TEMPLATE = """
def shared(x, y, n=2, mode='a'):
    total = x
    for i in range(n):
        total = total * 2 + y[: len(x)] - i
    if mode == 'a':
        return total.relu().sum(-1), x.shape[0]
    rows = [row.sin() for row in total]
    rows[0] += 1
    return torch.stack(rows), {'n': n, mode: total.mean()}
"""


@dataclass
class Soak:
    """What the threads share, and what they found."""

    seconds: float
    threads: int = 16
    seed: int = 0
    differences: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)  # what plain Python answers in two ways
    suspects: list[tuple[int, str]] = field(default_factory=list)
    steps: int = 0
    last: dict[int, float] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Differences and hangs; empty when all went well."""
        self.end = time.monotonic() + self.seconds
        self.lock = threading.Lock()
        namespace: dict[str, Any] = {"torch": torch}
        exec(TEMPLATE, namespace)
        self.plain: Callable[..., Any] = namespace["shared"]
        self.shared = framejit.optimize(self.plain, backend="eager")
        threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(self.threads)]
        # Where threads make the first calls of MKL's vector functions at once, some get few digits: in plain torch, 16
        # threads, a sine was 5e-9 off in 4 of 2,442 processes, and in none of 1,444 that had made such a call before.
        warm_up = torch.linspace(0.1, 0.9, 64, dtype=torch.float64)
        for function in (torch.sin, torch.cos, torch.exp, torch.log, torch.tanh, torch.erf, torch.sqrt, torch.sigmoid):
            function(warm_up), function(warm_up.float())
        with contextlib.redirect_stdout(io.StringIO()):
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.1)
                late = [i for i, when in self.last.items() if time.monotonic() - when > STUCK and threads[i].is_alive()]
                if late:
                    faulthandler.dump_traceback(all_threads=True)
                    return [*self.differences, f"threads {late} hang"]
        return self.differences + [text for seed, found in self.suspects for text in self.alone(seed, found)]

    def work(self, i: int) -> None:
        rng = random.Random(self.seed * 1000 + i)
        while time.monotonic() < self.end:
            self.last[i] = time.monotonic()
            self.steps += 1
            try:
                action = rng.random()
                if action < 0.03:
                    framejit.reset()
                elif action < 0.6:
                    self.call_shared(rng)
                else:
                    self.one_program(rng.randrange(100_000))
            except Exception:
                self.differences.append(traceback.format_exc())

    def call_shared(self, rng: random.Random) -> None:
        rows, columns = rng.randint(1, 5), rng.choice([3, 4, 8])
        x = torch.arange(float(rows * columns), dtype=rng.choice([torch.float32, torch.float64])).view(rows, columns)
        self.compare_shared(x, x.flip(0) * 0.5, rng.randint(0, 4), rng.choice("ab"))

    def compare_shared(self, *arguments: Any) -> None:
        """Where the answers differ, both sides are asked once more: torch itself may give another last digit, or worse,
        to the same question, and what plain Python answers in two ways says nothing of framejit."""
        plain = self.plain(*arguments)
        text = _differ(plain, self.shared(*arguments))
        if text is None:
            return
        again = self.plain(*arguments)
        unsteady = _differ(plain, again)
        if unsteady is not None:
            self.unsteady.append(unsteady)
        else:
            self.differences.append(f"{text}; once more: {_differ(again, self.shared(*arguments)) or 'equal'}")

    def one_program(self, seed: int) -> None:
        made = program(seed, calls=3)
        if any(word in made.text.split("def call_0")[0] for word in SHARED_STATE):
            return
        found = self.differs(seed)
        if found:
            self.suspects.append((seed, found))

    def differs(self, seed: int) -> str | None:
        made = program(seed, calls=3)
        with self.lock:  # random numbers and captured output are the process's
            plain = World(f"program_{seed}", made.text)
            compiled = World(f"program_{seed}", made.text)
        optimized = framejit.optimize(compiled.fn, backend=made.backend, **made.options)
        for i in range(len(plain.calls)):
            with self.lock:
                one, two = (arguments_of(world, i) for world in (plain, compiled))
            if one is None or two is None:
                return None
            a, b = outcome(plain.fn, *one), outcome(optimized, *two)
            text = mismatch(Strict(exact=False), (a, one), (b, two), f"program {seed}, call {i}")
            if text:
                return text
        return None

    def alone(self, seed: int, found: str) -> list[str]:
        """A program that differs without other threads too is no matter of threads."""
        return [] if self.differs(seed) else [f"program {seed} differs among threads and not alone: {found}"]


def _differ(one: Any, other: Any) -> str | None:
    return mismatch(Strict(exact=True), one, other, "shared function")


def arguments_of(world: World, i: int) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a call; None where something has to be around it, or was changed into what raises."""
    found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")

    def invoke(*args: Any, **kwargs: Any) -> None:
        if modes == (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")):
            found.append((args, kwargs))

    torch.manual_seed(i)
    try:
        world.calls[i](invoke)
    except Exception:
        return None
    return found[0] if found else None


def outcome(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad = torch.is_grad_enabled()
    try:
        return fn(*args, **kwargs)
    except Exception as e:
        return type(e)
    finally:
        torch.set_grad_enabled(grad)
