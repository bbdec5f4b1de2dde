"""Graphs with loops on data in them, with gradients that captured code asks for, with tensors that it wants gradients
for, with functions that run as a whole, or that enter inference mode: what comes before these, between two,
and behind the last is compiled like graphs of their own, and so is what a loop repeats.

Each part is compiled when it first runs, with the tensors that arrive and in the state of torch's that it runs in: a
loop that is never gone through costs no compilation. Autograd ties the parts together as it does any two graphs, so
that gradients are its own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, TypeGuard

import torch
from torch import fx
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from framejit.backends.autocast_nesting import nesting
from framejit.backends.data_loop import DataLoop
from framejit.backends.fuse.account.compiled_graph import PART, CompiledGraph, recall_all
from framejit.backends.fuse.thread_state import restored_thread_state, thread_state
from framejit.backends.graph_identity import (
    COUNTED_WRITES,
    FIRST_VERSION,
    LAST_VERSION,
    VERSIONS,
    asked_of,
    has_version,
    identify,
    identity,
)
from framejit.backends.may_raise import operation_name
from framejit.backends.opaque_call import BETWEEN_PARTS, RECURRENT, CheckpointCall, OpaqueCall, TraceableCall
from framejit.backends.subgraph import subgraph
from framejit.environment.inference_modes import enter_inside
from framejit.environment.signal_handlers import SignalsWait
from framejit.fakes.arguments import tensors_in
from framejit.guards.saved_tensor_hooks import without_saved_tensor_hooks

PART_NAME: Final = "part_"
"""What the function calls its parts, with their numbers."""
_MODE_CHANGES: Final = (_enter_inference_mode, enter_inside, _exit_inference_mode)
"""What enters and leaves inference mode."""
IN_ALL_PROCESSES: Final = {
    "grad": torch.autograd.grad, **{name: getattr(torch, name) for name in sorted(RECURRENT)},
    **{function.__name__.lstrip("_"): function for function in _MODE_CHANGES},
}
"""What stands between parts and is the same in all processes, by the names that the function calls it by."""

Run = Callable[..., Any]
Compile = Callable[[fx.GraphModule, list[torch.Tensor]], Run]


class Group(NamedTuple):
    """Nodes that follow each other: a part, or one that stands between parts."""

    nodes: list[fx.Node]
    is_part: bool


def is_in_parts(gm: fx.GraphModule) -> bool:
    """Whether a graph has something in it that stands between parts."""
    return any(map(divides, gm.graph.nodes))


def why_whole(gm: fx.GraphModule) -> str:
    """Why such a graph can't be compiled in parts; empty if it can."""
    loops = any(isinstance(node.target, DataLoop) for node in gm.graph.nodes)
    for node in gm.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            return "it is compiled in parts, and has an object of its own"
        if _runs_as_a_whole(node.target) and (
            loops or any(map(is_size, node.all_input_nodes)) or _moves_what_is_kept(node)
        ):
            return node.target.why
        if not loops:
            continue
        if node.meta.get("written"):
            return "it writes into tensors around a loop on data"
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides or is_size(node):
            return "it has a loop on data, and sizes that are left open"
    return ""


def _moves_what_is_kept(node: fx.Node) -> bool:
    """Whether a node gives other memory to a tensor that the graph makes and gradients go through. Eager's autograd
    keeps the tensor, and computes gradients of what is in it by then; a part keeps memory, or makes the tensor anew."""
    if not isinstance(node.target, OpaqueCall) or node.target.operation != "set_data":
        return False
    tensor = node.all_input_nodes[0]
    return tensor.op != "placeholder" and any(each.requires_grad for each in tensors_in((tensor.meta.get("val"),)))


class LazyGraph:
    """A graph that is compiled when it first runs; `settle` is called with what runs it from then on."""

    def __init__(self, module: fx.GraphModule, compile: Compile, settle: Callable[[Run], None]) -> None:
        self.module, self._compile, self._settle = module, compile, settle
        self.run: Run | None = None
        self.tell: Callable[[Run], None] | None = None
        """Called with what was compiled."""
        self.in_inference_mode = False
        """Whether it was compiled in inference mode, and so runs in it."""

    def __call__(self, *inputs: torch.Tensor) -> Any:
        run = self.compiled([*inputs]) if self.run is None else self.run
        return run(*inputs)

    def compiled(self, inputs: list[torch.Tensor]) -> Run:
        """What runs the graph from now on, compiled for inputs like these, in the state of torch's that holds."""
        with SignalsWait(), without_saved_tensor_hooks():
            self.in_inference_mode = torch.is_inference_mode_enabled()
            run = self.run = self._compile(self.module, inputs)
            if self.tell is not None:
                self.tell(run)
        self._settle(run)
        return run

    def graphs(self) -> list[CompiledGraph]:
        """The accounts of what was compiled."""
        return [] if self.run is None else recall_all(self.run)


class GraphInParts:
    """A compiled graph of this kind: a Python function that calls its parts, one after the other."""

    def __init__(self, gm: fx.GraphModule, compile_graph: Compile) -> None:
        self.eager = gm.forward
        self._gm, self._compile = gm, compile_graph
        self.parts: list[LazyGraph] = []
        self.namespace: dict[str, Any] = {**IN_ALL_PROCESSES}
        """What the function calls by name: parts, and what stands between them."""
        self._numbers = {node: f"v{i}" for i, node in enumerate(gm.graph.nodes)}
        self._write()

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        made: tuple[Any, ...] = self.run(*inputs)
        return made

    def compile_first(self, inputs: list[torch.Tensor]) -> None:
        """Compile what a graph begins with that enters inference mode before all else, given the graph's inputs: that
        takes nothing that has to be computed, and so no call has to wait for it."""
        nodes = [node for node in self._gm.graph.nodes if node.op != "placeholder"]
        if nodes[0].target is not _enter_inference_mode or nodes[0].args != (True,):
            return
        _, first, *_ = self._groups()
        if first.is_part:
            given = dict(zip(self._gm.graph.nodes, inputs))
            with torch.inference_mode():
                self.parts[0].compiled([given[node] for node in self._tensors_for(first.nodes)])

    def graphs(self) -> list[CompiledGraph]:
        """The accounts of what was compiled so far."""
        return [graph for part in self.parts for graph in part.graphs()]

    def _list(self, nodes: Iterable[Any]) -> str:
        return "".join(f"{self._numbers[node]}, " for node in nodes)

    def _lazy(self, module: fx.GraphModule, settle: Callable[[Run], None]) -> LazyGraph:
        number = identity(self._gm)
        if number is not None:
            identify(module, number)
        module.meta |= asked_of(self._gm)
        module.meta[PART] = f"{self._gm.meta[PART]}_{len(self.parts)}" if PART in self._gm.meta else len(self.parts)
        self.parts.append(LazyGraph(module, self._compile, settle))
        return self.parts[-1]

    def _write(self) -> None:
        """Write the function."""
        inputs = [node for node in self._gm.graph.nodes if node.op == "placeholder"]
        self.text = "\n".join([f"def run({self._list(inputs)}):", *(f"    {line}" for line in self._lines())])
        self.run = function_of(self.text, self.namespace)

    def _lines(self) -> Iterator[str]:
        """The function's statements. A value goes after its last use."""
        groups = self._groups()
        last = {group.nodes[0]: group.nodes[0] for group in groups if not group.is_part}
        for group in groups:
            last |= {used: group.nodes[0] for used in self._tensors_for(group.nodes)}
        ended: dict[fx.Node, list[fx.Node]] = {}
        for used, at in last.items():
            ended.setdefault(at, []).append(used)
        before: fx.Node | None = None
        for number, group in enumerate(groups):
            [node, *_] = group.nodes
            if node.op == "output":
                results: Any = node.args[0]
                yield f"return ({self._list(results)})"
                return
            if group.is_part:
                following = (later for group in groups[number + 1 :] for later in group.nodes)
                behind = next(later for later in following if VERSIONS in later.meta or later.op == "output")
                yield self._part(group.nodes, node if VERSIONS in node.meta else before, behind)
            else:
                yield self._single(node)
                before = node if VERSIONS in node.meta else before
            if node in ended:
                yield f"del {self._list(ended[node])}"

    def _groups(self) -> list[Group]:
        return groups_of(self._gm.graph.nodes, divides)

    def _tensors_for(self, nodes: list[fx.Node]) -> list[fx.Node]:
        """The tensors that a group takes from before it."""
        return _taken(nodes)[0]

    def _module(self, nodes: list[fx.Node]) -> tuple[fx.GraphModule, list[fx.Node], str, list[fx.Node]]:
        """A part's graph; the tensors that are its first inputs, what others it is given, as text, and its results."""
        inside = {*nodes}
        takes, sizes = _taken(nodes)
        gives = [node for node in nodes if not is_size(node) and any(user not in inside for user in node.users)]
        return subgraph(takes, [*sizes, *nodes], gives), takes, "", gives

    def _part(self, nodes: list[fx.Node], before: fx.Node | None, behind: fx.Node) -> str:
        """A part. The versions that tensors have before and behind it are noted at two nodes."""
        module, takes, others, gives = self._module(nodes)
        name = f"{PART_NAME}{len(self.parts)}"
        for node, placeholder in zip(takes, module.graph.nodes):
            fake = node.meta.get("val")
            if has_version(fake):
                first, last = (_version(node, at, fake) for at in (before, behind))
                placeholder.meta |= {FIRST_VERSION: first, COUNTED_WRITES: last - first}
        [output] = [node for node in module.graph.nodes if node.op == "output"]
        for node, result in zip(gives, output.args[0]):
            fake = node.meta.get("val")
            if has_version(fake):
                result.meta[LAST_VERSION] = _version(node, behind, fake)
        self.namespace[name] = self._lazy(module, partial(self.namespace.__setitem__, name))
        call = f"{name}({self._list(takes)}{others})"
        return f"({self._list(gives)}) = {call}" if gives else call

    def _single(self, node: fx.Node) -> str:
        target: Any = node.target
        name = f"step_{self._numbers[node]}"
        if isinstance(target, DataLoop):
            self.namespace[name] = target.over(self._lazy)
            return f"{self._numbers[node]} = {name}({self._list(node.args)})"
        if target is operator.getitem:
            return f"{self._numbers[node]} = {self._list(node.args[:1])[:-2]}[{node.args[1]}]"
        if node.op == "call_method":
            return f"{self._numbers[node]} = {self._list(node.args)[:-2]}.{target}()"
        given = [*map(self._text, node.args), *(f"{key}={self._text(value)}" for key, value in node.kwargs.items())]
        name = next((known for known, function in IN_ALL_PROCESSES.items() if function == target), name)
        self.namespace[name] = target
        return f"{self._numbers[node]} = {name}({', '.join(given)})"

    def _text(self, argument: Any) -> str:
        """An argument as Python: nodes by their names, what is no literal by a name of its own."""
        if isinstance(argument, fx.Node):
            return self._numbers[argument]
        if isinstance(argument, (tuple, list)):
            return f"({''.join(f'{self._text(item)}, ' for item in argument)})"
        is_finite = type(argument) is float and math.isfinite(argument)
        if argument is None or is_finite or type(argument) in (bool, int, str):
            return repr(argument)
        name = f"object_{len(self.namespace)}"
        self.namespace[name] = argument
        return name


def _version(node: fx.Node, at: fx.Node | None, fake: torch.Tensor) -> int:
    """The version that a node's result has at another node; None for the graph's beginning."""
    if at is not None and at.op == "output":
        return fake._version
    known: dict[fx.Node, int] = {} if at is None else at.meta.get(VERSIONS, {})
    version: int = known.get(node, node.meta[FIRST_VERSION])
    return version


def function_of(text: str, namespace: dict[str, Any]) -> Run:
    """The function that the text defines."""
    exec(compile(text, "<a graph in parts>", "exec"), namespace)
    run: Run = namespace["run"]
    return run


def is_size(node: fx.Node) -> bool:
    """Whether a node gives a size that is not known before the graph runs."""
    return isinstance(node.meta.get("val"), torch.SymInt)


def _taken(group: list[fx.Node]) -> tuple[list[fx.Node], list[fx.Node]]:
    """What a group takes from before it: tensors, and sizes, which it computes anew of tensors."""
    inside, tensors, sizes = {*group}, dict[fx.Node, None](), dict[fx.Node, None]()

    def take(node: fx.Node) -> None:
        for given in node.all_input_nodes:
            if given in inside or given in sizes:
                continue
            if is_size(given):
                take(given)
                sizes[given] = None
            else:
                tensors[given] = None

    for node in group:
        take(node)
    return [*tensors], [*sizes]


def divides(node: fx.Node) -> bool:
    """Whether a node stands between parts: a loop on data, what asks for gradients, a recurrent layer that has some, an
    operation of which too little is known, a function that runs as a whole, or what enters or leaves inference mode."""
    if node.op == "call_method":
        return node.target == "requires_grad_"
    if node.target in _MODE_CHANGES:
        return True
    if node.target is torch.autograd.grad:
        return not node.kwargs.get("create_graph")  # gradients that have some of their own are part of a forward
    name = operation_name(node.target) if node.op == "call_function" else None
    if name in BETWEEN_PARTS:
        return name not in RECURRENT or any(tensor.requires_grad for tensor in tensors_in((node.meta.get("val"),)))
    return isinstance(node.target, DataLoop) or _runs_as_a_whole(node.target)


def _runs_as_a_whole(target: Any) -> TypeGuard[OpaqueCall]:
    """Whether a node calls a function that no part can hold. What is checkpointed, and a traced `autograd.Function`, is
    written down as operations."""
    return isinstance(target, OpaqueCall) and not isinstance(target, (CheckpointCall, DataLoop, TraceableCall))


def without_traced(gm: fx.GraphModule, wanted: Callable[[fx.Node], bool] = lambda node: True) -> bool:
    """Have functions run as a whole that might be traced; whether there are any."""
    traced = [node for node in gm.graph.nodes if isinstance(node.target, TraceableCall) and wanted(node)]
    for node in traced:
        node.target = node.target.untraced()
    if traced:
        gm.recompile()
    return bool(traced)


def pulls_back(node: fx.Node) -> bool:
    """Whether a node gives, or takes, a function that pulls gradients back, which no part can hand to another."""
    values = [each.meta.get("val") for each in (*node.all_input_nodes, *node.users)]
    return not all(value is None or isinstance(value, (torch.Tensor, torch.SymInt, tuple, list)) for value in values)


def changes_state(node: fx.Node) -> bool:
    """Whether a node changes torch's state: it has no result on fakes."""
    return (
        node.op == "call_function" and not divides(node) and "val" not in node.meta and "written" not in node.meta
    )


def groups_of(nodes: Iterable[fx.Node], divides: Callable[[fx.Node], bool]) -> list[Group]:
    """A graph's nodes in groups: parts, and what stands between them. What changes torch's state is in a part where
    that is as before by the part's end, and between parts elsewhere."""
    groups, waiting = list[Group](), list[fx.Node]()

    def is_operation(node: fx.Node) -> bool:
        """Whether it can be in a part: an operation on tensors. The results of what divides a graph may come in a
        tuple."""
        if divides(node) or node.op == "output" or "val" not in node.meta and "written" not in node.meta:
            return False
        return node.target is not operator.getitem or not any(
            divides(given) and isinstance(given.meta.get("val"), (tuple, list)) for given in node.all_input_nodes
        )

    with restored_thread_state():
        before = thread_state(), nesting()
        for node in nodes:
            if node.op == "placeholder":
                continue
            if is_operation(node) or changes_state(node):
                waiting.append(node)
                if changes_state(node):
                    target: Any = node.target
                    target(*node.args, **node.kwargs)
                continue
            now = thread_state(), nesting()
            groups += _of_run(waiting, now == before, is_operation)
            groups.append(Group([node], False))
            waiting, before = [], now
    return groups


def _of_run(nodes: list[fx.Node], is_balanced: bool, is_operation: Callable[[fx.Node], bool]) -> list[Group]:
    """Groups of nodes that nothing stands between."""
    if is_balanced and any(map(is_operation, nodes)):
        return [Group(nodes, True)]
    groups: list[Group] = []
    for node in nodes:
        if is_operation(node) and groups and groups[-1].is_part:
            groups[-1].nodes.append(node)
        else:
            groups.append(Group([node], is_operation(node)))
    return groups
