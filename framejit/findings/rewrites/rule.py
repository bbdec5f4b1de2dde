"""The rules that propose rewrites, by the finding codes they are for."""
from __future__ import annotations

from collections.abc import Callable

from framejit.findings.rewrites.site import Edit, Site

Rule = Callable[[Site], list[Edit] | None]
RULES: dict[str, list[Rule]] = {}


def rewrites(*codes: str) -> Callable[[Rule], Rule]:
    """Register a rule for findings of these codes. The first rule that proposes something that passes the check is
    taken."""

    def register(rule: Rule) -> Rule:
        for code in codes:
            RULES.setdefault(code, []).append(rule)
        return rule

    return register
