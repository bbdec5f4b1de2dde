"""Recompiles: entries are kept side by side, the message says which guard failed, the limit stops runaway captures."""
import gc

import pytest
import torch

import framejit

from support import Pair, of_kind, recorded

X = torch.tensor([1.0, 2.0])


def test_entries_live_side_by_side():
    p = Pair(lambda: lambda x, name: x + ord(name))
    for name in "abc":
        p.call(X, name, captures=True)
    for name in "cab":
        p.call(X, name, captures=False)


def test_a_number_that_keeps_changing_stops_recompiling():
    p = Pair(lambda: lambda x, n: x + n)
    for n in (1, 2, 3):
        p.call(X, n)
    for n in (4, 50, 1):
        p.call(X, n, captures=False)
    for n in (0, -6):  # nothing is added; no size
        p.call(X, n)
    for n in (-7, 5, -50, 0):
        p.call(X, n, captures=False)
    assert p.graphs <= 4


def test_failures_name_the_tensor_with_both_values():
    p = Pair(lambda: lambda weights: weights * 2)
    p.call(torch.randn(4, 3))
    p.call(torch.randn(8, 3), captures=True)
    (event,) = of_kind(p.log, "recompile")
    guard, expected, actual, source, _ = event.fields["failures"][0]
    assert "weights" in guard and "weights" in source
    assert "4" in str(expected) and "8" in str(actual)


def test_failures_name_a_python_value():
    p = Pair(lambda: lambda x, steps: x * steps)
    p.call(X, 3)
    p.call(X, 5)
    (event,) = of_kind(p.log, "recompile")
    guard, expected, actual, source, user_line = event.fields["failures"][0]
    assert source == "steps" and "3" in str(expected) and "5" in str(actual)
    assert user_line[0] == __file__


def test_first_capture_is_no_recompile():
    p = Pair(lambda: lambda x: x + 1)
    p.call(X)
    assert not of_kind(p.log, "recompile") and len(of_kind(p.log, "capture_started")) == 1


def test_hit_emits_nothing():
    fn = framejit.optimize(lambda x: x + 1, backend="eager")
    fn(X)
    with recorded() as log:
        fn(X)
    assert not log


def test_limit_falls_back_to_eager_and_says_so():
    with framejit.config.patch(recompile_limit=4):
        p = Pair(lambda: lambda x, name: x + ord(name))
        for name in "abcdefgh":
            p.call(X, name, warns=True)
        assert 4 <= p.graphs <= 5
        p.call(X, "a", captures=False)
        p.call(X, "z", warns=True, captures=False)
    assert of_kind(p.log, "warning") or [e for e in of_kind(p.log, "frame_done") if "limit" in str(e.fields["reason"])]


def test_reset_forgets_everything():
    p = Pair(lambda: lambda x: x + 1)
    p.call(X)
    framejit.reset()
    p.call(X, captures=True)
    p.call(X, captures=False)


def made_inside(x, i):
    class Scale:
        factor = 2

    return x * Scale.factor


def error_made_inside(x, i):
    class Odd(Exception):
        pass

    try:
        raise Odd("odd")
    except Odd as e:
        return x + len(str(e))


def given(x, i):
    return x * type("Scale", (), {"factor": i}).factor


@pytest.mark.parametrize("program", [made_inside, error_made_inside, given])
def test_what_is_compiled_for_objects_of_one_call_is_compiled_so_many_times(program):
    with framejit.config.patch(recompile_limit=3), recorded() as log:
        compiled = framejit.optimize(program, backend="eager")
        for i in range(30):
            assert torch.equal(compiled(X, i), program(X, i))
            gc.collect()  # classes are in cycles
        assert 3 <= len(of_kind(log, "capture_started")) <= 15
        assert "objects that had ended" in of_kind(log, "frame_done")[-1].reason


def test_entries_that_serve_may_end():
    """A sweep that makes a class for each of its runs."""
    def f(x, settings):
        return x * settings.factor

    with framejit.config.patch(recompile_limit=2), recorded() as log:
        compiled = framejit.optimize(f, backend="eager")
        for factor in range(20):
            settings = type("Settings", (), {"factor": factor})
            for _ in range(5):
                assert torch.equal(compiled(X, settings), X * factor)
            del settings
            gc.collect()
        assert len(of_kind(log, "capture_started")) == 20
