"""A guard set as a text tree: one branch for each source, one leaf for each guard, with the line of user code that made
it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import field

from framejit.guards.guard import Guard
from framejit.guards.sources import Source
from framejit.late_dataclass import dataclass


@dataclass(eq=False)
class _Branch:
    name: str
    leaves: list[Guard] = field(default_factory=list)
    branches: dict[Source, _Branch] = field(default_factory=dict)


def render(guards: Sequence[Guard]) -> str:
    """The tree, ready to print. Steps that no guard looks at are folded into the step that follows."""
    root = _Branch(f"{len(guards)} guard{'' if len(guards) == 1 else 's'}")
    known: dict[Source, _Branch] = {}
    for guard in guards:
        _branch(guard.source, root, known).leaves.append(guard)
    lines = list(_lines(root, "", ""))
    width = max((len(text) for text, _ in lines), default=0)
    return "\n".join(f"{text:<{width}}  {place}".rstrip() for text, place in lines)


def _branch(source: Source, root: _Branch, known: dict[Source, _Branch]) -> _Branch:
    found = known.get(source)
    if found is None:
        parent = root if source.base is None else _branch(source.base, root, known)
        found = known[source] = parent.branches[source] = _Branch(source.name())
    return found


def _place(guard: Guard) -> str:
    if guard.user_line is None:
        return ""
    file, line = guard.user_line
    return f"# {os.path.basename(file)}:{line}"


def _lines(branch: _Branch, head: str, tail: str) -> Iterator[tuple[str, str]]:
    yield head + branch.name, ""
    inner = list(_visible(branch))
    last = len(branch.leaves) + len(inner) - 1
    for i, guard in enumerate(branch.leaves):
        yield f"{tail}{'└─' if i == last else '├─'} {guard.text}", _place(guard)
    for i, child in enumerate(inner, len(branch.leaves)):
        yield from _lines(child, f"{tail}{'└─' if i == last else '├─'} ", f"{tail}{'   ' if i == last else '│  '}")


def _visible(branch: _Branch) -> Iterator[_Branch]:
    for child in branch.branches.values():
        if child.leaves or len(child.branches) > 1:
            yield child
        else:
            yield from _visible(child)
