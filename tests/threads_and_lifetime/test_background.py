"""Compiling beside the program: calls are eager and right until the entry stands, whatever becomes of the compile."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
import weakref

import pytest
import torch

import framejit
from framejit import events
from framejit.backends.fuse import backend
from framejit.background import compiling
from framejit.background.imports_ahead import are_imported
from framejit.errors import FramejitWarning, GraphBreakError, InvalidOption

from comparison import assert_same

LONG_S = 60


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    while not are_imported():
        time.sleep(0.02)
    with framejit.config.patch(keep_captures=True, cache_dir=str(tmp_path / "cache")):
        yield
    framejit.reset()


def states():
    return [event.state for event in events.events("background")]


def settled():
    """Once no worker is under way any more, which the next miss then knows."""
    end = time.monotonic() + LONG_S
    while compiling._under_way:
        compiling.settle()
        assert time.monotonic() < end, "a worker does not end"
        time.sleep(0.02)


def called_until_compiled(fn, *args, **kwargs):
    """What the call gives that is the first to have an entry."""
    fn(*args, **kwargs)
    settled()
    hits = fn.misses
    result = fn(*args, **kwargs)
    assert fn.entries, states()
    assert fn.misses == hits + 1
    return result


def arithmetic(x):
    return torch.sin(x) * 2 + torch.cos(x).sum()


@pytest.fixture
def gate(monkeypatch, tmp_path):
    """What workers wait for, once they have a graph: the file."""
    plan_record, file = backend.plan_record, tmp_path / "gate"

    def waits(*args):
        while not file.exists():
            time.sleep(0.01)
        return plan_record(*args)

    monkeypatch.setattr(backend, "plan_record", waits)
    return file


def test_calls_are_eager_until_the_entry_takes_over(gate):
    x = torch.randn(64)
    optimized = framejit.optimize(arithmetic, background=True)
    for _ in range(5):
        assert_same(optimized(x), arithmetic(x))
    assert not optimized.entries and compiling._under_way
    gate.touch()
    settled()
    assert_same(optimized(x), arithmetic(x), atol=1e-5, rtol=1e-5)
    assert len(optimized.entries) == 1
    assert states() == ["started", "kept"]
    record = framejit.status().functions[0]
    assert record.state == "compiled" and record.background_seconds > 0


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_the_compiled_graph_is_the_one_that_is_compiled_in_calls(backend):
    x = torch.randn(33)
    beside = framejit.optimize(arithmetic, background=True, backend=backend)
    called_until_compiled(beside, x)
    with framejit.config.patch(keep_captures=False):
        within = framejit.optimize(arithmetic, backend=backend)
        assert torch.equal(beside(x), within(x))


def test_the_worker_sees_the_state_of_the_call_that_it_is_for(gate):
    """And a state that has changed by the time it is done is noticed, as guards are asked at each call."""
    class Scale:
        by = 2.0

    scale, x = Scale(), torch.randn(16)

    def scaled(x):
        return torch.exp(x) * scale.by

    optimized = framejit.optimize(scaled, background=True)
    optimized(x)
    scale.by = 3.0  # while the worker captures
    gate.touch()
    settled()
    for by in (3.0, 2.0, 4.0, 2.0, 3.0):
        scale.by = by
        assert_same(optimized(x), scaled(x), atol=1e-5, rtol=1e-5)
        settled()
    assert optimized.entries


def test_sizes_that_change_from_call_to_call_are_left_open():
    optimized = framejit.optimize(arithmetic, background=True)
    for size in range(5, 15):
        x = torch.randn(size)
        assert_same(optimized(x), arithmetic(x), atol=1e-5, rtol=1e-5)
        settled()
    misses = optimized.misses
    for size in range(20, 30):
        x = torch.randn(size)
        assert_same(optimized(x), arithmetic(x), atol=1e-5, rtol=1e-5)
    assert optimized.misses == misses and len(optimized.entries) <= 3
    assert events.events("recompile")


def test_gradients():
    """After the program has had a backward of its own, whose threads no fork has."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    x = torch.randn(4, 8)
    net(x).sum().backward()
    optimized = framejit.optimize(net, background=True)
    for _ in range(3):
        results = []
        for module in (net, optimized):
            net.zero_grad()
            loss = module(x).square().sum()
            loss.backward()
            results.append([loss.detach(), *(p.grad.clone() for p in net.parameters())])
        assert_same(results[1], results[0], atol=1e-5, rtol=1e-4)
        settled()
    assert framejit.status().functions[0].state == "compiled"
    assert states() == ["started", "kept"]


def test_writes_into_inputs_are_done_once():
    def accumulate(total, x):
        total.add_(torch.tanh(x))
        return total.sum()

    optimized = framejit.optimize(accumulate, background=True)
    mine, theirs, x = torch.zeros(8), torch.zeros(8), torch.randn(8)
    for _ in range(4):
        assert_same(optimized(mine, x), accumulate(theirs, x), atol=1e-5, rtol=1e-5)
        assert_same(mine, theirs, atol=1e-5, rtol=1e-5)
        settled()
    assert optimized.entries


def test_random_numbers_are_drawn_once():
    def noisy(x):
        return torch.relu(x) + torch.rand(8)

    optimized = framejit.optimize(noisy, background=True)
    x = torch.randn(8)
    for _ in range(4):
        torch.manual_seed(3)
        expected = noisy(x), torch.rand(2)
        torch.manual_seed(3)
        assert_same((optimized(x), torch.rand(2)), expected, atol=1e-6)
        settled()
    assert optimized.entries


def test_graph_breaks_and_what_resumes_behind_them(capsys):
    def broken(x):
        y = torch.sin(x) * 2
        print("here")
        return torch.cos(y) + 1

    optimized = framejit.optimize(broken, background=True)
    x = torch.randn(16)
    for _ in range(4):
        assert_same(optimized(x), broken(x), atol=1e-5, rtol=1e-5)
        settled()
    assert capsys.readouterr().out == "here\n" * 8
    record = framejit.status().functions[0]
    assert (record.graphs, len(record.breaks)) == (2, 1)


def test_side_effects_are_the_programs_alone():
    seen = []

    def notes(x):
        seen.append(len(seen))
        return torch.sin(x) * 2

    optimized = framejit.optimize(notes, background=True)
    for _ in range(5):
        optimized(torch.ones(3))
        settled()
    assert seen == list(range(5))


@pytest.mark.parametrize("options", [
    {"freeze": True}, {"backend": lambda gm, inputs: gm.forward}, {"mode": "reduce-overhead"}, {"verify": True},
])
def test_what_cannot_be_kept_is_compiled_in_its_call(options):
    x = torch.randn(16)
    optimized = framejit.optimize(arithmetic, background=True, **options)
    for _ in range(2):
        assert_same(optimized(x), arithmetic(x), atol=1e-5, rtol=1e-5)
    told, = events.events("background")
    assert told.state == "in its calls" and told.reason
    record = framejit.status().functions[0]
    assert record.state == "compiled" and told.reason in record.reason


def test_what_turns_out_not_to_be_kept_is_compiled_in_the_next_call():
    def checkpointed(x):
        return torch.utils.checkpoint.checkpoint(lambda y: torch.tanh(torch.sin(y)), x, use_reentrant=False) * 2

    x = torch.randn(8, requires_grad=True)
    optimized = framejit.optimize(checkpointed, background=True)
    for _ in range(3):
        assert_same(optimized(x), checkpointed(x), atol=1e-5, rtol=1e-5)
        settled()
    assert optimized.entries and states() == ["started", "in its calls"]


def test_errors_under_fullgraph_are_raised_by_a_call():
    def broken(x):
        print("here")
        return torch.sin(x)

    optimized = framejit.optimize(broken, background=True, fullgraph=True)
    optimized(torch.ones(3))
    settled()
    with pytest.raises(GraphBreakError):
        optimized(torch.ones(3))


def test_exceptions_of_the_program_come_from_plain_python():
    def raising(x):
        y = torch.sin(x)
        if y.shape[0] > 3:
            raise KeyError("large")
        return y

    optimized = framejit.optimize(raising, background=True)
    for _ in range(3):
        with pytest.raises(KeyError, match="large"):
            optimized(torch.ones(5))
        settled()
    assert_same(optimized(torch.ones(2)), raising(torch.ones(2)))


def test_a_function_left_to_python_is_told_of():
    def generator(x):
        yield torch.sin(x)

    optimized = framejit.optimize(generator, background=True)
    list(optimized(torch.ones(3)))
    settled()
    list(optimized(torch.ones(3)))
    record = framejit.status().functions[0]
    assert record.state == "skipped" and "generator" in record.reason
    assert states() == ["started", "left to Python"]


# ---- what goes wrong -------------------------------------------------------------------------------------


def raises(*args):
    raise ZeroDivisionError("in a pass")


def hangs(*args):
    while True:
        time.sleep(1)


def is_killed(*args):
    os.kill(os.getpid(), signal.SIGKILL)


def crashes(*args):
    os.abort()


@pytest.mark.parametrize(("defect", "reason"), [
    (hangs, "took longer than 1 seconds"), (is_killed, "was killed"), (crashes, "was killed"),
])
def test_a_worker_that_ends_leaves_the_program_to_python_and_is_told_of_once(monkeypatch, defect, reason):
    monkeypatch.setattr(backend, "plan_record", defect)
    x = torch.randn(16)
    optimized = framejit.optimize(arithmetic, background=True)
    with framejit.config.patch(background_seconds=1), pytest.warns(FramejitWarning, match=reason) as told:
        for _ in range(3):
            assert_same(optimized(x), arithmetic(x))
            settled()
    assert len(told) == 1 and not optimized.entries
    assert states() == ["started", "failed"]
    record = framejit.status().functions[0]
    assert record.state == "eager" and reason in record.reason


def test_a_backend_that_raises_leaves_its_graph_to_aten(monkeypatch):
    monkeypatch.setattr(backend, "plan_record", raises)
    x = torch.randn(16)
    optimized = framejit.optimize(arithmetic, background=True)
    with pytest.warns(FramejitWarning, match="in a pass"):
        for _ in range(3):
            assert_same(optimized(x), arithmetic(x))
            settled()
    assert "in a pass" in str(framejit.status())


def test_no_process_where_there_can_be_none(monkeypatch):
    def refuse(*args):
        raise OSError("the process can't be forked")

    monkeypatch.setattr(compiling, "Worker", refuse)
    x = torch.randn(16)
    optimized = framejit.optimize(arithmetic, background=True)
    assert_same(optimized(x), arithmetic(x), atol=1e-5, rtol=1e-5)
    assert optimized.entries and states() == ["in its calls"]


def test_other_errors_in_a_worker_are_told(monkeypatch):
    monkeypatch.setattr(compiling, "capture_in_worker", raises)
    optimized = framejit.optimize(arithmetic, background=True)
    with pytest.warns(FramejitWarning, match="raised ZeroDivisionError: in a pass"):
        optimized(torch.ones(3))
        settled()
        optimized(torch.ones(3))


def test_reset_ends_what_is_under_way(monkeypatch):
    monkeypatch.setattr(backend, "plan_record", hangs)
    optimized = framejit.optimize(arithmetic, background=True)
    optimized(torch.ones(3))
    pid = compiling._under_way[0].worker._pid
    framejit.reset()
    assert gone(pid) and not compiling._under_way
    monkeypatch.undo()
    with framejit.config.patch(keep_captures=True):
        called_until_compiled(optimized, torch.ones(3))


def test_a_function_that_is_dropped_while_it_is_compiled():
    def local(x):
        return torch.sin(x) * 2

    optimized = framejit.optimize(local, background=True)
    alive = weakref.ref(optimized)
    optimized(torch.ones(3))
    del optimized, local
    gc.collect()
    assert alive() is None
    settled()


def test_arguments_are_not_held_while_they_are_compiled_for(monkeypatch):
    monkeypatch.setattr(backend, "plan_record", hangs)
    x = torch.randn(16)
    optimized = framejit.optimize(arithmetic, background=True)
    optimized(x)
    alive = weakref.ref(x)
    del x
    assert alive() is None and compiling._under_way


def test_calls_alone_take_in_what_was_compiled():
    optimized, x = framejit.optimize(arithmetic, background=True), torch.randn(64)
    end = time.monotonic() + LONG_S
    while not optimized.hits and time.monotonic() < end:
        assert_same(optimized(x), arithmetic(x), atol=1e-5, rtol=1e-5)
        time.sleep(0.02)
    assert optimized.hits and states() == ["started", "kept"]


@pytest.mark.parametrize("turn", range(8))
def test_many_threads(turn):
    """The fork comes while others want the lock of the interpreter, which a child could not give them."""
    optimized = framejit.optimize(arithmetic, background=True)
    x, errors = torch.randn(64), []
    expected, end = arithmetic(x), time.monotonic() + LONG_S

    def call():
        while not optimized.hits and time.monotonic() < end:
            try:
                assert_same(optimized(x), expected, atol=1e-5, rtol=1e-5)
            except BaseException as e:
                errors.append(e)
                return

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and optimized.hits


def test_grad_mode_and_autocast_are_those_of_the_call():
    net = torch.nn.Linear(8, 8)
    optimized = framejit.optimize(lambda x: torch.tanh(net(x)), background=True)
    x = torch.randn(4, 8)
    modes = [torch.no_grad, torch.enable_grad, lambda: torch.autocast("cpu", torch.bfloat16)]
    for _ in range(4):
        for mode in modes:
            with mode():
                got, expected = optimized(x), torch.tanh(net(x))
                assert (got.requires_grad, got.dtype) == (expected.requires_grad, expected.dtype)
                assert_same(got.detach(), expected.detach(), atol=1e-2, rtol=1e-2)
            settled()
    assert len(optimized.entries) == len(modes)


def children():
    """The processes that this one would wait for."""
    found = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as file:
            if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(process)
    return found


def test_the_program_sees_no_child(gate):
    """No process that it would wait for, and no file that it would have to close."""
    before, had = set(os.listdir("/proc/self/fd")), children()
    reading, writing = os.pipe()
    optimized = framejit.optimize(arithmetic, background=True)
    optimized(torch.ones(3))
    assert compiling._under_way and children() == had
    os.close(writing)
    assert os.read(reading, 1) == b""  # the worker does not keep the other end open
    gate.touch()
    os.close(reading)
    settled()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_fork_of_the_program_ends_no_worker_of_its(gate):
    optimized = framejit.optimize(arithmetic, background=True)
    optimized(torch.ones(3))
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            same = torch.equal(optimized(torch.ones(3)), arithmetic(torch.ones(3)))
            framejit.reset()
            os._exit(0 if same else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    gate.touch()
    settled()
    optimized(torch.ones(3))
    assert optimized.entries


def test_an_interrupt_is_the_programs(gate):
    """It comes while a worker works, which it does not reach."""
    optimized = framejit.optimize(arithmetic, background=True)
    optimized(torch.ones(3))
    pid = compiling._under_way[0].worker._pid
    assert os.getsid(pid) != os.getsid(0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    gate.touch()
    settled()
    optimized(torch.ones(3))
    assert optimized.entries and states() == ["started", "kept"]


def gone(pid):
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("wrong", [1, "yes"])
def test_other_values_are_refused(wrong):
    with pytest.raises(InvalidOption, match="background"):
        framejit.optimize(arithmetic, background=wrong)
