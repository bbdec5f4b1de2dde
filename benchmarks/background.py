"""How long calls take until a model's compiled code serves: compiled in the first call, by a thread beside the calls,
and by a copy of the process (`optimize(background=True)`); each in a fresh process with an empty cache.

    python benchmarks/background.py [--models bert,resnet18]

`longest` is the longest call, `most` the median of the calls while something is compiled, `until` the seconds until
compiled code serves. The thread compiles another dispatcher of the model and hands nothing over: it shows what its hold
on the interpreter's lock does to calls.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

WAYS = ("plain", "in the call", "thread", "process")
_LIMIT_S = 60.0


def model(name: str) -> tuple[Any, Any]:
    """A model and its input."""
    import torch

    if name == "bert":
        import transformers

        return transformers.BertModel(transformers.BertConfig()).eval(), torch.randint(0, 30000, (1, 32))
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
    import torchvision_shim

    return torchvision_shim.torchvision.models.resnet18().eval(), torch.randn(1, 3, 64, 64)


def measure(name: str, way: str) -> None:
    """Prints the row of one process."""
    import torch

    import framejit

    made, given = model(name)
    times = list[float]()

    def call(fn: Any) -> None:
        start = time.perf_counter()
        fn(given)
        times.append(time.perf_counter() - start)

    with torch.no_grad():
        for _ in range(5):
            made(given)
        started = time.perf_counter()
        if way in ("plain", "in the call"):
            optimized = made if way == "plain" else framejit.optimize(made)
            for _ in range(20 if way == "plain" else 1):
                call(optimized)
        elif way == "thread":
            beside = threading.Thread(target=torch.no_grad()(lambda: framejit.optimize(made)(given)))
            beside.start()
            while beside.is_alive():
                call(made)
        else:
            optimized = framejit.optimize(made, background=True)
            while time.perf_counter() - started < _LIMIT_S:
                call(optimized)
                if any(event.kind == "frame_done" for event in framejit.events.events()):
                    break
    print(
        f"{name:10} {way:12} longest {max(times):6.3f} s  most {statistics.median(times):6.3f} s  "
        f"until {time.perf_counter() - started:6.2f} s"
    )


def main() -> None:
    """Measures all ways of all models, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="bert,resnet18")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in options.models.split(","):
        if options.way:
            measure(name, options.way)
            continue
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run(
                    [sys.executable, __file__, "--models", name, "--way", way], check=True,
                    env={
                        "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **os.environ, "FRAMEJIT_CACHE_DIR": folder,
                    },
                )


if __name__ == "__main__":
    main()
