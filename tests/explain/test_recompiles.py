"""Recompiles: which guard missed, where its value comes from, and what would make entries fewer."""
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
    assert "leave size 0 of `x` open, and 4 of 4 entries become one: call framejit.mark_dynamic(x, 0) before it" in str(recompile)


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
        assert (forecast.source, forecast.merged, forecast.entries, forecast.remaining) == ("size 0 of `batch['y']` and size 0 of `x`", 6, 7, 2)
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
    assert (recompile.forecast.source, recompile.forecast.entries, recompile.forecast.remaining) == ("size 0 of `x`", 6, 2)


def test_a_number_that_came_from_a_break():
    def fn(x):
        n = x.max().item()
        y = x + 1
        return [y] * int(n)

    [recompile] = explained(fn, (torch.ones(3),), (torch.ones(3) * 2,)).recompiles
    provenances = {miss.provenance for miss in recompile.misses}
    assert any("`x.max().item()`" in p for p in provenances), provenances
    assert not any(miss.source.startswith("__") for miss in recompile.misses)
