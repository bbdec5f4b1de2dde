"""A rewrite that a rule proposes."""
from __future__ import annotations

from framejit.findings.evidence import Evidence
from framejit.findings.finding import Finding, NextBreak
from framejit.findings.rewrites.site import Site
from framejit.late_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Proposal:
    """A changed source file that may remove a finding."""

    finding: Finding
    evidence: Evidence | None
    """The call to try it on; None where none was kept."""
    site: Site
    changed: str
    """The text of the whole file, changed."""

    @property
    def diff(self) -> str:
        return self.site.diff(self.changed)


@dataclass(frozen=True)
class Verdict:
    """The outcome of trying a rewrite on the arguments that were seen."""

    works: bool
    """The rewrite removes the break, and the results are the same."""
    next_break: NextBreak | None = None
    untried: str = ""
    """Why it could not be tried, if so."""
