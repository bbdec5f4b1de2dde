"""Programs that run as `python ...` does, but in a fork of a process that has imported torch, and what else it is to
have, since that import takes longer than most programs.

`run` stands for `subprocess.run`. What tests importing itself, options of Python's, or what a library reads from the
environment before torch is there needs a process of its own.
"""
from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from functools import partial
from typing import IO, Any

AT_START = (
    "PYTHONHASHSEED", "PYTHONMALLOC", "OMP_NUM_THREADS", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "ATEN_CPU_CAPABILITY",
)
"""The environment that is looked at before a program begins: one server for each."""


# ---- in the tests --------------------------------------------------------------------------------------------------


def run(arguments: list[Any], **how: Any) -> subprocess.CompletedProcess[str]:
    """What became of `python arguments...`: a script, `-c text` or `-m module`, with what follows it, and options `-W`
    before. What `run_at_once` takes, it takes too."""
    done, = run_at_once(1, arguments, **how)
    return done


def run_at_once(
    times: int, arguments: list[Any], *, cwd: os.PathLike[str] | str | None = None, env: dict[str, str] | None = None,
    timeout: float, errors: str = "strict", together: bool = False, having: tuple[str, ...] = ()
) -> list[subprocess.CompletedProcess[str]]:
    """What became of so many processes of one program that ran beside each other. `together`: what it writes to
    standard error stands among its standard output. `having`: modules that are imported as it begins."""
    command, environment = list(map(str, arguments)), dict(os.environ if env is None else env)
    assert not command[0].startswith("-") or command[0] in ("-c", "-m", "-W"), (
        "other options of Python need a process of its own"
    )
    server = _server({name: environment[name] for name in AT_START if name in environment}, having)
    with tempfile.TemporaryDirectory() as folder:
        files = [
            [str(pathlib.Path(folder, f"{name}{i}")) for name in ("stdout", "stdout" if together else "stderr")]
            for i in range(times)
        ]
        statuses = server.ask(
            {"arguments": command, "cwd": os.fspath(cwd or os.getcwd()), "environment": environment, "files": files},
            timeout,
        )
        texts = [[pathlib.Path(file).read_text(errors=errors) for file in pair] for pair in files]
    if together:
        texts = [[stdout, ""] for stdout, _ in texts]
    if statuses is None:
        raise subprocess.TimeoutExpired(command, timeout, *map("".join, zip(*texts)))
    return [
        subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), *written)
        for status, written in zip(statuses, texts)
    ]


class _Server:
    """A process that has torch, and forks for each program."""

    def __init__(self, environment: dict[str, str], having: tuple[str, ...]) -> None:
        self.channel, theirs = socket.socketpair()
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FRAMEJIT", "PYTHON")) and name not in AT_START
        }
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *having], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**inherited, **environment},
            )
        # without a buffer, in which select would not see an answer that came together with the one before
        self.replies = self.channel.makefile("rb", buffering=0)
        self.answers = True
        atexit.register(self.close)

    def ask(self, request: dict[str, Any], timeout: float) -> list[int] | None:
        """The status of each process of the program; None where one did not end in time."""
        self.answers = False  # if what follows is interrupted, the next answer would be this one's
        self.channel.sendall(json.dumps(request).encode() + b"\n")
        pids = json.loads(self.replies.readline())
        ready: list[object] = []
        try:
            ready, _, _ = select.select([self.channel], [], [], timeout)
        finally:
            if not ready:
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):  # it ended just now
                        os.kill(pid, signal.SIGKILL)
        statuses = json.loads(self.replies.readline())
        self.answers = True
        return statuses if ready else None

    def close(self) -> None:
        self.replies.close()
        self.channel.shutdown(socket.SHUT_RDWR)
        self.channel.close()
        self.process.wait()


_servers: dict[tuple[object, ...], _Server] = {}


def _server(environment: dict[str, str], having: tuple[str, ...]) -> _Server:
    key = *environment.items(), *having
    if key not in _servers or not _servers[key].answers:
        _servers[key] = _Server(environment, having)
    return _servers[key]


# ---- in the server -------------------------------------------------------------------------------------------------


def _serve(channel: socket.socket, requests: IO[str]) -> dict[str, Any]:
    """Returns in each child, with what it is to run; the server itself ends here."""
    for line in requests:
        request = json.loads(line)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads that numpy's library started: they do nothing here
            pids = []
            for files in request["files"]:
                pids.append(os.fork())
                if pids[-1] == 0:
                    return {**request, "files": files}
        channel.sendall(json.dumps(pids).encode() + b"\n")
        # all have ended before any number is free for another process
        for pid in pids:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        channel.sendall(json.dumps([os.waitpid(pid, 0)[1] for pid in pids]).encode() + b"\n")
    os._exit(0)


def _become(request: dict[str, Any], paths: list[str]) -> Callable[[], Any]:
    """Makes this child what the program finds when it begins; what runs it."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for fd, file in enumerate(request["files"], 1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, fd)
        os.close(opened)
    how, *rest = request["arguments"]
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.warnoptions[:] = filter(None, os.environ.get("PYTHONWARNINGS", "").split(","))
    while how == "-W":
        sys.warnoptions.append(rest[0])
        how, *rest = rest[1:]
    warnings._processoptions(sys.warnoptions)  # type: ignore[attr-defined]
    first = {"-c": "", "-m": os.getcwd()}.get(how, os.path.dirname(os.path.abspath(how)))
    unsafe = [] if os.environ.get("PYTHONSAFEPATH") else [first]
    sys.path[:] = [
        *unsafe,
        *(os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path),
        *paths,
    ]
    sys.argv[:] = [how, *rest[1:]] if how in ("-c", "-m") else [how, *rest]
    sys.orig_argv[:] = [sys.executable, *request["arguments"]]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if how == "-m":
        return partial(runpy._run_module_as_main, rest[0])  # type: ignore[attr-defined]
    file = "<string>" if how == "-c" else os.path.abspath(how)
    if how != "-c":
        main.__file__ = file
    return partial(
        exec,
        compile(rest[0] if how == "-c" else pathlib.Path(file).read_text(), file, "exec", dont_inherit=True),
        vars(main),
    )


def _main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    paths = sys.path[1:]  # without the folder of this file
    for name in ("torch", *sys.argv[2:]):
        importlib.import_module(name)

    # what children collect is their own; to look through all of torch at their end took longer than they do
    gc.freeze()

    requests = channel.makefile("r")
    request = _serve(channel, requests)
    requests.close()
    channel.close()
    try:
        _become(request, paths)()
    except Exception as error:  # told without the frames of this file
        error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


if __name__ == "__main__":
    _main()
