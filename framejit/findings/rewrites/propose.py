"""Finds rewrites for findings."""
from __future__ import annotations

import time

from framejit.findings.evidence import Evidence
from framejit.findings.finding import Finding
from framejit.findings.rewrites import branches, constant_calls, data_reads, masks, numpy_calls, output  # noqa: F401  register their rules
from framejit.findings.rewrites.check import can_check, check
from framejit.findings.rewrites.rule import RULES
from framejit.findings.rewrites.site import Site

SECONDS = 20.0
"""A rewrite that takes longer to try does not work."""


def find_rewrites(findings: list[tuple[Finding, Evidence | None]], seconds: float) -> None:
    """Give each finding a rewrite, if a rule has one. Those that turn out wrong are dropped, those that can't be tried say so."""
    end = time.monotonic() + seconds
    for finding, evidence in findings:
        rules = RULES.get(finding.code)
        site = Site.of(evidence.place if evidence is not None else finding.place) if rules else None
        for rule in rules or () if site is not None else ():
            assert site is not None
            if _settled(finding, evidence, site, rule(site), end):
                break


def _settled(finding: Finding, evidence: Evidence | None, site: Site, edits: object, end: float) -> bool:
    """Whether this proposal is the one to show."""
    if not edits:
        return False
    changed = site.apply(edits)  # type: ignore[arg-type]
    diff, left = site.diff(changed), end - time.monotonic()
    if evidence is None or not can_check(evidence) or left <= 0:
        finding.rewrite = diff
        return True
    verdict = check(finding, evidence, site, changed, min(left, SECONDS))
    if verdict.works:
        finding.rewrite, finding.rewrite_checked, finding.next_break = diff, True, verdict.next_break
    return verdict.works
