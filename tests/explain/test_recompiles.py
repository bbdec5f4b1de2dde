"""Recompiles: which guard missed, where its value comes from, and what would make entries fewer."""
import re

import torch

import framejit
from framejit.findings import Explanation


def explained(fn, *calls):
    fast, explanation = framejit.optimize(fn), Explanation()
    listening = explanation.listen()
    for args in calls:
        fast(*args)
    listening.stop()
    return explanation


def sized(x):
    return x * 2 + x.shape[0]


def test_the_guard_that_missed():
    [recompile] = explained(sized, (torch.ones(3),), (torch.ones(4),)).recompiles
    assert (recompile.function, recompile.count) == ("sized", 1)
    [miss] = recompile.misses
    assert (miss.source, miss.expected, miss.actual) == ("x", "size 3", "4")
    assert miss.provenance == "`x` is an argument of sized"
    assert (miss.file, miss.line) == (__file__, sized.__code__.co_firstlineno + 1)


def test_a_forecast_after_a_few_misses():
    calls = [(torch.ones(n),) for n in (3, 4, 5, 6)]
    with framejit.config.patch(dynamic_after=4):
        [recompile] = explained(sized, *calls).recompiles
    forecast = recompile.forecast
    assert (forecast.source, forecast.entries, forecast.remaining, forecast.merged) == ("size 0 of `x`", 4, 1, 4)
    assert forecast.calls == ["framejit.mark_dynamic(x, 0)"]
    assert "leave size 0 of `x` open, and 4 of 4 entries become one: call framejit.mark_dynamic(x, 0) before it" in str(
        recompile
    )


def batched(x, batch, scale):
    return x * batch["y"] * (2 if scale == "wide" else 3)


CALLS = [(n, "wide") for n in (3, 4, 5, 6, 7, 8)] + [(9, "tall")]


def compiled_for_batches(marks):
    """How many entries the calls lead to, and what is said of them."""
    fast, explanation = framejit.optimize(batched), Explanation()
    listening = explanation.listen()
    for n, scale in CALLS:
        x, batch = torch.randn(n, 2), {"y": torch.randn(n, 2)}
        for mark in marks:
            exec(mark, {"framejit": framejit}, {"x": x, "batch": batch})
        assert torch.equal(fast(x, batch, scale), batched(x, batch, scale))
    listening.stop()
    [recompile] = explanation.recompiles
    return len(fast.entries), recompile


def test_the_calls_of_a_forecast_do_what_it_says():
    with framejit.config.patch(dynamic_after=0):
        entries, recompile = compiled_for_batches([])
        forecast = recompile.forecast
        assert entries == 7
        assert (forecast.source, forecast.merged, forecast.entries, forecast.remaining) == (
            "size 0 of `batch['y']` and size 0 of `x`", 6, 7, 2,
        )
        assert type(recompile).from_dict(recompile.to_dict()) == recompile
        entries, recompile = compiled_for_batches(forecast.calls)
        assert (entries, recompile.count, recompile.forecast) == (2, 1, None)


def test_no_forecast_where_nothing_would_be_gained():
    [recompile] = explained(sized, (torch.ones(3),), (torch.ones(4),)).recompiles
    assert recompile.forecast is None


def test_two_values_that_differ():
    def fn(x, flag):
        return x * 2 if flag == "a" else x + len(flag)

    calls = [(torch.ones(n), flag) for n in (3, 4, 5) for flag in ("a", "bb")]
    with framejit.config.patch(dynamic_after=3):
        [recompile] = explained(fn, *calls).recompiles
    assert (recompile.forecast.source, recompile.forecast.entries, recompile.forecast.remaining) == (
        "size 0 of `x`", 6, 2,
    )


def test_a_number_that_came_from_a_break():
    def fn(x):
        n = x.max().repeat(17).tolist()[0]
        y = x + 1
        return [y] * int(n)

    [recompile] = explained(fn, (torch.ones(3),), (torch.ones(3) * 2,)).recompiles
    provenances = {miss.provenance for miss in recompile.misses}
    assert any("`x.max().repeat(17).tolist()`" in p for p in provenances), provenances
    assert not any(miss.source.startswith("__") for miss in recompile.misses)


def misses_of(fn, *calls):
    """For each guard that missed: the value as it is called, where that came from, relative to the function's first
    line, and the line that assumed."""
    first = fn.__code__.co_firstlineno

    def relative(sentence):
        return re.sub(
            r"line (\d+)",
            lambda match: f"line {int(match.group(1)) - first}",
            sentence.replace(fn.__qualname__, fn.__name__),
        )

    misses = [miss for recompile in explained(fn, *calls).recompiles for miss in recompile.misses]
    return [(miss.source, relative(miss.provenance), miss.line - first) for miss in misses]


def test_values_that_live_across_two_breaks():
    def fn(x, y):
        double, triple = x * 2, y * 3
        print(end="")
        total = double.sum()
        scaled = triple * 4
        framejit.graph_break()
        return scaled[0] + double * total

    big, small = torch.ones(3), torch.ones(2)
    changed_y, changed_x = ((small, small), (small, big)), ((small, small), (big, small))
    with framejit.config.patch(dynamic_after=3):
        in_first, in_scaled, in_last = misses_of(fn, *changed_y)
        assert [m[0] for m in (in_first, in_scaled, in_last)] == ["y", "triple", "scaled"]
        assert in_first[1:] == ("`y` is an argument of fn", 1)
        assert in_scaled[1:] == ("`triple` came from `y * 3` on line 1", 4)
        assert in_last[1:] == ("`scaled` came from `triple * 4` on line 4", 6)
        in_first, in_total, in_last = misses_of(fn, *changed_x)
        assert [m[0] for m in (in_first, in_total, in_last)] == ["x", "double", "double"]
        assert in_total[1:] == ("`double` came from `x * 2` on line 1", 3)
        assert in_last[1:] == ("`double` came from `x * 2` on line 1", 6)


def test_values_of_an_inlined_function_with_two_breaks():
    """What is assumed behind one of its breaks has nothing to do with what its variables are behind the other."""

    def inner(values, weights, factor):
        kept = []
        first = values[0]
        kept.append(first.repeat(17).tolist())
        rest = values[1:]
        framejit.graph_break()
        rest = rest * factor
        kept.append(weights.repeat(9).tolist())
        return rest + len(kept)

    def fn(values, weights):
        weights = weights + 1
        values = values - weights[0]
        return inner(values, weights, 0.5)

    with framejit.config.patch(dynamic_after=9):
        found = misses_of(
            fn, (torch.ones(3), torch.ones(2)), (torch.ones(4), torch.ones(2)), (torch.ones(4), torch.ones(3))
        )
    offset = inner.__code__.co_firstlineno - fn.__code__.co_firstlineno
    assert (
        "values", f"`values` in {inner.__qualname__} came from `values - weights[0]` on line 2", offset + 4,
    ) in found
    assert ("rest", f"`rest` in {inner.__qualname__} came from `values[1:]` on line {offset + 4}", offset + 6) in found
    assert (
        "rest", f"`rest` in {inner.__qualname__} came from `rest * factor` on line {offset + 6}", offset + 8,
    ) in found
    assert ("weights", f"`weights` in {inner.__qualname__} came from `weights + 1` on line 1", offset + 7) in found
    assert {name for name, _, _ in found} == {"values", "weights", "rest"}


def test_a_variable_that_was_given_a_value_on_several_ways():
    def fn(x, flag):
        if flag:
            y = x + 1
        else:
            y = x[1:]
        print(end="")
        return y * 2

    with framejit.config.patch(dynamic_after=9):
        found = misses_of(fn, (torch.ones(3), True), (torch.ones(3), False))
    assert found[-1] == ("y", "`y` came from `x + 1` on line 2 or `x[1:]` on line 4", 6)


def test_a_variable_given_another_value_is_no_argument_any_more():
    def fn(x, n):
        n = [n]
        print(end="")
        n = x * n[0]
        print(end="")
        return n + 1

    with framejit.config.patch(dynamic_after=9):
        found = misses_of(fn, (torch.ones(3), 2), (torch.ones(4), 2))
    assert found == [("x", "`x` is an argument of fn", 3), ("n", "`n` came from `x * n[0]` on line 3", 5)]


def test_a_variable_in_a_cell():
    def fn(x):
        y = x * 2

        def more():
            return y + 1

        print(end="")
        return more()

    with framejit.config.patch(dynamic_after=9):
        found = misses_of(fn, (torch.ones(3),), (torch.ones(4),))
    assert found[-1][:2] == ("y", "`y` came from `x * 2` on line 1")


def test_an_operand_that_waits_for_a_break():
    def fn(x):
        return [x * 2, print(end="")][0] + 1

    with framejit.config.patch(dynamic_after=9):
        found = misses_of(fn, (torch.ones(3),), (torch.ones(4),))
    assert found[-1] == ("x * 2", "it is the result of `x * 2` on line 1", 1)
