"""The whole program of a seed."""
from __future__ import annotations

import random
from dataclasses import dataclass

from tests.attack.generator import (
    arguments,
    classes,
    closures,
    containers,
    control_flow,
    data_loops,
    exceptions,
    hashed,
    iteration,
    library,
    modes,
    modules,
    numbers,
    stores,
    tensors,
    views,
)
from tests.attack.generator.builder import Builder, NoFit, Var

FAMILIES = {
    "tensors": tensors.STATEMENTS,
    "views": views.STATEMENTS,
    "control flow": control_flow.STATEMENTS,
    "containers": containers.STATEMENTS,
    "hashed": hashed.STATEMENTS,
    "classes": classes.STATEMENTS,
    "modules": modules.STATEMENTS,
    "exceptions": exceptions.STATEMENTS,
    "closures": closures.STATEMENTS,
    "iteration": iteration.STATEMENTS,
    "modes": modes.STATEMENTS,
    "numbers": numbers.STATEMENTS,
    "library": library.STATEMENTS,
    "stores": stores.STATEMENTS,
}
LOOPS = 1_000_000_000
"""Programs from this number on have a loop that data end, and little else."""
HEAD = """import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import math
import operator
import pathlib
import re
import sys
import typing

import numpy as np
import torch
"""


@dataclass
class Program:
    seed: int
    text: str
    backend: str
    options: dict[str, object]


def program(seed: int, calls: int = 9) -> Program:
    """Few families at a time, so that those that are there meet often."""
    rng = random.Random(seed)
    while True:
        made = _drawn(rng, seed, calls)
        try:
            compile(made.text, f"program_{seed}.py", "exec")
        except SyntaxError:  # Python takes twenty blocks in one another, and no more
            continue
        return made


def _drawn(rng: random.Random, seed: int, calls: int) -> Program:
    loops = seed >= LOOPS
    others = rng.randint(0, 1) if loops else rng.randint(2, 5)
    names = ["tensors", *rng.sample(sorted(set(FAMILIES) - {"tensors"}), others)]
    b = Builder(rng, {name: FAMILIES[name] for name in names}, fixed="modules" in names, budget=rng.randint(8, 40))
    b.uses_grad = rng.random() < 0.3
    b.params = arguments.parameters(b)
    b.variables = [Var(p.name, p.kind) for p in b.params]
    signature = ", ".join(p.name if p.default is None else f"{p.name}={p.default}" for p in b.params)
    b.lines.append(f"def fn({signature}):")
    for _ in range(rng.randint(0, 2) if loops else rng.randint(3, 12)):
        if b.budget > 0:
            b.statement()
    if loops:
        data_loops.data_loop(b)
        b.statements(3)
    b.emit(f"return {result(b)}")
    function = "\n".join(b.lines)
    texts = [arguments.call(b, i, s) for i, s in enumerate(arguments.situations(b, calls))]
    if any("default_dtype(" in text for text in texts):
        b.define(DEFAULT_DTYPE)
    text = "\n\n\n".join([HEAD.rstrip("\n"), *b.definitions, function, *texts]) + "\n"
    options: dict[str, object] = {"dynamic": True} if rng.random() < 0.1 else {}
    return Program(seed, text, "eager" if seed % 2 == 0 else "fuse", options)


DEFAULT_DTYPE = """
@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
"""


def result(b: Builder) -> str:
    """Much of what is there, so that a difference shows."""
    names = [v.name for v in b.variables if v.kind.name != "function"]
    chosen = b.rng.sample(names, min(len(names), b.rng.randint(1, 6)))
    if not chosen:
        raise NoFit
    if len(chosen) == 1:
        return chosen[0]
    return b.choice(
        ", ".join(chosen), "[" + ", ".join(chosen) + "]",
        "{" + ", ".join(f"'{name}': {name}" for name in chosen) + "}", f"{', '.join(chosen)}, {chosen[0]}",
    )
