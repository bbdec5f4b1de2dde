"""The ledger: what became of every function seen. Fed by each event as it happens, so that it is complete whatever is
forgotten later."""
from __future__ import annotations

import threading
import weakref
from dataclasses import field
from typing import Any

from framejit.events.event import Event
from framejit.events.status_table import HEADINGS, NOTHING, below, row, shown, table
from framejit.events.training import Training
from framejit.late_dataclass import dataclass

Key = tuple[str, str, int]  # function, file, first line


@dataclass
class Break:
    """A place where graphs broke, and how often a capture met it."""

    file: str
    line: int
    column: int
    reason: str
    code: str
    hint: str
    count: int = 0


@dataclass(frozen=True)
class Payback:
    """What compiling a function cost, and when that has paid back."""

    seconds: float
    """Of compiling, in its calls and in the background."""
    calls: int
    """That compiled code has served so far."""
    after: int | None
    """So many calls take as much less than ATen's operations as compiling took; None where they take no less."""

    def __str__(self) -> str:
        cost = f"{self.seconds:.2f} s of compiling"
        if self.after is None:
            return f"{cost}, which {self.calls} calls win nothing for"
        if self.calls >= self.after:
            return f"{cost}, paid back after {self.after} calls"
        return f"{cost}, to be paid back after {self.after} calls, of which there were {self.calls}"


@dataclass(frozen=True)
class Waiting:
    """How long a function ran in Python for calls that nothing compiled fits, in seconds, and after how many it is
    compiled for them."""

    seconds: float
    after: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s so far; compiled for them after {self.after:.2f} s"


@dataclass
class FunctionRecord:
    """All that is known about one function."""

    function: str
    file: str
    line: int
    state: str = "being captured"
    reason: str = ""
    frames: int = 0
    graphs: int = 0
    ops: int = 0
    guards: int = 0
    recompiles: int = 0
    raised: int = 0
    """How often it was told that an operation raised in a graph (of each entry no more than twice)."""
    seconds: float = 0.0
    """The time that its calls waited for the compiler."""
    background_seconds: float = 0.0
    """The time that was compiled beside the program."""
    backend: str = ""
    breaks: dict[tuple[str, int, str], Break] = field(default_factory=dict)
    entries: int = 0
    hits: int = 0
    graph_ops_run: int = 0
    """How many operations ran in graphs, all calls together."""
    broken_ops_run: int = 0
    """How many operations graphs broke at, and which ran between them."""
    graph_seconds: float | None = None
    """The time spent in graphs, and below outside them at graph breaks; None where nothing was measured
    (`framejit status` and `explain` do)."""
    break_seconds: float | None = None
    payback: Payback | None = None
    """None where its graphs were not measured beside ATen's operations, as those with gradients are not."""
    waiting: Waiting | None = None
    """None where it is compiled for all calls."""

    @property
    def share_in_graphs(self) -> float | None:
        """The share of the tensor operations seen that ran in graphs; None for a function that is not captured."""
        total = self.graph_ops_run + self.broken_ops_run
        return self.graph_ops_run / total if total else None

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data."""
        return {
            **vars(self), "share_in_graphs": self.share_in_graphs, "breaks": [vars(b) for b in self.breaks.values()],
            "payback": None if self.payback is None else vars(self.payback),
            "waiting": None if self.waiting is None else vars(self.waiting),
        }


@dataclass(frozen=True)
class Reverted:
    """A compiled graph that is not used, because ATen's own operations measured quicker."""

    graph: str
    function: str
    """Whose graph it is of; empty for a graph that did not come from framejit's own capture."""
    compiled_us: float
    eager_us: float

    def __str__(self) -> str:
        return (
            f"{self.graph}{f' of {self.function}' if self.function else ''}: {self.compiled_us:.1f} us compiled, "
            f"{self.eager_us:.1f} us as ATen"
        )


@dataclass(frozen=True)
class Unfused:
    """A graph that runs as ATen operations, because the backend could make nothing better of it."""

    graph: str
    function: str
    """Whose graph it is; empty for a graph that did not come from framejit's own capture."""
    reason: str

    def __str__(self) -> str:
        return f"{self.graph}{f' of {self.function}' if self.function else ''}: {self.reason}"


@dataclass(frozen=True)
class Launched:
    """A graph that was to be launched at once (`mode="reduce-overhead"`)."""

    graph: str
    function: str
    """Whose graph it is; empty for a graph that did not come from framejit's own capture."""
    state: str
    """`captured`, or `plain` where each kernel is launched on its own."""
    reason: str
    """Why it is not captured; of captured ones what there is to say."""

    def __str__(self) -> str:
        return f"{self.graph}{f' of {self.function}' if self.function else ''}: {self.reason}"


@dataclass(frozen=True)
class Captured:
    """A graph that was captured."""

    graph: str
    function: str
    """Whose graph it is."""
    n_ops: int
    _module: weakref.ref[Any] = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """Its operations, as torch.fx prints them; empty when it is not in use any more."""
        module = self._module()
        return "" if module is None else str(module.graph)


class Ledger:
    """Aggregates events into one record for each function."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: an allocation below may run a finaliser that emits
        self._records: dict[Key, FunctionRecord] = {}
        self._open: dict[int, FunctionRecord] = {}
        self._capturing: dict[int, FunctionRecord] = {}
        """By thread the function whose frame it captured last."""
        self._undecided: dict[str, str] = {}
        """The function of each graph that has not decided yet."""
        self._reverted: list[Reverted] = []
        self._unfused: list[Unfused] = []
        self._trained: list[Training] = []
        self._functions: dict[str, str] = {}
        """The function of each graph that was fused."""
        self._launched: dict[str, Launched] = {}
        self._graphs: weakref.WeakKeyDictionary[Any, Captured] = weakref.WeakKeyDictionary()

    def note(self, event: Event) -> None:
        handler = getattr(self, f"_{event.kind}", None)
        if handler is not None:
            with self._lock:
                handler(event.fields)

    def records(self) -> list[FunctionRecord]:
        """The records, in the order in which the functions were first seen."""
        with self._lock:
            return list(self._records.values())

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._records.clear()
            self._open.clear()
            self._capturing.clear()
            self._undecided.clear()
            self._reverted.clear()
            self._unfused.clear()
            self._trained.clear()
            self._functions.clear()
            self._launched.clear()
            self._graphs.clear()

    def reverted(self) -> tuple[Reverted, ...]:
        """The graphs that proved slower than eager, in the order in which that was found out."""
        with self._lock:
            return tuple(self._reverted)

    def unfused(self) -> tuple[Unfused, ...]:
        """The graphs of which the backend could make nothing, in the order in which it said so."""
        with self._lock:
            return tuple(self._unfused)

    def trained(self) -> tuple[Training, ...]:
        """The graphs that were compiled with their backward, in that order."""
        with self._lock:
            return tuple(self._trained)

    def launched(self) -> tuple[Launched, ...]:
        """The graphs that were to be launched at once, each with the last that was heard of it."""
        with self._lock:
            return tuple(self._launched.values())

    def graphs(self) -> tuple[Captured, ...]:
        """The graphs that were captured and are in use, in that order."""
        with self._lock:
            return tuple(self._graphs.values())

    def _record(self, fields: dict[str, Any]) -> FunctionRecord:
        key = (fields["function"], fields["file"], fields["line"])
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = FunctionRecord(*key)
        return record

    def _capture_started(self, fields: dict[str, Any]) -> None:
        self._open[fields["frame_id"]] = self._capturing[threading.get_ident()] = self._record(fields)

    _capture_found = _capture_started
    """An entry that an earlier process kept stands in the place of a capture."""

    def _background(self, fields: dict[str, Any]) -> None:
        record = self._record(fields)
        record.background_seconds += fields["seconds"]
        if fields["state"] == "in its calls":
            record.reason = f"not compiled in the background: {fields['reason']}"

    def _graph_break(self, fields: dict[str, Any]) -> None:
        record = self._open.get(fields["frame_id"])
        if record is None:
            return
        place = (fields["file"], fields["line"], fields["reason"])
        known = record.breaks.get(place)
        if known is None:
            known = Break(**{name: fields[name] for name in ("file", "line", "column", "reason", "code", "hint")})
            record.breaks[place] = known
        known.count += 1

    def _graph(self, fields: dict[str, Any]) -> None:
        record, module = self._open.get(fields["frame_id"]), fields.get("graph_module")
        if record is not None and module is not None:
            name = f"graph_{fields['graph_id']}"
            self._graphs[module] = Captured(name, record.function, fields["n_ops"], weakref.ref(module))

    def _backend(self, fields: dict[str, Any]) -> None:
        record = self._open.get(fields["frame_id"])
        if record is not None:
            record.backend = fields["name"]

    def _fusion(self, fields: dict[str, Any]) -> None:
        record = self._capturing.get(threading.get_ident())
        graph, function = fields.get("graph", fields["graph_id"]), record.function if record is not None else ""
        if fields.get("reason"):
            self._undecided.pop(graph, None)  # it was fused, and then a kernel failed
            self._unfused.append(Unfused(graph, function, fields["reason"]))
        else:
            self._undecided[graph] = self._functions[graph] = function

    def _training(self, fields: dict[str, Any]) -> None:
        record = self._capturing.get(threading.get_ident())
        self._trained.append(Training.of(fields, record.function if record is not None else ""))

    def _perf(self, fields: dict[str, Any]) -> None:
        function = self._undecided.pop(fields["graph"], "")
        if fields["state"] == "eager":
            self._reverted.append(Reverted(fields["graph"], function, fields["compiled_us"], fields["eager_us"]))

    def _launch_graph(self, fields: dict[str, Any]) -> None:
        graph = fields["graph"]
        self._launched[graph] = Launched(graph, self._functions.get(graph, ""), fields["state"], fields["reason"])

    def _recompile(self, fields: dict[str, Any]) -> None:
        self._record(fields).recompiles += 1

    def _graph_raised(self, fields: dict[str, Any]) -> None:
        record = self._record(fields)
        record.raised += 1
        record.reason = record.reason or f"a graph raised {fields['error'].splitlines()[0]}: {fields['outcome']}"

    def _frame_done(self, fields: dict[str, Any]) -> None:
        self._open.pop(fields["frame_id"], None)
        self._capturing.pop(threading.get_ident(), None)
        record = self._record(fields)
        record.frames += 1
        record.state = _together(record.state, fields["state"])
        record.reason = fields["reason"] or record.reason
        record.graphs += fields["n_graphs"]
        record.ops += fields["n_ops"]
        record.guards += fields["n_guards"]
        record.seconds += fields["seconds"]


def _together(before: str, now: str) -> str:
    """The state of a function of which several frames were seen: its calls with other arguments, and what resumes after
    a graph break."""
    if before in (now, "being captured"):
        return now
    parts = {"compiled", "compiled in parts"}
    return "compiled in parts" if before in parts or now in parts else now


ledger = Ledger()


@dataclass(frozen=True)
class Status:
    """The result of `framejit.status()`: a record for each function seen. Prints as a table."""

    functions: tuple[FunctionRecord, ...]
    reverted: tuple[Reverted, ...] = ()
    """Compiled graphs that are not used, with both times."""
    unfused: tuple[Unfused, ...] = ()
    """Graphs of which the backend could make nothing, with the reason."""
    trained: tuple[Training, ...] = ()
    """Graphs that were compiled with their backward: kernels of both halves, what is kept and what is computed
    again."""
    launched: tuple[Launched, ...] = ()
    """Graphs that were to be launched at once: those that are, and those that can't be, with the reason."""
    graphs: tuple[Captured, ...] = ()
    """The graphs that were captured in this process and are in use."""

    def to_dict(self) -> list[dict[str, Any]]:
        """The records as plain data."""
        return [record.to_dict() for record in self.functions]

    def __str__(self) -> str:
        return table(self)

    def _repr_html_(self) -> str:
        """The table in a notebook, with pictures of the graphs."""
        from framejit.report.notebook import status_cell  # for those who have a notebook

        graphs = [(f"{graph.graph} of {graph.function}", graph.n_ops, graph.text) for graph in self.graphs]
        rows = list(map(row, shown(self))) or [(NOTHING,)]
        return status_cell(HEADINGS, rows, below(self), [graph for graph in graphs if graph[2]])
