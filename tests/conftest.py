"""Markers, what `--quick` and `--until` leave out, a clean framejit before and after each test, and fixed seeds."""
from __future__ import annotations

import compileall
import gc
import os
import pathlib
import random
import sys
import tempfile
import time
from typing import Final

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # `from support import check` works from every folder of tests

MARKERS = {
    "soundness": "CPython's own test modules run under `framejit run`",
    "slow": "takes more than a few seconds",
    "model": "builds a real model of another library",
    "process": "starts processes that import torch, and so takes seconds though it tests little",
    "gpu": "needs a GPU, from `framejit.optimize` to the results of kernels",
}
LONG = ("slow", "soundness", "model", "process")
ALWAYS = pytest.StashKey[set[pytest.Item]]()
TOO_LATE = "the time of this run is over"
QUICK = 3
"""So many tests of each file run with `--quick`, at most."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help=f"at most {QUICK} tests of each file, none of which is long, and one case of each",
    )
    parser.addoption(
        "--until",
        type=float,
        help="from this time on, in seconds since 1970, only tests that --quick runs: an end for machines at a crawl",
    )


def pytest_collection(session: pytest.Session) -> None:
    """What torch and framejit are made of is garbage at no time, and half of what tests of lifetimes took was to look
    through it again and again."""
    # a process that runs tests itself
    if hasattr(session.config, "workerinput") or not session.config.getoption("numprocesses", None):
        import torch  # noqa: F401

        import framejit  # noqa: F401

        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.getoption("--until")
    if until is not None and time.time() > until and item not in item.config.stash[ALWAYS]:
        pytest.skip(TOO_LATE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    late = sum(TOO_LATE in str(report.longrepr) for report in terminalreporter.getreports("skipped"))
    if late:
        terminalreporter.write_line(f"the time was over (--until): {late} tests were not run", red=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Nor what the tests of other files have left: the tests themselves, and the libraries that some of them import,
    come to many times what there was at first."""
    global _path
    if item.path != _path:
        _path = item.path
        gc.collect()
        gc.freeze()


_path: pathlib.Path | None = None


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries complain at the end of what was not collected


COMPILING: Final = frozenset(("fuse", "graph", "kept", "models", "training"))
"""The rooms whose tests are of what is compiled. What framejit warns of, it could not do: none of them is to pass on
the eager result without saying so. (The wall of operators looks itself at what became of each.)"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if COMPILING.intersection(item.path.parts) and "operators" not in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("error::framejit.errors.FramejitWarning"), append=False)
        # of tests/native/fake_cuda.py: a process, which finds another driver
        if "fake_driver" in getattr(item, "fixturenames", ()):
            item.add_marker("process")
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="needs a GPU"))
    kept = config.stash[ALWAYS] = set(_quick(items))
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    if hasattr(config, "workerinput"):  # of several processes: a file that takes long is not to be the last one of all
        long = {item.path for item in items if any(map(item.get_closest_marker, LONG))}
        if config.getoption("--until") is None:
            items.sort(key=lambda item: item.path not in long)
        else:
            spread = _spread(list(dict.fromkeys(item.path for item in items)), long)
            items.sort(key=lambda item: spread[item.path])


def _spread(files: list[pathlib.Path], long: set[pathlib.Path]) -> dict[pathlib.Path, float]:
    """Where in the order of files each one comes, if those that take long are spread evenly over the others: what a
    run that is cut off has done by then is a part of either kind."""
    kinds = ([file for file in files if file not in long], [file for file in files if file in long])
    return {file: (i + 0.5) / len(kind) for kind in kinds for i, file in enumerate(kind)}


def _quick(items: list[pytest.Item]) -> list[pytest.Item]:
    """Tests of each file, spread over it, since tests of one thing stand together."""
    cases: dict[pathlib.Path, dict[str, pytest.Item]] = {}
    for item in items:
        if not any(map(item.get_closest_marker, LONG)):
            cases.setdefault(item.path, {}).setdefault(item.nodeid.partition("[")[0], item)
    return [
        tests[i]
        for file in cases.values()
        for tests in [list(file.values())]
        for i in range(0, len(tests), -(-len(tests) // QUICK))
    ]


def _own_cache() -> tempfile.TemporaryDirectory[str] | None:
    """The folder of the tests' cache: the user's own is neither read nor filled."""
    # Tests count captures, and the cases of one test have the same code. Kept captures have a room of their own,
    # tests/kept; FRAMEJIT_KEEP_CAPTURES=1 has all tests use them.
    os.environ.setdefault("FRAMEJIT_KEEP_CAPTURES", "0")
    os.environ.setdefault("FRAMEJIT_COMPILE_AFTER", "0")  # scripts of tests call what they are about once
    if "FRAMEJIT_CACHE_DIR" in os.environ:
        return None
    folder = tempfile.TemporaryDirectory(prefix="framejit-tests-")
    os.environ["FRAMEJIT_CACHE_DIR"] = folder.name
    return folder


os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Of this process, whose tests that want more say so, and of those it starts: threads that wait for a busy machine take
longer than all the work."""

CACHE = _own_cache()  # now: a room's own conftest may import framejit before pytest is configured


def pytest_configure(config: pytest.Config) -> None:
    if CACHE is not None:
        config.add_cleanup(CACHE.cleanup)
    if not hasattr(config, "workerinput"):
        # where Python writes no bytecode, each process that a test starts would compile all of framejit that it imports
        for room in ("framejit", "guards", "backends"):
            compileall.compile_dir(pathlib.Path(__file__).parents[1] / room, quiet=2)
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def torch_state() -> dict[str, object]:
    """What of torch's state in this thread, and in the process, changes what operations do. A test that leaves it
    changed changes the tests after it."""
    import torch

    return {
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "included dispatch keys": str(torch._C._dispatch_tls_local_include_set()),
        "excluded dispatch keys": str(torch._C._dispatch_tls_local_exclude_set()),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast dtype": torch.get_autocast_dtype("cpu"),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "anomaly detection": torch.is_anomaly_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "mkldnn": torch.backends.mkldnn.enabled,
    }


@pytest.fixture(autouse=True)
def clean_slate():
    import torch

    import framejit
    from framejit.backends.fuse.graph.passes import pipeline

    from support import seed

    pipeline.always_checked = True
    framejit.reset()
    torch.set_num_threads(1)
    seed()
    random.seed(0)
    before = torch_state()
    yield
    framejit.reset()
    left = {name: (was, is_now) for (name, was), is_now in zip(before.items(), torch_state().values()) if was != is_now}
    assert not left, f"the test left torch's state changed, name: (before, after): {left}"
