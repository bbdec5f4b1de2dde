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
    [recompile] = explained(sized, *calls).recompiles
    forecast = recompile.forecast
    assert (forecast.source, forecast.entries, forecast.remaining) == ("x", 4, 1)
    assert "drop_last" in forecast.advice
    assert "4 entries would be 1" in str(recompile)


def test_no_forecast_where_nothing_would_be_gained():
    [recompile] = explained(sized, (torch.ones(3),), (torch.ones(4),)).recompiles
    assert recompile.forecast is None


def test_two_values_that_differ():
    def fn(x, flag):
        return x * 2 if flag == "a" else x + len(flag)

    calls = [(torch.ones(n), flag) for n in (3, 4, 5) for flag in ("a", "bb")]
    [recompile] = explained(fn, *calls).recompiles
    assert (recompile.forecast.source, recompile.forecast.entries, recompile.forecast.remaining) == ("x", 6, 2)


def test_a_number_that_came_from_a_break():
    def fn(x):
        n = x.max().item()
        y = x + 1
        return [y] * int(n)

    [recompile] = explained(fn, (torch.ones(3),), (torch.ones(3) * 2,)).recompiles
    provenances = {miss.provenance for miss in recompile.misses}
    assert any("`x.max().item()`" in p for p in provenances), provenances
    assert not any(miss.source.startswith("__") for miss in recompile.misses)
