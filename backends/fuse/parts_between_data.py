"""Graphs in which data decides sizes: what finds such a size, or reads a number that is one, runs as ATen between
parts, and each part is compiled for all sizes that are like those that arrive.

A part takes a number that it needs as the first size of a tensor without memory. What is too small for a kernel to be
worth a call of its own stands between parts, too.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch
from torch import fx

from framejit.backends.fuse.in_parts import GraphInParts, Group, Run, changes_state, divides, groups_of, is_size
from framejit.backends.may_raise import draws_numbers, is_collective
from framejit.backends.opaque_call import OpaqueCall
from framejit.fakes.arguments import tensors_in
from framejit.fakes.storages import storage_of
from framejit.symbols.expression import DataSymbol
from framejit.symbols.sym_node import expression_of

CompilePart = Callable[[fx.GraphModule, list[torch.Tensor], Callable[[], None]], Run]
"""Compiles a part for the inputs that arrive. What it is given last is called where ATen turns out to be quicker."""

_FIRST: Final = "framejit.first_node"
"""In a part's `meta`: the first of its nodes in the graph."""
LEAST: Final = 2
"""Operations that make a part: a kernel for one takes the time of ATen's."""
_SIZES: Final[dict[Any, str]] = {
    operator.add: "({} + {})", operator.mul: "({} * {})", operator.floordiv: "({} // {})", operator.mod: "({} % {})",
    torch.sym_min: "min({}, {})", torch.sym_max: "max({}, {})",
    torch.ops.aten.sym_size.int: "{}.shape[{}]", torch.ops.aten.sym_stride.int: "{}.stride({})",
}
"""How Python computes sizes."""


def why_undivided(gm: fx.GraphModule) -> str:
    """Why a graph in which data decides sizes can't be compiled in parts; empty if it can."""
    for node in gm.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            return "it has an object of its own"
        if isinstance(node.target, OpaqueCall):
            return node.target.why
        if is_size(node) and not _is_read(node) and node.target not in _SIZES:
            return f"{node.target} computes a size"
    return ""


def read_size(tensor: torch.Tensor) -> Any:
    """The number in a tensor, which is to be a size; plain Python goes on where it is none."""
    number = tensor.item()
    if number < 0:
        raise RuntimeError("a number that data decides is negative")
    return number


def of_length(number: int) -> torch.Tensor:
    """A tensor without memory that brings a number into a part."""
    return torch.empty((number, 0))


class PartsBetweenData(GraphInParts):
    """A compiled graph of this kind."""

    def __init__(self, gm: fx.GraphModule, compile_part: CompilePart) -> None:
        self._compile_part = compile_part
        self._calls: dict[fx.Node, str] = {}
        """By the first node of a part the call of it."""
        self._given_up: set[fx.Node] = set()
        """The first nodes of parts that ATen does quicker."""
        self._sources: dict[fx.Node, fx.Node] = {}
        """By what reads a number the tensor that it is read from."""
        self._places: dict[fx.Node, fx.Node] = {}
        """By a node the one that reads a number in its place."""
        self._checks: set[fx.Node] = set()
        """What only says that a number is no size."""
        self._first_read: dict[fx.Node, fx.Node] = {}
        """By a tensor that nothing writes into what reads its number."""
        for node in gm.graph.nodes:
            if _is_read(node):
                self._find_read(node)
        super().__init__(gm, self._compiled)
        self.namespace |= {"read_size": read_size, "of_length": of_length}

    def _compiled(self, module: fx.GraphModule, inputs: list[torch.Tensor]) -> Run:
        first = module.meta[_FIRST]

        def give_up() -> None:
            self._given_up.add(first)
            self._write()

        return self._compile_part(module, inputs, give_up)

    def _part(self, nodes: list[fx.Node], before: fx.Node | None, behind: fx.Node) -> str:
        if nodes[0] not in self._calls:
            self._calls[nodes[0]] = super()._part(nodes, before, behind)
        return self._calls[nodes[0]]

    def _find_read(self, node: fx.Node) -> None:
        """Have a number read from where capture has copied it from."""
        copy: Any = node.args[0]
        checks = [user for user in copy.users if user.target is torch.ge and user.args == (copy, 0)]
        asserted = [user for check in checks for user in check.users]
        if len(checks) != 1 or len(asserted) != 1 or asserted[0].target is not torch._assert_async:
            self._sources[node], self._places[node] = copy, node
            return
        self._checks |= {*checks, *asserted}
        if copy.target == "to" and copy.op == "call_method" and {*copy.users} == {checks[0], node}:
            self._checks.add(copy)
            self._sources[node], self._places[copy] = copy.args[0], node
        else:
            self._sources[node], self._places[node] = copy, node

    # ---- in which order ---------------------------------------------------------------------------

    def _groups(self) -> list[Group]:
        groups: list[Group] = []
        for group in groups_of(self._ordered(), self._stands_between):
            is_small = sum(map(_computes, group.nodes)) < LEAST
            if group.is_part and (is_small or group.nodes[0] in self._given_up):
                groups += [Group([node], False) for node in group.nodes]
            else:
                groups.append(group)
        return groups

    def _stands_between(self, node: fx.Node) -> bool:
        return divides(node) or node in self._sources or _finds_sizes(node)

    def _ordered(self) -> list[fx.Node]:
        """The nodes that run, without those that compute sizes, which are written where they are used."""
        nodes = [
            self._places.get(node, node)
            for node in self._gm.graph.nodes
            if node in self._places or node.op != "placeholder" and node not in self._checks and not is_size(node)
        ]
        written = {storage_of(fake) for node in nodes for fake in node.meta.get("written", ())}
        first = [
            node
            for node in nodes
            if node in self._sources
            and self._sources[node].op == "placeholder"
            and storage_of(self._sources[node].meta["val"]) not in written
        ]
        for node in first:
            self._first_read.setdefault(self._sources[node], node)
        rest = [node for node in nodes if node not in first]
        if not written and not any(map(_has_a_place, rest)):
            rest = self._gathered(rest)
        return [*self._first_read.values(), *rest]

    def _gathered(self, nodes: list[fx.Node]) -> list[fx.Node]:
        """The nodes, the last of which is the output, in an order in which as many as can be follow each other between
        two that divide the graph."""
        *waiting, output = nodes
        places = {node: place for place, node in enumerate(waiting)}
        missing, users = dict[fx.Node, int](), {node: list[fx.Node]() for node in waiting}
        for node in waiting:
            needed = {given for given in self._needs([node]) if given in places}
            missing[node] = len(needed)
            for given in needed:
                users[given].append(node)
        ready = {
            between: [places[node] for node in waiting if not missing[node] and self._stands_between(node) == between]
            for between in (True, False)
        }
        gathered, between = list[fx.Node](), False
        while ready[True] or ready[False]:
            if not ready[between]:
                between = not between
            turn = ready[between]
            ready[between] = []
            while turn:
                node = waiting[heapq.heappop(turn)]
                gathered.append(node)
                for user in users[node]:
                    missing[user] -= 1
                    if not missing[user]:
                        same = self._stands_between(user) == between
                        heapq.heappush(turn if same else ready[not between], places[user])
        return [*gathered, output]

    # ---- what a group takes and gives -------------------------------------------------------------

    def _needs(self, nodes: Iterable[fx.Node]) -> dict[fx.Node, None]:
        """What nodes take from before them: tensors, also those that sizes are read from, and numbers that were
        read."""
        inside, found = {*nodes}, dict[fx.Node, None]()

        def take(node: fx.Node) -> None:
            given = [self._sources[node]] if node in self._sources else node.all_input_nodes
            for each in given:
                if is_size(each) and each not in self._sources:
                    take(each)
                elif each not in inside:
                    found[self._read_as(each)] = None

        for node in inside:
            take(node)
        return found

    def _read_as(self, node: fx.Node) -> fx.Node:
        """The node that reads the same number first."""
        return self._first_read.get(self._sources[node], node) if node in self._sources else node

    def _tensors_for(self, nodes: list[fx.Node]) -> list[fx.Node]:
        return [*self._needs(nodes)]

    def _is_used(self, node: fx.Node, inside: set[fx.Node]) -> bool:
        """Whether something outside of a part takes what a node in it gives, maybe to read a size from it."""
        return any(
            user not in inside
            and (
                self._is_used(user, inside) if is_size(user) and user not in self._sources
                else user not in self._checks or user in self._places
            )
            for user in node.users
        )

    def _module(self, nodes: list[fx.Node]) -> tuple[fx.GraphModule, list[fx.Node], str, list[fx.Node]]:
        inside, needed = {*nodes}, self._needs(nodes)
        takes = [node for node in needed if node not in self._sources]
        numbers = [node for node in needed if node in self._sources]
        gives = [node for node in nodes if self._is_used(node, inside)]
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in takes:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta = dict(node.meta)
        carriers = [graph.placeholder(f"{node.name}_size") for node in numbers]
        for node, carrier in zip(numbers, carriers):
            size = node.meta["val"]
            with self._sources[node].meta["val"].fake_mode:
                carrier.meta["val"] = carrier.meta["example_value"] = torch.empty_strided((size, 0), (1, 1))
            copies[node] = graph.call_method("size", (carrier, 0))
            copies[node].meta["val"] = size
        copies |= {node: copies[first] for node in self._sources if (first := self._read_as(node)) in copies}

        def copy(node: fx.Node) -> None:
            for given in node.all_input_nodes:
                if given not in copies:  # a size
                    copy(given)
            if node.target is torch.ops.aten.sym_size.int:  # as ATen, in a quarter of the time
                copies[node] = graph.call_method("size", fx.node.map_arg(node.args, copies.__getitem__))
                copies[node].meta = dict(node.meta)
            else:
                copies[node] = graph.node_copy(node, copies.__getitem__)

        for node in nodes:
            copy(node)
        graph.output(tuple(copies[node] for node in gives))
        lengths = "".join(f"of_length({self._numbers[node]}), " for node in numbers)
        module = fx.GraphModule(torch.nn.Module(), graph)
        module.meta[_FIRST] = nodes[0]
        return module, takes, lengths, gives

    # ---- what stands between parts ----------------------------------------------------------------

    def _single(self, node: fx.Node) -> str:
        name = self._numbers[node]
        if node in self._sources:
            return f"{name} = read_size({self._numbers[self._sources[node]]})"
        given = [*map(self._text, node.args), *(f"{key}={self._text(value)}" for key, value in node.kwargs.items())]
        if node.op == "call_method":
            return f"{name} = {given[0]}.{node.target}({', '.join(given[1:])})"
        self.namespace[f"step_{name}"] = node.target
        return f"{name} = step_{name}({', '.join(given)})"

    def _text(self, argument: Any) -> str:
        if isinstance(argument, fx.Node) and is_size(argument) and argument not in self._sources:
            return _SIZES[argument.target].format(*map(self._text, argument.args))
        if isinstance(argument, slice):
            return f"slice({', '.join(map(self._text, (argument.start, argument.stop, argument.step)))})"
        if isinstance(argument, list):
            return f"[{', '.join(map(self._text, argument))}]"
        return super()._text(self._read_as(argument) if isinstance(argument, fx.Node) else argument)


def _is_read(node: fx.Node) -> bool:
    """Whether a node reads a size from a tensor without dimensions."""
    return node.op == "call_method" and node.target == "item" and is_size(node)


def _symbols(values: Iterable[Any]) -> Iterator[DataSymbol]:
    """The symbols of data that sizes are written with."""
    for tensor in tensors_in(values):
        if tensor._has_symbolic_sizes_strides:
            for size in tensor.shape:
                expression = expression_of(size)
                if expression is not None:
                    yield from (symbol for symbol in expression.symbols() if isinstance(symbol, DataSymbol))


def _finds_sizes(node: fx.Node) -> bool:
    """Whether data decides a size that a node's result has; how much a slice leaves follows from other sizes."""
    found = {symbol for symbol in _symbols((node.meta.get("val"),)) if not symbol.is_of_slice}
    if not found:
        return False
    known = {*_symbols(given.meta.get("val") for given in node.all_input_nodes)}
    known |= {
        symbol
        for given in node.all_input_nodes
        if is_size(given)
        for symbol in given.meta["val"].node.expression.symbols()
    }
    return not found <= known


def _computes(node: fx.Node) -> bool:
    """Whether a node is an operation that a kernel can do: none that only looks at memory in another way."""
    value = node.meta.get("val")
    if node.meta.get("written"):
        return True
    if not isinstance(value, torch.Tensor):
        return isinstance(value, (tuple, list))
    given = tensors_in(each.meta.get("val") for each in node.all_input_nodes)
    return storage_of(value) not in {storage_of(tensor) for tensor in given}


def _has_a_place(node: fx.Node) -> bool:
    """Whether it matters what a node comes before and behind."""
    if changes_state(node):
        return True
    if node.op not in ("call_function", "call_method"):
        return False
    target: Any = node.target
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda given: given.meta["val"])
    return divides(node) or is_collective(target) or draws_numbers(target, args, kwargs)
