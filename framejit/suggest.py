"""What a misspelt name was perhaps meant to be."""
from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that refuses `name`: a suggestion, or all there is to choose from."""
    import difflib  # only ever needed on the way to an exception

    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; there are: {', '.join(known)}" if known else ""
