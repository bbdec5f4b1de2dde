"""What people read is set for people: prose in Markdown ends before column 120, as code does."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_end_before_column_120(page: Path) -> None:
    """Outside of tables, and of what programs print."""
    in_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        is_prose = not in_code and not line.startswith(("|", "    "))
        assert not is_prose or len(line) <= 120, f"{page.name}:{number} has {len(line)} columns"
