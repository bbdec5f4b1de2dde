"""Many programs on several processes; one that crashes or hangs is a difference, and the others go on."""
from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import platform
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tests.attack.checkout import ROOT

PROGRAMS = 200  # of one process; what leaks does not add up for ever
SECONDS = 120.0  # a program takes half of one; what takes so much longer hangs
STARTING = 600.0  # importing torch takes seconds, and far more where many do it at once
SPAN = 1_000_000  # programs of one SEED


class Worker:
    """A process that compares one program after another."""

    def __init__(self, mutated: bool, device: str) -> None:
        seeds, self.seeds = os.pipe()
        self.outcomes, outcomes = os.pipe()
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        options = [*(["--mutate"] if mutated else []), "--device", device]
        command = [
            sys.executable, "-X", "faulthandler", "-m", "tests.attack", "work", *options, str(seeds), str(outcomes),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=self.log, stderr=self.log, pass_fds=(seeds, outcomes)
        )
        os.close(seeds)
        os.close(outcomes)
        self.compared = 0

    def compare(self, seed: int, seconds: float) -> dict[str, Any]:
        """What came of a program; a process that is gone afterwards is what came of it."""
        if not self.compared:
            self.line(STARTING)
        self.compared += 1
        with contextlib.suppress(BrokenPipeError):
            os.write(self.seeds, f"{seed}\n".encode())
        try:
            text = self.line(seconds)
        except TimeoutError:
            return self.hang()
        return dict(json.loads(text)) if text.endswith("\n") else self.crash()

    def line(self, seconds: float) -> str:
        """What the process says next; cut off where it ended."""
        end, text = time.monotonic() + seconds, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.outcomes, selectors.EVENT_READ)
            while not text.endswith(b"\n"):
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise TimeoutError
                read = os.read(self.outcomes, 65536)
                if not read:
                    break
                text += read
        return text.decode()

    def hang(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGABRT)  # faulthandler tells where
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self.failure("hang", "")

    def crash(self) -> dict[str, Any]:
        code = -self.process.wait()
        return self.failure("crash", f"{signal.Signals(code).name}: " if code > 0 else f"exit {-code}: ")

    def failure(self, kind: str, start: str) -> dict[str, Any]:
        self.log.seek(0)
        lines = self.log.read().splitlines()
        first = max(
            (i for i, line in enumerate(lines) if "Fatal Python error" in line), default=max(0, len(lines) - 12)
        )
        message = start + "\n".join(lines[first : first + 16])
        return {"kind": kind, "call": -1, "signature": f"{kind}: {message[:90]}", "message": message}

    @property
    def spent(self) -> bool:
        return self.compared >= PROGRAMS or self.process.poll() is not None

    def end(self) -> None:
        for pipe in (self.seeds, self.outcomes):
            os.close(pipe)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


class Pool:
    """`jobs` processes for some seeds. The folder keeps every outcome, and each difference as a line of
    `differences.jsonl`."""

    def __init__(
        self, seeds: Iterable[int], folder: pathlib.Path, jobs: int = 1, seconds: float = SECONDS,
        minutes: float | None = None, mutated: bool = False, device: str = "cpu",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        prefix = "mutated-" if mutated else ""
        self.path, self.differences = folder / f"{prefix}outcomes.jsonl", folder / f"{prefix}differences.jsonl"
        self.jobs, self.seconds, self.mutated, self.device = jobs, seconds, mutated, device
        self.end = time.monotonic() + minutes * 60 if minutes is not None else None
        wanted = set(seeds)
        self.done = {seed: outcome for seed, outcome in known(self.path).items() if seed in wanted}
        self.todo = collections.deque(sorted(wanted - set(self.done)))
        self.lock = threading.Lock()

    def run(self) -> dict[int, dict[str, Any]]:
        """Compares what has not been compared yet."""
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(min(self.jobs, len(self.todo)))]
        for thread in threads:
            thread.start()
        told = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
            if time.monotonic() - told > 15:
                told = time.monotonic()
                print(summary(self.done), flush=True)
        return self.done

    def work(self) -> None:
        worker = None
        while (seed := self.next()) is not None:
            if worker is None:
                worker = Worker(self.mutated, self.device)
            outcome = worker.compare(seed, self.seconds)
            if outcome["kind"] != "equal":
                first = worker.compared == 1
                worker.end()
                worker = Worker(self.mutated, self.device)  # what differs may leave its process in a state of its own
                if not first:
                    alone = worker.compare(seed, self.seconds)
                    if outcome["kind"] == "attack" and alone["kind"] == "equal":
                        outcome = alone  # an earlier program had spoilt the process
                    outcome["alone"] = alone["kind"] != "equal"
            self.note(seed, outcome)
            if worker.spent or outcome["kind"] != "equal" or outcome.get("lost"):
                worker.end()
                worker = None
        if worker is not None:
            worker.end()

    def next(self) -> int | None:
        with self.lock:
            return self.todo.popleft() if self.todo and (self.end is None or time.monotonic() < self.end) else None

    def note(self, seed: int, outcome: dict[str, Any]) -> None:
        with self.lock:
            self.done[seed] = outcome
            with self.path.open("a") as file:
                file.write(json.dumps({"seed": seed, **outcome}) + "\n")
            if outcome["kind"] != "equal":
                with self.differences.open("a") as file:
                    file.write(json.dumps({"seed": seed, **outcome, **versions()}) + "\n")


def versions() -> dict[str, str]:
    import torch

    return {"python": platform.python_version(), "torch": str(torch.__version__)}


def known(path: pathlib.Path) -> dict[int, dict[str, Any]]:
    """What earlier runs found out."""
    done: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut off when a run was ended
        done[entry.pop("seed")] = entry
    return done


def summary(done: dict[int, dict[str, Any]]) -> str:
    kinds = collections.Counter(entry["kind"] for entry in list(done.values()))
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
