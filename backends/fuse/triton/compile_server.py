"""A process that compiles kernels for another one: Triton's modules imported once, and forks that share them.

It is run as a script, by path, so that it imports neither framejit nor torch: what it needs of framejit's it finds
beside itself. It ends when whoever started it has ended, or asks for nothing any more.
"""
from __future__ import annotations

import gc
import importlib.util
import multiprocessing
import os
import sys
import threading
import types
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

ROOM = "framejit.backends.fuse.triton"


def main(socket: int) -> None:
    """Serves at a socket. What comes first is where to look for modules, how many processes compile, and for how many
    seconds it waits for another job before it ends; then jobs, each with a number. What goes back is True once Triton
    is there, then for each job its number and machine code; None if Triton raises, for not all that it raises can be
    sent."""
    connection = Connection(socket)
    sys.path[:], workers, idle_seconds = connection.recv()
    gc.disable()
    passes = _module("passes")
    _module("device")  # whose functions kernels call
    passes.import_triton()
    for thread in threading.enumerate():  # what asks ptxas for its version: forks have no other thread
        if thread is not threading.main_thread():
            thread.join()
    gc.freeze()  # nothing of this is garbage: forks do not look, and so do not copy
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), partial(_die_with, os.getpid())) as pool:
        pool.submit(int).result()  # all of them are there from now on
        connection.send(True)
        running: set[Future[object]] = set()
        while connection.poll(idle_seconds) or running:
            if not connection.poll(0):
                continue
            try:
                number, job = connection.recv()
            except EOFError:
                break
            future = pool.submit(_machine_code, job)
            running.add(future)
            future.add_done_callback(partial(_answer, connection, running, number))
        pool.shutdown(cancel_futures=True)  # nobody waits for them any more


def _module(name: str) -> types.ModuleType:
    """A module of this folder under its own name, in packages that hold nothing else."""
    package = ""
    for part in ROOM.split("."):
        package = f"{package}.{part}".lstrip(".")
        sys.modules.setdefault(package, types.ModuleType(package)).__path__ = []
    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{ROOM}.{name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"{ROOM}.{name}"] = module
    spec.loader.exec_module(module)
    return module


def _machine_code(job: Any) -> Any:
    outcome = sys.modules[f"{ROOM}.passes"].outcome(job)
    return None if isinstance(outcome, Exception) else outcome


def _answer(connection: Connection, running: set[Future[object]], number: int, future: Future[object]) -> None:
    """Called by the pool's one thread that hears of outcomes."""
    running.discard(future)
    try:
        connection.send((number, future.result()))
    except OSError:  # nobody waits for it any more
        pass
    except BaseException:  # a fork was killed
        os._exit(1)  # whoever waits compiles by itself


def _die_with(parent: int) -> None:
    """Has the system end this process when the one that forked it ends, by whatever: it would wait for ever."""
    import ctypes
    import signal

    PR_SET_PDEATHSIG = 1  # prctl(2)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
