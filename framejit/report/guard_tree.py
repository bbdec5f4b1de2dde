"""Guards as a tree that can be folded."""
from __future__ import annotations

import re
from dataclasses import field

from framejit.late_dataclass import dataclass
from framejit.report.element import Html, element

_LINE = re.compile(r"^((?:[│ ]  )*)([├└]─ )?(.*?)\s*$")


@dataclass
class Branch:
    """A line of the tree and what stands below it."""

    text: str
    branches: list[Branch] = field(default_factory=list)


def parse(text: str) -> Branch:
    """The tree from its printed form."""
    lines = text.splitlines()
    root = Branch(lines[0] if lines else "no guards")
    path = [root]
    for line in lines[1:]:
        prefix, branch, content = _LINE.match(line).groups()  # type: ignore[union-attr]  # it matches any line
        depth = len(prefix) // 3 + 1 if branch else len(path) - 1
        made = Branch(content)
        path = path[: max(depth, 1)]
        path[-1].branches.append(made)
        path.append(made)
    return root


def tree(text: str) -> Html:
    """The tree as nested lists."""
    return element("ul", _items(parse(text).branches), class_="tree")


def _item(branch: Branch) -> Html:
    text, _, line = branch.text.partition("  # ")
    shown = [text.rstrip(), element("span", f" {line.strip()}", class_="soft") if line else None]
    if not branch.branches:
        return element("li", shown)
    return element(
        "li", element("details", element("summary", shown), element("ul", _items(branch.branches)), open=True)
    )


def _items(branches: list[Branch]) -> list[Html]:
    return [_item(branch) for branch in branches]
