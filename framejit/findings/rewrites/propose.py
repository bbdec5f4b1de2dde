"""Finds rewrites for findings."""
from __future__ import annotations

import time

from framejit.findings.evidence import Evidence, is_library
from framejit.findings.finding import Finding
from framejit.findings.rewrites import branches, cond_rewrites, constant_calls, data_reads, masks, numpy_calls, output  # noqa: F401  register their rules
from framejit.findings.rewrites.checking import can_check, can_fork, forked, verdicts
from framejit.findings.rewrites.fresh import fresh, refusal
from framejit.findings.rewrites.proposal import Proposal, Verdict
from framejit.findings.rewrites.rule import RULES
from framejit.findings.rewrites.site import Site
from framejit.late_dataclass import dataclass

SECONDS = 20.0
"""A rewrite that takes longer to try does not work."""

FRESH_S = 2.5
"""With less time than this a fresh process is not worth starting: importing torch takes it nearly all."""

NO_TIME = "no time was left to check a rewrite; `--rewrites all` takes it"
IN_A_LIBRARY = "the code of libraries is rewritten with `--rewrites all` only"
NOT_COPIED = "the arguments of the call could not be copied"


@dataclass(frozen=True)
class Search:
    """How much looking for rewrites may take."""

    seconds: float
    libraries: bool = False
    """Whether the code of libraries is rewritten too, that is of the standard library and what is installed as packages
    are."""


def find_rewrites(findings: list[tuple[Finding, Evidence | None]], search: Search) -> None:
    """Give each finding a rewrite, if a rule has one, those that come first first.

    Those that turn out wrong are dropped, those that can't be tried say so, and those for which no time was left have a
    note instead.
    """
    end = time.monotonic() + search.seconds
    proposals = []
    for finding, evidence in findings:
        proposals += _proposals(finding, evidence, search, end)
    forks = can_fork()
    checked = []
    for proposal in proposals:
        why_not = NOT_COPIED if not can_check(proposal.evidence) else "" if forks else refusal(proposal)
        if why_not:
            _take(proposal, Verdict(False, untried=why_not))
        else:
            checked.append(proposal)
    if not forks and search.seconds < FRESH_S:
        end = 0.0
    for proposal, verdict in verdicts(checked, forked if forks else fresh, end, SECONDS):
        _take(proposal, verdict)


def _proposals(finding: Finding, evidence: Evidence | None, search: Search, end: float) -> list[Proposal]:
    """What the rules for a finding propose, the best first."""
    rules = RULES.get(finding.code)
    if not rules:
        return []
    place = evidence.place if evidence is not None else finding.place
    if is_library(place.file) and not search.libraries:
        finding.rewrite_note = IN_A_LIBRARY
        return []
    if time.monotonic() >= end:
        finding.rewrite_note = NO_TIME
        return []
    site = Site.of(place)
    edits = [rule(site) for rule in rules] if site is not None else []
    return [Proposal(finding, evidence, site, site.apply(edit)) for edit in edits if edit and site is not None]


def _take(proposal: Proposal, verdict: Verdict | None) -> None:
    """Give the finding what trying a proposal showed."""
    finding = proposal.finding
    if verdict is None:
        if finding.rewrite is None:
            finding.rewrite_note = NO_TIME
    elif verdict.works:
        finding.rewrite, finding.rewrite_checked, finding.next_break, finding.rewrite_note = (
            proposal.diff, True, verdict.next_break, "",
        )
    elif verdict.untried and finding.rewrite is None:
        finding.rewrite, finding.rewrite_note = proposal.diff, verdict.untried
