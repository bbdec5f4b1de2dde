"""The explanation of one call or program: it gathers events while the program runs, and prints as a report."""
from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import field
from typing import Any

import torch

from framejit.backends.conditional import branches
from framejit.events import Event, subscribe
from framejit.events.meter import meter
from framejit.events.place import Place
from framejit.events.timeline import Span, spans
from framejit.events.training import Training
from framejit.findings import schema
from framejit.findings.evidence import Call, Evidence
from framejit.findings.finding import Finding, Key
from framejit.findings.found import Found
from framejit.findings.recompiles import Recompile, Recompiles
from framejit.late_dataclass import dataclass

WITHOUT_TENSORS = "FJ207"


@dataclass
class Graph:
    """A graph that was captured."""

    graph_id: int
    function: str
    n_ops: int
    code: str
    module: torch.fx.GraphModule | None = field(default=None, repr=False)
    """None in a report that was read from a file."""

    def __str__(self) -> str:
        return f"graph {self.graph_id} of {self.function}: {_count(self.n_ops, 'operation')}\n{self.code.strip()}"


@dataclass
class Frame:
    """A function whose frame was seen, and what became of it."""

    function: str
    file: str
    line: int
    state: str
    reason: str
    code: str = ""
    """The finding code of what kept it from being compiled."""
    seconds: float = 0.0
    """What compiling it took."""

    def __str__(self) -> str:
        return f"{self.state}: {self.function} ({self.file}:{self.line}): {self.reason}" + (
            f" [{self.code}]" if self.code else ""
        )


class Explanation:
    """All that the compiler did while somebody explained: graphs, frames, findings, recompiles. Prints as a report."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.frames: list[Frame] = []
        self.training: list[Training] = []
        """The graphs that were compiled with their backward."""
        self.selected: dict[Place, tuple[int, str]] = {}
        """The `if`s on data of which both branches are in a graph, with their operations."""
        self.unfused: list[str] = []
        """The graphs that run as ATen operations, and what keeps each from being fused."""
        self.events: list[Event] = []
        """What happened, in order, without the program's objects."""
        self.result: Any = None
        """What the explained call returned."""
        self.error: BaseException | str | None = None
        """What the explained call raised."""
        self.listening_s = 0.0
        """How long the program was listened to, compiling included."""
        self.rewrites_s = 0.0
        """How long rewrites were looked for."""
        self._found = Found()
        self._recompiles = Recompiles()
        self._evidence: dict[Key, Evidence] = {}
        self._functions: dict[int, str] = {}
        self._roots: dict[int, Call] = {}  # by thread: the call whose capture began last
        self._no_rewrites = ""
        self._restored_timeline: list[Span] | None = None
        self._lock = threading.RLock()

    # ---- listening ----------------------------------------------------------------------------------

    def listen(self, thread: int | None = None) -> _Listening:
        """Hear and measure from now on, on one thread or on all."""
        return _Listening(self, thread)

    def hear(self, event: Event) -> None:
        """Take in an event."""
        with self._lock:
            self.events.append(event.without_transient())
            handler = getattr(self, f"_{event.kind}", None)
            if handler is not None:
                handler(event)
            self._recompiles.hear(event)

    def _capture_started(self, event: Event) -> None:
        self._functions[event.frame_id] = event.function
        fn = event.fields.get("fn")
        if fn is not None and not hasattr(fn, "_framejit_resume"):
            self._roots[event.thread] = Call(fn, event.flat_args)

    def _graph(self, event: Event) -> None:
        text = graph_text(event.graph_module)
        self.graphs.append(
            Graph(event.graph_id, self._functions.get(event.frame_id, ""), event.n_ops, text, event.graph_module)
        )

    def _training(self, event: Event) -> None:
        self.training.append(Training.of(event.fields, self._function_of(event.graph_id)))

    def _fusion(self, event: Event) -> None:
        if event.reason:
            function = self._function_of(event.graph_id)
            of = f" of {function}" if function else ""
            self.unfused.append(f"{event.fields.get('graph', event.graph_id)}{of} runs as ATen: {event.reason}")

    def _function_of(self, graph_id: int | None) -> str:
        return next((graph.function for graph in self.graphs if graph.graph_id == graph_id), "")

    def _graph_break(self, event: Event) -> None:
        finding, call = self._found.hear(event), self._roots.get(event.thread)
        if finding is not None and call is not None and event.fields.get("call_sites"):
            self._evidence[finding.key] = Evidence.take(call, event.call_sites)

    def _selected(self, event: Event) -> None:
        place = Place(event.file, event.line, event.column, event.end_line, event.end_column)
        self.selected[place] = event.operations, event.form

    def _frame_done(self, event: Event) -> None:
        code, seconds = event.fields.get("code") or "", event.fields.get("seconds") or 0.0
        self.frames.append(
            Frame(event.function, event.file, event.line, event.state, event.reason or "", code, seconds)
        )

    def take_costs(self) -> None:
        """Take over what was measured."""
        with self._lock:
            self._found.take_costs()

    # ---- what was found -------------------------------------------------------------------------------

    @property
    def findings(self) -> list[Finding]:
        """The places at which graphs broke, the costliest first."""
        return self._found.costliest_first()

    @property
    def recompiles(self) -> list[Recompile]:
        """Functions that were compiled again, with the guards that missed and what would make their entries fewer."""
        return self._recompiles.all()

    @property
    def timeline(self) -> list[Span]:
        """When frames were captured and their graphs compiled. In a report that was read from a file, time counts from
        the first capture."""
        return spans(self.events) if self._restored_timeline is None else self._restored_timeline

    @property
    def compiling_s(self) -> float:
        """The seconds that compiling took, in all frames together."""
        return sum(frame.seconds for frame in self.frames)

    @property
    def left_out(self) -> list[Frame]:
        """The functions of which nothing was compiled."""
        return [frame for frame in self.frames if frame.state in ("skipped", "eager")]

    def find_rewrites(self, seconds: float = 30.0, libraries: bool = False) -> None:
        """Look for rewrites of the findings, the costliest first, and check them, for so long. Those in libraries are
        left out unless asked for."""
        from framejit.findings.rewrites import Search, find_rewrites  # only an explanation needs its 17 files

        if self._no_rewrites:
            for finding in self.findings:
                finding.rewrite_note = self._no_rewrites
            return
        start = time.perf_counter()
        try:
            find_rewrites(
                [(finding, self._evidence.get(finding.key)) for finding in self.findings], Search(seconds, libraries)
            )
        finally:
            self._evidence.clear()
            self.rewrites_s += time.perf_counter() - start

    def leave_rewrites(self, note: str) -> None:
        """Look for none, and say why."""
        with self._lock:
            self._no_rewrites = note

    # ---- telling --------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data; docs/explain_schema.md describes it."""
        return schema.to_dict(self)

    def to_json(self) -> str:
        """The report as JSON; docs/explain_schema.md describes it."""
        return schema.to_json(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as JSON; `framejit report` prints it."""
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.to_json())

    def to_sarif(self, path: str | os.PathLike[str]) -> None:
        """Write the findings as SARIF 2.1.0, which editors and code hosts show in the source."""
        from framejit.findings.sarif import write_sarif  # for those who want the file

        write_sarif(self, path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report as one HTML file."""
        from framejit.report.html import write_html  # for those who want the page

        write_html(self, path)

    def __str__(self) -> str:
        ops, recompiles = sum(graph.n_ops for graph in self.graphs), sum(r.count for r in self.recompiles)
        summary = [f"{_count(len(self.graphs), 'graph')} with {ops} operations", self._breaks_in_words()]
        summary += [
            f"{_count(len(self.frames), 'frame')} seen",
            *([_count(recompiles, "recompile")] if recompiles else []),
        ]
        parts = [", ".join(summary), *map(str, self.findings), *self._notes_in_words(), *map(str, self.recompiles)]
        parts += self._selected_in_words()
        parts += [*self._left_out_in_words(), *self._graphs_in_words(), *map(str, self.training), *self.unfused]
        if isinstance(self.error, BaseException):
            parts.append(f"the call raised {type(self.error).__name__}: {self.error}")
        elif self.error:
            parts.append(f"the call raised {self.error}")
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The report in a notebook, with pictures of the graphs."""
        from framejit.report.notebook import explanation_cell  # for those who have a notebook

        return explanation_cell(self)

    def _notes_in_words(self) -> list[str]:
        """Why findings have no rewrite, where that was not found out by trying."""
        notes = Counter(
            finding.rewrite_note for finding in self.findings if finding.rewrite is None and finding.rewrite_note
        )
        return [f"{_count(n, 'finding')} without a rewrite: {note}" for note, n in notes.items()]

    def _selected_in_words(self) -> list[str]:
        return [
            f"{place.file}:{place.line}: "
            + (
                f"the loop on data ({_count(operations, 'operation')} a turn) is in the graph "
                f"(config.branch_operations)"
                if form == "loop"
                else f"both branches of the `if` on data ({_count(operations, 'operation')}) are in the graph, which "
                f"selects (config.branch_operations)"
            )
            for place, (operations, form) in self.selected.items()
        ]

    def _left_out_in_words(self) -> list[str]:
        """The functions left out, each once; those without tensors, of which every program has many, as a number."""
        times = Counter(str(frame) for frame in self.left_out if frame.code != WITHOUT_TENSORS)
        lines = [text + (f" ({n} times)" if n > 1 else "") for text, n in times.items()]
        without = len({(frame.file, frame.line) for frame in self.left_out if frame.code == WITHOUT_TENSORS})
        if without:
            lines.append(
                f"{_count(without, 'function')} without a tensor among the arguments: left as they are "
                f"[{WITHOUT_TENSORS}]"
            )
        return lines

    def _breaks_in_words(self) -> str:
        """A place at which several captures broke is one finding."""
        places, captures = len(self.findings), sum(finding.captures for finding in self.findings)
        return _count(captures, "graph break") + (f" at {_count(places, 'place')}" if places != captures else "")

    def _graphs_in_words(self) -> list[str]:
        """The graphs, each once: a function that is compiled again for other sizes has the same graph again."""
        alike: dict[tuple[str, str], list[Graph]] = {}
        for graph in self.graphs:
            alike.setdefault((graph.function, graph.code), []).append(graph)
        return [
            str(first) + (f"\nthe same again: {', '.join(f'graph {g.graph_id}' for g in others)}" if others else "")
            for first, *others in alike.values()
        ]


def graph_text(module: torch.fx.GraphModule) -> str:
    """A graph in words, with those that it runs one of below it."""
    texts = [str(module.graph)]
    for node in module.graph.nodes:
        for branch, when in zip(branches(node.target), ("true", "false")):
            texts.append(f"{node.target.__name__}, if {when}: {graph_text(branch).strip()}")
    return "\n\n".join(texts)


class _Listening:
    """An explanation that listens, until `stop`."""

    def __init__(self, explanation: Explanation, thread: int | None) -> None:
        self._explanation, self._thread, self._start = explanation, thread, time.perf_counter()
        meter.start()
        self._unsubscribe = subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        if self._thread in (None, event.thread):
            self._explanation.hear(event)

    def stop(self) -> None:
        self._unsubscribe()
        self._explanation.listening_s += time.perf_counter() - self._start
        self._explanation.take_costs()
        meter.stop()


def _count(n: int, name: str) -> str:
    return f"{n} {name}{'' if n == 1 else 's'}"
