"""Lines of source, with names for values."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Lines:
    """The body of a function as it grows."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._indent = 1
        self._named = 0

    def add(self, text: str) -> None:
        """One more line."""
        self.texts.append("    " * self._indent + text)

    def name(self, text: str, prefix: str = "t") -> str:
        """A name, from here on, for what the text computes. What is a name already keeps it."""
        if text.isidentifier():
            return text
        name = self.fresh(prefix)
        self.add(f"{name} = {text}")
        return name

    def fresh(self, prefix: str) -> str:
        """A name that nothing has yet."""
        self._named += 1
        return f"{prefix}{self._named}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent what is added under a head such as that of a loop."""
        self.add(head)
        self._indent += 1
        yield
        self._indent -= 1
