"""Kernels that other processes compile are those that this one would have compiled, whatever happens to these."""
from __future__ import annotations

import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("triton")
from framejit.backends.fuse.triton import compile_processes, passes  # noqa: E402
from framejit.backends.fuse.triton.compile import compile_gpu_kernels  # noqa: E402
from framejit.backends.fuse.triton.kernel_source import TritonSource  # noqa: E402

import forked  # noqa: E402
from support import of_kind, recorded  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")

CODE = """
import triton
import triton.language as tl
from framejit.backends.fuse.triton.device import nan_max


@triton.jit
def kernel(p0, p1):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    tl.store(p1 + i, nan_max(tl.load(p0 + i), {number}){fault})
"""
BEGUN = """
from framejit.backends.fuse.triton import compile_processes
compile_processes.LEAST_CORES = 1
assert compile_processes.begin()
print(compile_processes._server.process.pid, flush=True)
"""


def sources(count: int = compile_processes.FEW_KERNELS, fault: str = "") -> list[TritonSource]:
    signature = (("p0", "*fp32", True), ("p1", "*fp32", True))
    return [
        TritonSource(f"k{n}", CODE.format(number=float(n), fault=fault), "kernel", "", ("x", "y"), signature, 1, 4)
        for n in range(count)
    ]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compile_processes, "LEAST_CORES", 1)
    monkeypatch.setattr(compile_processes, "_unusable", False)
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")  # lines name files of the moment
    yield
    compile_processes._end()


def server() -> int:
    """The process."""
    assert compile_processes._server is not None
    return compile_processes._server.process.pid


def forks_of(pid: int) -> list[int]:
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def have_ended(pids: list[int]) -> bool:
    end = time.monotonic() + 20
    while any(map(runs, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(runs, pids))


def runs(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_machine_code_is_the_same(processes: None) -> None:
    wanted = compile_gpu_kernels(sources(), 90, processes=False)
    with recorded() as log:
        assert compile_gpu_kernels(sources(), 90) == wanted
        assert compile_gpu_kernels(sources()[::-1], 90) == wanted[::-1]
    assert runs(server()) and not of_kind(log, "kernel_failed")
    assert "libtorch" not in pathlib.Path(f"/proc/{server()}/maps").read_text()


def test_what_triton_raises_is_raised_here(processes: None) -> None:
    bad = sources(1, fault=".no_such_thing")
    good, [wanted] = sources(), compile_gpu_kernels(bad, 90, processes=False)
    found = compile_gpu_kernels([good[0], *bad, *good[1:]], 90)
    assert type(found[1]) is type(wanted) and str(found[1]).partition(":")[0] == str(wanted).partition(":")[0]
    assert found[1].__notes__ == ["while compiling the GPU kernel k0"]
    assert [found[0], *found[2:]] == compile_gpu_kernels(good, 90, processes=False)


def test_few_kernels_wait_for_none(processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_gpu_kernels(sources(1), 90)
    assert compile_processes._server is None
    compile_gpu_kernels(sources(), 90)
    assert compile_processes._server is not None and compile_processes._server.is_ready
    with monkeypatch.context() as once:
        once.setattr(passes, "outcome", None)  # which threads would call
        compile_gpu_kernels(sources(1), 90)


def test_none_where_cores_are_few(processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_processes, "LEAST_CORES", 1 << 20)
    assert not compile_processes.begin() and compile_processes.outcomes([]) is None


@pytest.mark.parametrize("victim", ["server", "fork"])
def test_killed_while_it_compiles(victim: str, processes: None) -> None:
    wanted = compile_gpu_kernels(sources(), 90, processes=False)
    compile_gpu_kernels(sources(), 90)
    pid, forks = server(), forks_of(server())
    assert forks
    for each in forks:  # nothing of what follows is compiled before
        os.kill(each, signal.SIGSTOP)

    def kill() -> None:
        time.sleep(0.2)
        os.kill(pid if victim == "server" else forks[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with recorded() as log:
        assert compile_gpu_kernels(sources(), 90) == wanted
    thread.join()
    [told] = of_kind(log, "kernel_failed")
    assert "threads" in told.instead
    assert have_ended([pid, *forks])
    assert compile_gpu_kernels(sources(), 90) == wanted and server() != pid  # another one


def test_one_that_can_not_be_started(processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert not compile_processes.begin()
    assert compile_gpu_kernels(sources(), 90) == compile_gpu_kernels(sources(), 90, processes=False)


def test_one_that_does_not_find_triton(processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(sys, "path", [each for each in sys.path if "site-packages" not in each])
        assert compile_processes.begin()
    with recorded() as log:
        outcomes = compile_gpu_kernels(sources(), 90)
    assert outcomes == compile_gpu_kernels(sources(), 90, processes=False)
    assert len(of_kind(log, "kernel_failed")) == 1 and not compile_processes.begin()


def test_one_that_does_not_answer(processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_processes, "SECONDS_A_KERNEL", 0.2)
    compile_gpu_kernels(sources(), 90)
    pid = server()
    for each in forks_of(pid):
        os.kill(each, signal.SIGSTOP)
    assert compile_gpu_kernels(sources(), 90) == compile_gpu_kernels(sources(), 90, processes=False)
    assert have_ended([pid])


def test_one_that_had_nothing_to_do_ends(processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_processes, "IDLE_SECONDS", 0.1)
    wanted = compile_gpu_kernels(sources(), 90)
    pid, forks = server(), forks_of(server())
    assert have_ended([pid, *forks])
    assert compile_gpu_kernels(sources(), 90) == wanted and server() != pid


def test_an_interrupt_leaves_no_answers_behind(processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_gpu_kernels(sources(), 90)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(compile_processes._Server, "_received", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compile_gpu_kernels(sources(), 90)
    assert compile_gpu_kernels(sources()[:2], 90) == compile_gpu_kernels(sources()[:2], 90, processes=False)


@pytest.mark.parametrize("end", ["", "import os\nos._exit(0)", "import os\nos.kill(os.getpid(), 9)"])
def test_it_ends_with_the_program(end: str) -> None:
    done = forked.run(["-c", BEGUN + end], timeout=300)
    assert have_ended([int(done.stdout)]), done.stderr


def test_a_fork_of_the_program_has_none() -> None:
    program = BEGUN + """
import os
child = os.fork()
if child == 0:
    os._exit(compile_processes._server is not None)
assert os.waitpid(child, 0)[1] == 0
assert not compile_processes._server.has_ended
"""
    done = forked.run(["-c", program], timeout=300)
    assert done.returncode == 0, done.stderr
