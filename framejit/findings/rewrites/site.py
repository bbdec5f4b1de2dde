"""The place in a source file that a finding is about, as syntax trees, and edits of that file."""
from __future__ import annotations

import ast
import difflib
import linecache
import os
import re
from collections.abc import Iterator

from framejit.events.place import Place
from framejit.late_dataclass import dataclass

_CALLABLE_END = re.compile(rb"[\w)\]]$")  # what a parenthesis follows that is not there for grouping
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Edit:
    """Replace the bytes from `start` to `end` of the file."""

    start: int
    end: int
    text: str


class Site:
    """A parsed file, and in it the broken expression, its statement and its function."""

    def __init__(self, place: Place, text: str) -> None:
        self.file, self.text, self.place = place.file, text, place
        self._bytes = text.encode()
        self._starts = [0]
        for line in self._bytes.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self.tree = ast.parse(text)
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.node = self._find()

    @staticmethod
    def of(place: Place) -> Site | None:
        """None where there is no source."""
        text = "".join(linecache.getlines(place.file))
        if not text or place.column is None:
            return None
        try:
            site = Site(place, text)
        except (SyntaxError, ValueError):
            return None
        return site if site.node is not None else None

    def _find(self) -> ast.AST | None:
        """The expression at the place, or the innermost one around it."""
        place = self.place
        first, last = (place.line, place.column or 0), (place.end_line or place.line, place.end_column or 0)
        best: ast.AST | None = None
        for node in ast.walk(self.tree):
            if not isinstance(node, (ast.expr, ast.stmt)) or node.end_lineno is None:
                continue
            begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset or 0)
            if begin <= first and end >= last:
                best = node  # `walk` goes from the outside in
        return best

    # ---- around the expression ------------------------------------------------------------------------

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The node and what encloses it, innermost first, up to its function."""
        walk: ast.AST | None = node
        while walk is not None and not isinstance(walk, (*_FUNCTIONS, ast.ClassDef, ast.Module)):
            yield walk
            walk = self._parents.get(walk)

    def statement(self) -> ast.stmt | None:
        assert self.node is not None
        return next((node for node in self.ancestors(self.node) if isinstance(node, ast.stmt)), None)

    def function(self) -> ast.AST | None:
        """The function the expression is in."""
        walk = self.node
        while walk is not None and not isinstance(walk, _FUNCTIONS):
            walk = self._parents.get(walk)
        return walk

    def top_level(self) -> ast.stmt | None:
        """The statement of the module that all of this is a part of."""
        walk = self.node
        while walk is not None and not isinstance(self._parents.get(walk), ast.Module):
            walk = self._parents.get(walk)
        return walk if isinstance(walk, ast.stmt) else None

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    def following(self, statement: ast.stmt) -> ast.stmt | None:
        """The statement after one, in the same block."""
        for block in ("body", "orelse", "finalbody"):
            siblings = getattr(self._parents[statement], block, None)
            if isinstance(siblings, list) and statement in siblings:
                return next(iter(siblings[siblings.index(statement) + 1 :]), None)
        return None

    def module_name(self, module: str) -> str | None:
        """The name the file knows a module by, where it imports it at the top."""
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name == module:
                        return alias.asname or alias.name
        return None

    # ---- editing --------------------------------------------------------------------------------------

    def source(self, node: ast.AST) -> str:
        return self._bytes[self._start(node) : self._end(node)].decode()

    def replace(self, node: ast.AST, text: str) -> Edit:
        return Edit(self._start(node), self._end(node), text)

    def replace_by_call(self, node: ast.AST, text: str) -> Edit:
        """Put a call in the place of `node`, without the parentheses around that, which a call does not need."""
        start, end = self._start(node), self._end(node)
        if (
            self._bytes[start - 1 : start] == b"("
            and self._bytes[end : end + 1] == b")"
            and not _CALLABLE_END.search(self._bytes[: start - 1])
        ):
            start, end = start - 1, end + 1
        return Edit(start, end, text)

    def replace_through(self, first: ast.AST, last: ast.AST, text: str) -> Edit:
        return Edit(self._start(first), self._end(last), text)

    def insert_before(self, statement: ast.stmt, text: str) -> Edit:
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
        at = self._starts[first - 1]
        return Edit(at, at, text)

    def indent(self, statement: ast.stmt) -> str:
        return " " * statement.col_offset

    def apply(self, edits: list[Edit]) -> str:
        """The text of the file with the edits made."""
        result = self._bytes
        for edit in sorted(edits, key=lambda e: -e.start):
            result = result[: edit.start] + edit.text.encode() + result[edit.end :]
        return result.decode()

    def diff(self, changed: str) -> str:
        name = os.path.basename(self.file)
        lines = difflib.unified_diff(
            self.text.splitlines(True), changed.splitlines(True), f"a/{name}", f"b/{name}", n=2
        )
        return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)

    def _start(self, node: ast.AST) -> int:
        return int(self._starts[node.lineno - 1] + node.col_offset)  # type: ignore[attr-defined]

    def _end(self, node: ast.AST) -> int:
        return int(self._starts[node.end_lineno - 1] + node.end_col_offset)  # type: ignore[attr-defined]
