"""What became of a graph that gradients are wanted of, as `status`, `explain` and the log tell it."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class Training:
    """A graph that was compiled as a forward and its backward."""

    graph_id: int | None
    """None for a graph that framejit did not capture."""
    graph: str
    function: str
    """Whose graph it is; empty where that is not known."""
    kernels: Mapping[str, Sequence[str]]
    """The names of the kernels of `forward` and of `backward`."""
    kept: Sequence[tuple[str, int]]
    """The lines of the program whose values are kept for the backward, and their bytes. What the program holds itself,
    as parameters and results, is not among them."""
    computed_again: Sequence[tuple[str, int]]
    """The lines of which the backward computes operations again, and how many."""
    apart: str = ""
    """Why each result has a backward of its own, where one from the loss was to do for all; empty elsewhere."""

    @classmethod
    def of(cls, fields: Mapping[str, Any], function: str) -> Training:
        """The record of a `training` event about `function`."""
        return cls(
            fields["graph_id"], fields["graph"], function, fields["kernels"], fields["kept"], fields["computed_again"],
            fields["apart"],
        )

    @property
    def summary(self) -> str:
        """The graph's kernels, and what is kept and computed again, in one line."""
        halves = ", ".join(f"{_count(len(names), 'kernel')} {half}" for half, names in self.kernels.items())
        kept, again = sum(n for _, n in self.kept), sum(n for _, n in self.computed_again)
        of = f" of {self.function}" if self.function else ""
        apart = f"; each result has a backward of its own: {self.apart}" if self.apart else ""
        return (
            f"{self.graph}{of}: {halves}; {_memory(kept)} kept for the backward, {_count(again, 'operation')} computed "
            f"again{apart}"
        )

    def __str__(self) -> str:
        lines = [self.summary]
        lines += [f"  {half}: {', '.join(names)}" for half, names in self.kernels.items() if names]
        lines += [f"  kept: {_memory(n)} of {line or 'no line'}" for line, n in self.kept]
        lines += [
            f"  computed again: {_count(n, 'operation')} of {line or 'no line'}" for line, n in self.computed_again
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """This record as plain data, for JSON."""
        return {
            **vars(self), "kernels": {half: [*names] for half, names in self.kernels.items()},
            "kept": [{"line": line, "bytes": n} for line, n in self.kept],
            "computed_again": [{"line": line, "operations": n} for line, n in self.computed_again],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Training:
        """The record that `to_dict` made this of."""
        return cls(**{
            **data, "kept": [(item["line"], item["bytes"]) for item in data["kept"]],
            "computed_again": [(item["line"], item["operations"]) for item in data["computed_again"]],
        })


def _memory(n: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return _count(n, "byte")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
