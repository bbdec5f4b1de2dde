"""Where an operation of a graph comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an operation comes from. Passes ask the fields; the text is for people."""

    line: str = ""
    """The program's line, as `file.py:12 in function: code`; of a backward operation that of the forward operation it
    is the gradient of. Empty where it is not known."""
    checkpoint: int = 0
    """The number of the program's checkpoint (`torch.utils.checkpoint`) that the operation, or the one it is the
    gradient of, is part of. They count from 1; 0 is none."""
    is_backward: bool = False
    """Whether autograd's backward carries it out."""

    def __str__(self) -> str:
        """`backward of checkpoint 2: file.py:12 in function: code`, less what there is not."""
        place = ": ".join(filter(None, (f"checkpoint {self.checkpoint}" if self.checkpoint else "", self.line)))
        return " of ".join(filter(None, ("backward" if self.is_backward else "", place)))


UNKNOWN = Origin()
"""Of what stems from no line of the program."""


def line_of(stack: str | None) -> str:
    """`file.py:12 in f: code` from the innermost frame of a stack in a traceback's format; empty if it has none."""
    lines = [line for line in (stack or "").splitlines() if line.strip()]
    place = next((i for i in range(len(lines) - 1, -1, -1) if lines[i].lstrip().startswith("File ")), None)
    if place is None:
        return ""
    file, _, rest = lines[place].strip().removeprefix('File "').partition('", line ')
    line, _, function = rest.partition(", in ")
    code = lines[place + 1].strip() if place + 1 < len(lines) else ""
    return f"{file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line} in {function}: {code}"
