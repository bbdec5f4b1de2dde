"""What torch's operations warn of reaches the program as often as in plain Python, and nothing of it stderr."""
import contextlib
import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch

import framejit
from framejit._native import Selector
from framejit.fakes import dropped_warnings
from framejit.fakes.dropped_warnings import without_warnings

import forked


def spread_of_one_row(x, state):
    return x * x.var(-2, keepdim=True), x.std(0), torch.var_mean(x, 0)


def imaginary_part_dropped(x, state):
    return x.sin() * x.to(torch.complex64).mul(2).to(torch.float32)


def warns_and_writes(x, state):
    state.mul_(2)
    y = x * x.var(0)
    state.add_(1)
    return y + state


def spread_of_known_numbers(x, state):
    y = torch.tensor([[1.5, 2.5, 3.5]])
    return x + (y - y.mean()) / (y.var(-2, keepdim=True) + 1).sqrt()[0, 0]


def elements_from_nothing(x, state):
    return x[:0].var(1) + 1


def spread_that_nobody_needs(x, state):
    x.var(-2).sqrt()
    x[:2].std(1, correction=4)
    return x + 1


def parts_that_nobody_needs(x, state):
    x.to(torch.complex64).to(torch.float16)
    torch.empty(1, 3).copy_(x.to(torch.complex64))
    return x + 1


def resizes_what_is_written(x, state):
    y, found = torch.empty(2), (torch.empty(2), torch.empty(3, 3, dtype=torch.int64))
    torch.add(x, 1, out=y)
    torch.max(x, 1, out=found)
    torch.cat([x, x], out=state[:2])
    return y, found


def resizes_what_nobody_needs(x, state):
    torch.add(x, 1, out=torch.empty(2))
    return x + 1


def old_way_to_transpose(x, state):
    return state.T + 1


def old_way_to_transpose_that_nobody_needs(x, state):
    state.T.neg()
    return x + 1


def gradient_of_no_leaf(x, state):
    y = x * state.requires_grad_()
    y.grad is None  # noqa: B015
    return x + 1


FUNCTIONS = [
    spread_of_one_row, spread_of_known_numbers, imaginary_part_dropped, warns_and_writes, elements_from_nothing,
    spread_that_nobody_needs,
    parts_that_nobody_needs, resizes_what_is_written, resizes_what_nobody_needs,
    old_way_to_transpose, old_way_to_transpose_that_nobody_needs, gradient_of_no_leaf,
]


@pytest.fixture(autouse=True)
def every_time():
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def told(f):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        f(torch.ones(1, 3), torch.ones(3))
    return [(w.category, str(w.message)) for w in seen if not issubclass(w.category, framejit.FramejitWarning)]


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_each_call_warns_as_plain_python(fn, backend, capfd):
    compiled = framejit.optimize(fn, backend=backend)
    expected = told(fn)
    assert expected
    assert [told(compiled) for _ in range(8)] == [expected] * 8
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_a_warning_may_be_an_exception(fn, backend):
    compiled = framejit.optimize(fn, backend=backend)
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning) as plain:
                fn(torch.ones(1, 3), torch.ones(3))
            with pytest.raises(UserWarning) as ours:
                compiled(torch.ones(1, 3), torch.ones(3))
        assert str(ours.value) == str(plain.value) and ours.traceback[-1].lineno == plain.traceback[-1].lineno


def test_a_warning_that_was_shown_is_not_shown_again():
    """With the filters that Python begins with, one warning for each place, whatever is tried behind the scenes in
    between."""
    compiled = framejit.optimize(warns_and_writes, backend="fuse")
    place: dict = {}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for run in (lambda: None, lambda: compiled(torch.ones(2, 3), torch.ones(3))):
            run()
            warnings.warn_explicit("the program's own", UserWarning, "program.py", 1, registry=place)
    assert [str(w.message) for w in seen] == ["the program's own"]


def test_what_a_plan_runs_warns_of_is_told_of_a_line_of_the_program():
    """Not of torch's, where the operators are called: what is shown once for a line would be shown once for all
    programs."""
    compiled = framejit.optimize(spread_of_one_row, backend="fuse")
    for _ in range(4):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            compiled(torch.ones(1, 3), torch.ones(3))
        assert [w.filename for w in seen if w.category is UserWarning] == [__file__] * 3


def warns_before_what_no_kernel_does(x, state):
    y = x.var(0)
    try:
        return y + x.to(torch.complex64).clamp(0)
    except RuntimeError:
        return y


def warns_before_what_may_raise(x, state):
    y = x.var(0)
    try:
        return y + x[torch.tensor([5])]
    except IndexError:
        return y


def warns_beside_an_attribute(x, state):
    y = x.mT.var(1)
    try:
        return y + x.to(torch.complex64).clamp(0)
    except RuntimeError:
        return y


def warns_behind_a_seed(x, state):
    torch.manual_seed(2)  # no operation of torch's that could be tried
    y = x.var(0)
    try:
        return y + x.to(torch.complex64).clamp(0)
    except RuntimeError:
        return y


def resizes_before_what_may_raise(x, state):
    y = torch.empty(2)
    torch.cat([x, x], out=y)
    try:
        return y[torch.tensor([5])]
    except IndexError:
        return y


def resizes_what_it_reads(x, state):
    try:
        torch.cat([x, x], out=x)
    except RuntimeError:
        return x.shape, x[:1]


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize(
    "fn",
    [
        warns_before_what_no_kernel_does, warns_before_what_may_raise, warns_beside_an_attribute, warns_behind_a_seed,
        resizes_before_what_may_raise, resizes_what_it_reads,
    ],
)
def test_a_graph_that_raises_has_warned_of_nothing(fn, backend):
    compiled = framejit.optimize(fn, backend=backend)
    expected = told(fn)
    assert len(expected) == 1
    assert [told(compiled) for _ in range(4)] == [expected] * 4


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_what_is_told_once_is_told_by_the_program(backend):
    code = """if True:
        import sys, warnings, torch, framejit
        compiled = framejit.optimize(lambda x: x.T + 1, backend=sys.argv[1])
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            compiled(torch.ones(3)), compiled(torch.ones(3))
        print(len(seen))
    """
    told = forked.run(["-c", code, backend], timeout=120)
    assert told.stdout == "1\n", told.stderr


@pytest.mark.parametrize("by_context", ["0", "1"])
def test_trials_are_quiet_whatever_the_filters_of_their_thread_say(by_context):
    """By context, as without the lock and on demand from CPython 3.14 on, each thread may have filters of its own."""
    code = """if True:
        import threading, warnings
        from framejit.fakes.dropped_warnings import without_warnings
        def trials(action):
            with warnings.catch_warnings():
                warnings.simplefilter(action)
                before = list(filters())
                for _ in range(50):
                    with without_warnings() as outer:
                        warnings.warn("first")
                        with without_warnings() as inner:
                            warnings.warn("second")
                    assert (outer, inner) == (["first"], ["second"])
                assert filters() == before
                try:
                    warnings.warn("the program's own")
                except UserWarning:
                    raised.append(action)
        filters, raised = getattr(warnings, "_get_filters", lambda: warnings.filters), []
        shown, before = warnings._showwarnmsg, list(filters())
        trials("error"), trials("ignore")
        if getattr(__import__("sys").flags, "context_aware_warnings", 0):
            threads = [threading.Thread(target=trials, args=[action]) for action in ["error", "ignore"] * 4]
            [thread.start() for thread in threads], [thread.join() for thread in threads]
        assert shown is warnings._showwarnmsg and filters() == before
        print(*raised)
    """
    environment = {**os.environ, "PYTHON_CONTEXT_AWARE_WARNINGS": by_context}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    many = sys.version_info >= (3, 14) and by_context == "1"
    assert told.stdout.split() == ["error"] * (5 if many else 1) and told.stderr == ""


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_graph_made_anew_for_other_sizes_warns_as_often(backend):
    def fn(x):
        y = x.squeeze()
        return y @ y.T

    compiled = framejit.optimize(fn, backend=backend)
    for size in (4, 5, 1, 6, 1):
        heard = []
        for f in (fn, compiled):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                f(torch.ones(size, 3))
            heard.append([str(w.message) for w in seen])
        assert heard[0] == heard[1] and len(heard[0]) == (size == 1)


def test_a_trial_whose_end_was_interrupted(monkeypatch):
    """What shows warnings is found again, where an exception from outside has kept it from being put back."""
    monkeypatch.setattr(warnings, "_showwarnmsg", dropped_warnings._note)
    shown = []
    monkeypatch.setattr(dropped_warnings, "_SHOWN", lambda message: shown.append(str(message.message)))
    warnings.simplefilter("always")
    warnings.warn("outside", stacklevel=1)
    with without_warnings() as texts:
        warnings.warn("inside", stacklevel=1)
        thread = threading.Thread(target=warnings.warn, args=["beside"])
        thread.start()
        thread.join()
    warnings.warn("afterwards", stacklevel=1)
    assert texts == ["inside"]
    assert shown == ["outside", "beside", "afterwards"]


COMPLEX_HALVES = {
    "promoted": lambda x: x - torch.ones((), dtype=torch.complex64),
    "given": lambda x: x.to(torch.complex32)[None] + 1,
    "made": lambda x: (torch.zeros(3, dtype=torch.complex32), torch.empty_like(x, dtype=torch.complex32)),
    "written": lambda x: x.to(torch.complex32, copy=True).add_(1),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn", COMPLEX_HALVES.values(), ids=COMPLEX_HALVES)
def test_memory_for_complex_halves(fn, backend, dynamic):
    """Torch warns whenever it makes some; what capture and backend make besides is not told."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        compiled = framejit.optimize(fn, backend=backend, dynamic=dynamic)
        for dtype in (torch.complex32, torch.float16, torch.float16):
            x = torch.zeros(2, 4, dtype=dtype)
            heard = []
            for f in (fn, compiled):
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    f(x)
                heard.append([str(w.message) for w in seen])
            assert heard[1] == heard[0]
    finally:
        torch.set_warn_always(before)


def counted(action):
    """Runs it while warnings of a graph are counted, as they are from a selector's second run on."""
    turns = iter([lambda: None, action])
    selector = Selector(lambda: next(turns)(), lambda: None, pure=True, cuda=False, samples=1)
    selector(), selector()


@pytest.mark.parametrize("first", ["trial", "graph"])
def test_a_trial_that_overlaps_a_graph_whose_warnings_are_counted(first):
    """The order in which it comes among threads: one begins, the other begins, the one ends, the other ends."""
    shown, trial = warnings._showwarnmsg, contextlib.ExitStack()
    if first == "graph":
        counted(lambda: trial.enter_context(without_warnings()))
        trial.close()
    else:
        trial.enter_context(without_warnings())
        counted(trial.close)
    assert warnings._showwarnmsg is shown


def asks_for_the_gradient(x):
    try:
        found = x.grad
    except UserWarning as e:
        found = str(e).partition("(Triggered")[0]
    return x * 2, found


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("made", [lambda leaf: leaf * 2, lambda leaf: (leaf * 2)[1:]], ids=["result", "view"])
@pytest.mark.parametrize("fn", [lambda x: (x.sin() * 2, None), asks_for_the_gradient], ids=["computes", "asks"])
def test_warnings_that_are_errors_and_arguments_that_are_no_leaves(fn, made, backend):
    """Making a fake of one asks for its gradient, of which torch warns."""
    fast, leaf = framejit.optimize(fn, backend=backend), torch.arange(4.0, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            (expected, found), (got, found_too) = fn(made(leaf)), fast(made(leaf))
            assert torch.equal(expected, got) and found == found_too
