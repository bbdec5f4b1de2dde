"""Events in words, for the logs."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from framejit.events.bytecode_text import one_below_the_other, side_by_side
from framejit.events.choice import Level
from framejit.events.event import Event
from framejit.events.place import Place
from framejit.events.training import Training
from framejit.late_dataclass import dataclass

Writer = Callable[[Event, str, Level], str]


def guards(event: Event, where: str, level: Level) -> str:
    text = f"guards of {where}\n{event.tree_text}"
    return (
        text + "\nin the order of their making:\n" + "\n".join(f"  {guard.text}" for guard in event.guards)
        if level is Level.FULL
        else text
    )


def graph(event: Event, where: str, level: Level) -> str:
    title = f"graph {event.graph_id} of {where}: {event.n_ops} operations"
    if level is Level.FULL:
        return "\n".join([title, *(_node(node) for node in event.graph_module.graph.nodes)])
    return f"{title}\n{event.graph_module.graph}"


def _node(node: Any) -> str:
    """A node with the shape of its result and the user's line."""
    text, value = node.format_node(), node.meta.get("val")
    if hasattr(value, "shape"):
        text += f"  # {str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"
    places = [
        line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.lstrip().startswith("File ")
    ]
    return f"  {text}" + (f"  # {places[-1]}" if places else "")


def bytecode(event: Event, where: str, level: Level) -> str:
    write = one_below_the_other if level is Level.FULL else side_by_side
    return f"bytecode of {where}\n{write(('original:', 'rewritten:'), (event.original, event.rewritten))}"


def graph_break(event: Event, where: str, level: Level) -> str:
    title = f"graph break at {event.file}:{event.line}, in {event.function}"
    if level is Level.BRIEF:
        return f"{title}: {event.reason} [{event.code}]"
    lines = [title]
    if level is Level.FULL:
        place = Place(
            event.file, event.line, event.column, event.fields.get("end_line"), event.fields.get("end_column")
        )
        lines += [f"    {line}" for line in place.excerpt().splitlines()]
    lines.append(f"  reason: {event.reason} [{event.code}]")
    lines += [f"  {sentence}" for sentence in (event.fields.get("provenance") or "").split("; ") if sentence]
    if event.hint:
        lines.append(f"  hint: {event.hint}")
    lines += [f"  called from {file}:{line}, in {function}" for file, line, function in callers(event)]
    if level is Level.FULL:
        lines.append(f"  the graph before it has {event.in_graph_ops} operations")
    return "\n".join(lines)


def callers(event: Event) -> list[tuple[str, int, str]]:
    """The calls that led to a graph break, innermost first. `user_stack` has them outermost first and ends with the
    place itself."""
    return list(reversed(event.user_stack[:-1]))


def recompile(event: Event, where: str, level: Level) -> str:
    why = [
        text + (f" (assumed at {user_line[0]}:{user_line[1]})" if user_line else "")
        for text, _expected, _actual, _source, user_line in event.failures
    ]
    title = f"recompiling {event.function} ({event.file}:{event.line}), because no earlier entry fits:"
    if level is Level.BRIEF:
        return f"{title} {why[-1] if why else 'unknown'}"
    lines = [title, *(f"  {line}" for line in dict.fromkeys(why))]
    if level is Level.FULL:
        lines += [
            f"  {sentence}"
            for text in dict.fromkeys(event.fields.get("provenance") or ())
            for sentence in text.split("; ")
            if sentence
        ]
        lines.append(f"  entries so far: {len(event.failures)}")
    return "\n".join(lines)


def graph_raised(event: Event, where: str, level: Level) -> str:
    return f"a graph of {event.function} ({event.file}:{event.line}) raised {event.error}: {event.outcome}"


def selected(event: Event, where: str, level: Level) -> str:
    if event.form == "loop":
        return (
            f"the loop on data at {event.file}:{event.line}, in {event.function}, is in the graph: "
            f"{event.operations} operations a turn"
        )
    return (
        f"both branches of the `if` on data at {event.file}:{event.line}, in {event.function}, are in the graph: "
        f"{event.operations} operations"
    )


def fusion(event: Event, where: str, level: Level) -> str:
    return f"fusion of {_graph(event, where)}\n{event.text}"


def training(event: Event, where: str, level: Level) -> str:
    return str(Training.of(event.fields, where))


def output_code(event: Event, where: str, level: Level) -> str:
    return f"{event.language} code of kernel {event.name} for {_graph(event, where)}\n{event.source}"


def _graph(event: Event, where: str) -> str:
    """Graphs that framejit did not capture have no number."""
    name = "a graph" if event.graph_id is None else f"graph {event.graph_id}"
    return f"{name} of {where}" if where else name


def kernel_failed(event: Event, where: str, level: Level) -> str:
    return f"kernel {event.kernel} was not compiled: {event.error}; tried instead: {event.instead}"


def autotuned(event: Event, where: str, level: Level) -> str:
    if not event.tried:
        return f"kernel {event.kernel}: {event.chosen} by rules; the device lacks the memory to measure others"
    return (
        f"kernel {event.kernel}: the quickest of {event.tried} is {event.chosen}, {_us(event.chosen_us)}; "
        f"{_us(event.first_us)} by rules"
    )


def perf(event: Event, where: str, level: Level) -> str:
    text = (
        f"{event.graph}{f' of {where}' if where else ''}: {event.state}, {_us(event.compiled_us)} compiled, "
        f"{'at least ' if event.fields.get('eager_is_least') else ''}{_us(event.eager_us)} eager"
    )
    if event.compiled_us and event.eager_us:
        text += f" ({event.eager_us / event.compiled_us:.2f}x)"
    return text


def _us(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1f} us"


def launch_graph(event: Event, where: str, level: Level) -> str:
    state = "captured as a launch graph" if event.state == "captured" else "launched kernel by kernel"
    return f"{event.graph}{f' of {where}' if where else ''}: {state}{f' ({event.reason})' if event.reason else ''}"


def cache(event: Event, where: str, level: Level) -> str:
    key = str(event.key)
    reason = event.fields.get("reason", "")  # a backend of somebody else's may have none to give
    named = f", key {key if level is Level.FULL or len(key) <= 16 else key[:16]}" if key else ""
    return f"{'hit' if event.hit else 'miss'}: {event.what}{named}{f' ({reason})' if reason else ''}"


def background(event: Event, where: str, level: Level) -> str:
    took = f" after {event.seconds:.2f} s" if event.seconds else ""
    reason = f": {event.reason}" if event.reason else ""
    return f"{event.function} ({event.file}:{event.line}): {event.state}{took}{reason}"


def verify(event: Event, where: str, level: Level) -> str:
    title = f"{event.function} ({event.file}:{event.line}): {event.outcome}"
    lines = [title]
    if event.reason:
        lines.append(f"  {event.reason}" + (f" [{event.code}]" if event.code else ""))
    if event.script:
        lines.append(f"  reproduction: {event.script}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Log:
    """One of the logs: the kind of event it writes, how, and what the help says of it."""

    kind: str
    write: Writer
    meaning: str


LOGS: dict[str, Log] = {
    "guards": Log("guards", guards, "what compiled code assumes, as a tree, with the lines that made the assumptions"),
    "recompiles": Log("recompile", recompile, "which assumptions did not hold, so that a function is compiled again"),
    "graph_breaks": Log("graph_break", graph_break, "where graphs end early, why, and what to do"),
    "selections": Log("selected", selected, "which `if`s (both branches) and loops on data are in graphs"),
    "exceptions": Log("graph_raised", graph_raised, "which graphs raised while they ran, and what became of the call"),
    "bytecode": Log("bytecode", bytecode, "the original and the rewritten bytecode, side by side"),
    "graph": Log("graph", graph, "the captured graphs"),
    "fusion": Log("fusion", fusion, "which operations were fused into which kernels"),
    "training": Log("training", training, "what graphs keep for the backward, by line, and what it computes again"),
    "output_code": Log("output_code", output_code, "the kernels' source"),
    "kernel_failures": Log(
        "kernel_failed", kernel_failed, "which kernels a device's compiler failed on, and what was tried instead"
    ),
    "autotune": Log("autotuned", autotuned, "which tiles of kernels measured quickest, in max-autotune modes"),
    "perf": Log("perf", perf, "how long compiled graphs and their eager originals take"),
    "launches": Log("launch_graph", launch_graph, "which graphs are launched at once, and why others are not"),
    "cache": Log("cache", cache, "what was found in the cache of compiled code, and what was not"),
    "background": Log("background", background, "what is compiled beside the program, and what is not and why"),
    "verify": Log("verify", verify, "calls that were compared with plain Python"),
}
