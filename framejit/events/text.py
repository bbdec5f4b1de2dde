"""Events in words, for the logs."""
from __future__ import annotations

import dis
import io
from collections.abc import Callable

from framejit.events.event import Event


def guards(event: Event, where: str) -> str:
    return f"guards of {where}\n{event.tree_text}"


def graph(event: Event, where: str) -> str:
    return f"graph {event.graph_id} of {where}: {event.n_ops} operations\n{event.graph_module.graph}"


def bytecode(event: Event, where: str) -> str:
    parts = [f"bytecode of {where}"]
    for title, code in (("original", event.original), ("rewritten", event.rewritten)):
        listing = io.StringIO()
        dis.dis(code, file=listing, depth=0)
        parts += [f"{title}:", listing.getvalue().rstrip()]
    return "\n".join(parts)


def graph_break(event: Event, where: str) -> str:
    lines = [f"graph break at {event.file}:{event.line}, in {event.function}", f"  reason: {event.reason} [{event.code}]"]
    if event.hint:
        lines.append(f"  hint: {event.hint}")
    lines += [f"  called from {file}:{line}, in {function}" for file, line, function in callers(event)]
    return "\n".join(lines)


def callers(event: Event) -> list[tuple[str, int, str]]:
    """The calls that led to a graph break, innermost first. `user_stack` has them outermost first and ends with the place itself."""
    return list(reversed(event.user_stack[:-1]))


def recompile(event: Event, where: str) -> str:
    why = [text + (f" (assumed at {user_line[0]}:{user_line[1]})" if user_line else "") for text, _expected, _actual, _source, user_line in event.failures]
    title = f"recompiling {event.function} ({event.file}:{event.line}), because no earlier entry fits:"
    return "\n".join([title, *(f"  {line}" for line in dict.fromkeys(why))])


WRITERS: dict[str, tuple[str, Callable[[Event, str], str]]] = {
    "guards": ("guards", guards),
    "recompiles": ("recompile", recompile),
    "graph_breaks": ("graph_break", graph_break),
    "bytecode": ("bytecode", bytecode),
    "graph": ("graph", graph),
}
"""For each log: the kind of event it writes, and how."""
