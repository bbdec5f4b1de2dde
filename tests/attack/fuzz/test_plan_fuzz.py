"""Some plans and inputs, always the same; `make fuzz MINUTES=30` tries more."""
from __future__ import annotations

from tests.attack.fuzz import plan_fuzz


def test_plans_give_eagers_answers_or_are_not_used():
    tried, found = plan_fuzz.fuzz(range(1000, 1025))
    assert tried == 25 and not found, "\n".join(found)


def test_plans_are_used(monkeypatch):
    served = []
    difference = plan_fuzz.Case.difference

    def counting(case):
        text = difference(case)
        served.append(case.served)
        return text

    monkeypatch.setattr(plan_fuzz.Case, "difference", counting)
    plan_fuzz.fuzz(range(1000, 1012))
    assert sum(served) > 12


def test_the_comparison_notices_a_plan_that_is_wrong(monkeypatch):
    def wrong(x, y):
        return plan_fuzz.pointwise(x + 1e-3, y)

    monkeypatch.setattr(plan_fuzz.framejit, "optimize", lambda fn, **_: Wrapped(wrong))
    monkeypatch.setattr(plan_fuzz, "FUNCTIONS", (plan_fuzz.pointwise,))
    assert plan_fuzz.fuzz(range(2))[1]


class Wrapped:
    entries = ()

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, *args):
        return self.fn(*args)
