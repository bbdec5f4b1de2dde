"""Many programs, some hundred to a process; one that crashes or hangs is found, and the rest go on."""
from __future__ import annotations

import collections
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

BATCH = 200
SECONDS = 120.0  # a program takes one; ten times that on a busy machine
RETRY = 17  # the program that was begun is run again, first in its process
SPAN = 1_000_000  # programs of one SEED


def work(seeds: list[int], out: pathlib.Path, mutated: bool = False) -> None:
    """In a process of its own: a line when a program starts and one with what came of it."""
    import torch

    from tests.attack.compare import Difference, compare
    from tests.attack.generator.program import program
    from tests.attack.mutate import mutate

    torch.set_num_threads(1)
    torch.set_warn_always(True)
    gc.collect()
    gc.freeze()  # collections then look at what programs make
    with out.open("a", buffering=1) as file:
        for seed in seeds:
            file.write(json.dumps({"seed": seed}) + "\n")
            try:
                found = (mutate if mutated else compare)(program(seed))
            except Exception as e:
                if seed != seeds[0]:
                    os._exit(RETRY)  # an earlier program may have left torch in a state it does not recover from
                found = Difference("attack", -1, f"{type(e).__name__}: {e}")
            outcome = {"kind": found.kind, "call": found.call, "message": found.message[:2000], "signature": found.signature} if found else {"kind": "equal"}
            file.write(json.dumps({"seed": seed, **outcome}) + "\n")


def outcomes(path: pathlib.Path) -> tuple[dict[int, dict[str, Any]], int | None]:
    """What came of each program, and the one that was begun and not finished."""
    done: dict[int, dict[str, Any]] = {}
    begun = None
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut off by a crash
        begun = entry["seed"]
        if "kind" in entry:
            done[begun], begun = entry, None
    return done, begun


def attack(programs: int, seed: int, folder: pathlib.Path, seconds: float = SECONDS, mutated: bool = False) -> dict[int, dict[str, Any]]:
    """Runs what has not been run yet of `programs` programs; the folder keeps what is known."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{seed}{'-mutated' if mutated else ''}.jsonl"
    seeds = range(seed * SPAN, seed * SPAN + programs)
    while True:
        done, _ = outcomes(path)
        todo = [s for s in seeds if s not in done][:BATCH]
        if not todo:
            return {s: done[s] for s in seeds}
        run_batch(todo, path, seconds, mutated)
        print(summary(outcomes(path)[0]), flush=True)


def run_batch(todo: list[int], path: pathlib.Path, seconds: float, mutated: bool) -> None:
    log = path.with_suffix(".stderr")
    with log.open("w") as stderr:
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.attack", "batch", *(["--mutate"] if mutated else []), str(path), *map(str, todo)]
        process = subprocess.Popen(command, stdout=stderr, stderr=stderr)
        size, since = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            now = path.stat().st_size if path.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > seconds:
                process.send_signal(signal.SIGABRT)  # faulthandler tells where it hangs
                process.wait()
                begun = outcomes(path)[1]
                if begun is not None:
                    note(path, begun, "hang", trace(log))
                return
    begun = outcomes(path)[1]
    if begun is not None and process.returncode != RETRY:
        code = -(process.returncode or 0)
        note(path, begun, "crash", f"{signal.Signals(code).name if code > 0 else f'exit {-code}'}: {trace(log)}")
    elif begun is None and process.returncode:
        raise RuntimeError(f"a batch ended with {process.returncode}: {log.read_text()[-2000:]}")


def note(path: pathlib.Path, seed: int, kind: str, message: str) -> None:
    with path.open("a") as file:
        file.write("\n" + json.dumps({"seed": seed, "kind": kind, "call": -1, "message": message, "signature": f"{kind}: {message[:90]}"}) + "\n")


def trace(log: pathlib.Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    start = max((i for i, line in enumerate(lines) if "Fatal Python error" in line), default=max(0, len(lines) - 12))
    return "\n".join(lines[start : start + 14])


def summary(done: dict[int, dict[str, Any]]) -> str:
    kinds = collections.Counter(entry["kind"] for entry in done.values())
    wrong = sum(kinds.values()) - kinds["equal"]
    counts = ", ".join(f"{kind} {n}" for kind, n in kinds.most_common() if kind != "equal")
    return f"{sum(kinds.values())} programs, {wrong} differ" + (f": {counts}" if counts else "")


def groups(done: dict[int, dict[str, Any]]) -> Iterator[tuple[str, list[int]]]:
    """Differences that look alike together, the commonest first."""
    found: dict[str, list[int]] = collections.defaultdict(list)
    for seed, entry in done.items():
        if entry["kind"] != "equal":
            found[entry["signature"]].append(seed)
    yield from sorted(found.items(), key=lambda item: -len(item[1]))
