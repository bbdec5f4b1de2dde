"""Some random guard trees, always the same; `make fuzz MINUTES=30` tries more."""
from __future__ import annotations

from framejit import _native as native
from tests.attack.fuzz import guard_fuzz, guard_reference


def test_trees_agree_with_the_reference():
    tried, found = guard_fuzz.fuzz(range(120))
    assert tried == 120 and not found, "\n".join(found)


def test_the_comparison_notices_a_wrong_verdict(monkeypatch):
    """A reference that takes one check to hold always differs from the trees soon."""
    monkeypatch.setattr(guard_reference, "equal", lambda a, b: True)
    assert guard_fuzz.fuzz(range(40))[1]


def test_most_trees_hold_and_are_remembered(monkeypatch):
    seen = {True: 0, False: 0}
    memos = 0
    differs = guard_fuzz.differs

    def counting(tree, roots, world):
        nonlocal memos
        text = differs(tree, roots, world)
        seen[tree.check(tuple(world.args), world.fn)] += 1
        memos += sum(tree.memos) > 0
        return text

    monkeypatch.setattr(guard_fuzz, "differs", counting)
    guard_fuzz.fuzz(range(30))
    assert min(seen.values()) > sum(seen.values()) / 5 and memos > 100
    assert native.tensor_access() == "direct"
