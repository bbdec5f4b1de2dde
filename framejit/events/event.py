"""What an event is, and which kinds there are."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KINDS: dict[str, tuple[str, ...]] = {
    "capture_started": ("function", "file", "line", "frame_id", "fn", "flat_args"),
    "capture_found": ("function", "file", "line", "frame_id", "graph_id"),
    "graph": ("frame_id", "graph_id", "graph_module", "n_ops", "example_inputs"),
    "guards": ("frame_id", "guards", "tree_text"),
    "graph_break": (
        *(
            "frame_id", "function", "file", "line", "column", "end_line", "end_column", "reason", "provenance",
            "code", "hint",
        ),
        *("user_stack", "in_graph_ops", "call_sites"),
    ),
    "selected": ("frame_id", "function", "file", "line", "column", "end_line", "end_column", "operations", "form"),
    "bytecode": ("frame_id", "original", "rewritten"),
    "recompile": ("frame_id", "function", "file", "line", "failures", "provenance"),
    "graph_raised": ("frame_id", "function", "file", "line", "error", "outcome"),
    "backend": ("frame_id", "name", "seconds"),
    "frame_done": (
        "frame_id", "function", "file", "line", "state", "reason", "code", "seconds", "n_graphs", "n_ops", "n_guards",
    ),
    "fusion": ("graph_id", "graph", "text", "reason"),
    "training": ("graph_id", "graph", "kernels", "kept", "computed_again", "apart"),
    "output_code": ("graph_id", "name", "language", "source", "kernel"),
    "kernel_failed": ("kernel", "error", "instead"),
    "autotuned": ("kernel", "tried", "chosen", "first_us", "chosen_us"),
    "perf": ("graph", "graph_id", "compiled_us", "eager_us", "eager_is_least", "state", "bytes"),
    "launch_graph": ("graph_id", "graph", "state", "reason"),
    "cache": ("what", "hit", "key", "reason"),
    "background": ("function", "file", "line", "state", "reason", "seconds"),
    "capture_kept": ("function", "file", "line", "reason"),
    "verify": ("function", "file", "line", "outcome", "code", "reason", "node", "guard", "script"),
    "warning": ("message", "place"),
}
"""The kinds of events and the fields of each."""

STATES = ("compiled", "compiled in parts", "skipped", "eager")
"""How a frame may end: the `state` of a `frame_done`."""

TRANSIENT = frozenset(
    ("graph_module", "example_inputs", "guards", "original", "rewritten", "fn", "flat_args", "call_sites")
)
"""Fields that hold the user's objects or compiled code. Listeners see them; what is remembered goes without, so that
nothing is kept alive."""


@dataclass(frozen=True, slots=True)
class Event:
    """One decision: `kind` (see KINDS), when, on which thread, and the fields of the kind, also readable as
    attributes."""

    kind: str
    time_ns: int
    thread: int
    fields: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"a {self.kind!r} event has no field {name!r}") from None

    def without_transient(self) -> Event:
        """The event as it may be remembered for long."""
        if TRANSIENT.isdisjoint(self.fields):
            return self
        return Event(self.kind, self.time_ns, self.thread, {k: v for k, v in self.fields.items() if k not in TRANSIENT})
