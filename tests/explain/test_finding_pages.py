"""Every code that framejit can give has a page, and every page a code."""
import pathlib
import re

import pytest

from framejit.findings.codes import CODES, page

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ROOT / "docs" / "findings"


def emitted() -> set[str]:
    """The codes that stand in the sources, the catalogue aside."""
    found: set[str] = set()
    for folder in ("framejit", "guards", "backends"):
        for file in (ROOT / folder).rglob("*.py"):
            if file.name != "codes.py" and "rewrites" not in file.parts:
                found.update(re.findall(r'"(FJ\d{3})"', file.read_text()))
    return found


def test_every_code_has_a_page_and_every_page_a_code():
    assert emitted() == set(CODES) == {path.stem for path in PAGES.glob("*.md")}


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_page_says_what_why_and_what_to_do(code):
    text = (ROOT / page(code)).read_text()
    assert text.startswith(f"# {code}: {CODES[code]}\n")
    for part in ("## What it is", "## Why", "## What to do", "## Example", "```python"):
        assert part in text


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_example_is_python(code):
    text = (ROOT / page(code)).read_text()
    for example in re.findall(r"```python\n(.*?)```", text, re.S):
        compile(example, code, "exec")


def test_rules_are_for_codes_that_exist():
    from framejit.findings import rewrites  # noqa: F401  registers the rules
    from framejit.findings.rewrites.rule import RULES

    assert set(RULES) <= set(CODES)
