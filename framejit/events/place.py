"""An expression in a source file: where it stands, and its text."""
from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A span of source. Columns count UTF-8 bytes from 0, as in `ast` and in tracebacks; None where the code does not
    say."""

    file: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None

    def source(self) -> str:
        """The expression on one line, or nothing where the file can't be read."""
        if self.column is None or self.end_column is None:
            return linecache.getline(self.file, self.line).strip()
        last = self.end_line or self.line
        lines = [linecache.getline(self.file, n).rstrip("\n").encode() for n in range(self.line, last + 1)]
        if not all(lines):
            return ""
        lines[-1] = lines[-1][: self.end_column]
        lines[0] = lines[0][self.column :]
        return " ".join(part.decode(errors="replace").strip() for part in lines)

    def excerpt(self) -> str:
        """The first line of the expression, with the expression underlined."""
        raw = linecache.getline(self.file, self.line).rstrip("\n")
        if not raw:
            return ""
        encoded = raw.encode()
        start = len(encoded) - len(encoded.lstrip()) if self.column is None else self.column
        end = len(encoded) if self.end_column is None or self.end_line not in (None, self.line) else self.end_column
        before, marked = encoded[:start].decode(errors="replace"), encoded[start:end].decode(errors="replace")
        indent = "".join(c if c == "\t" else " " for c in before)
        return f"{raw}\n{indent}{'^' * max(len(marked), 1)}"
