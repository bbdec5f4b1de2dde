"""`explain`: one call, and all that the compiler decided in it."""
from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, ParamSpec

import torch

from framejit.api import optimize
from framejit.dispatchers import drop_entries
from framejit.events import Event, subscribe
from framejit.events.text import callers

P = ParamSpec("P")


@dataclass
class Finding:
    """A place where the compiler could not do its best, and how often it met it."""

    code: str
    file: str
    line: int
    column: int
    function: str
    reason: str
    hint: str
    callers: list[tuple[str, int, str]]
    """The calls that led to it, as (file, line, function), innermost first."""
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        lines = [f"{self.file}:{self.line}, in {self.function}{times}", f"  {self.reason} [{self.code}]"]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join([*lines, *(f"  called from {file}:{line}, in {name}" for file, line, name in self.callers)])


@dataclass
class Graph:
    """A graph that was captured."""

    graph_id: int
    function: str
    n_ops: int
    module: torch.fx.GraphModule = field(repr=False)

    def __str__(self) -> str:
        return f"graph {self.graph_id} of {self.function}: {self.n_ops} operations\n{self.module.graph}"


@dataclass
class Frame:
    """A function whose frame was seen, and what became of it."""

    function: str
    file: str
    line: int
    state: str
    reason: str


class Explanation:
    """What the compiler did. Prints as a report."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.graphs: list[Graph] = []
        self.frames: list[Frame] = []
        self.result: Any = None
        """What the explained call returned."""
        self.error: Exception | None = None
        """What the explained call raised."""
        self._functions: dict[int, str] = {}

    def hear(self, event: Event) -> None:
        """Take in an event."""
        if event.kind == "capture_started":
            self._functions[event.frame_id] = event.function
        elif event.kind == "graph":
            self.graphs.append(Graph(event.graph_id, self._functions.get(event.frame_id, ""), event.n_ops, event.graph_module))
        elif event.kind == "graph_break":
            self._add(event)
        elif event.kind == "frame_done":
            self.frames.append(Frame(event.function, event.file, event.line, event.state, event.reason))

    def _add(self, event: Event) -> None:
        for known in self.findings:
            if (known.file, known.line, known.reason) == (event.file, event.line, event.reason):
                known.count += 1
                return
        names = ("code", "file", "line", "column", "function", "reason", "hint")
        self.findings.append(Finding(**{name: event.fields[name] for name in names}, callers=callers(event)))

    @property
    def left_out(self) -> list[Frame]:
        """The functions of which nothing was compiled."""
        return [frame for frame in self.frames if frame.state in ("skipped", "eager")]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "graphs": [{"id": g.graph_id, "function": g.function, "operations": g.n_ops, "code": str(g.module.graph)} for g in self.graphs],
            "frames": [asdict(frame) for frame in self.frames],
            "error": repr(self.error) if self.error else None,
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        ops = sum(graph.n_ops for graph in self.graphs)
        parts = [f"{_number(self.graphs, 'graph')} with {ops} operations, {_number(self.findings, 'graph break')}, {_number(self.frames, 'frame')} seen"]
        parts += map(str, self.findings)
        parts += [f"{frame.state}: {frame.function} ({frame.file}:{frame.line}): {frame.reason}" for frame in self.left_out]
        parts += map(str, self.graphs)
        if self.error:
            parts.append(f"the call raised {type(self.error).__name__}: {self.error}")
        return "\n\n".join(parts)

    __repr__ = __str__


def _number(things: list[Any], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def explain(fn: Callable[P, Any], /, **options: Any) -> Callable[P, Explanation]:
    """Call `explain(fn)(*args)` as you would `fn(*args)`: it runs, is compiled anew, and what the compiler did is returned.

    `options` are those of `optimize`. All compiled code is dropped first, so that nothing stays unsaid because it was compiled earlier.
    """
    optimized = optimize(fn, **options)

    def call(*args: P.args, **kwargs: P.kwargs) -> Explanation:
        explanation, thread = Explanation(), threading.get_ident()
        drop_entries()
        unsubscribe = subscribe(lambda event: explanation.hear(event) if event.thread == thread else None)
        try:
            explanation.result = optimized(*args, **kwargs)
        except Exception as e:
            explanation.error = e
        finally:
            unsubscribe()
        return explanation

    return call
