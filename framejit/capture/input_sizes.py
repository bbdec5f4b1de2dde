"""The sizes of inputs that a capture leaves open: a symbol for each, guards for what was asked about them, and the
nodes that read them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx

from framejit import _native as native
from framejit.capture.dynamic_dims import ANY_INDEX, among_alike
from framejit.fakes.metadata import SymbolicLayout
from framejit.guards.size_program import NUMBER
from framejit.guards.sources import CallSource
from framejit.late_dataclass import dataclass
from framejit.signals import Unsupported
from framejit.symbols.conditions import LEAST, Condition, Conditions
from framejit.symbols.expression import INFINITE, Atom, Bounds, DataSymbol, Expression, Symbol
from framejit.symbols.open_dim import OpenDim
from framejit.symbols.sym_node import symbolic
from framejit.values.sym_int import LARGEST, SIZE

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture


def of_length(number: int) -> torch.Tensor:
    """A tensor without memory that carries an int into a graph, whose inputs are tensors, as its first size."""
    return torch.empty((number, 0))


@dataclass(frozen=True)
class Leaf:
    """Where a symbol is read: a size (or stride) of the tensor at a source, or, with NUMBER for a dimension, the int
    there."""

    source: Source
    dim: int
    is_stride: bool = False


class InputSizes(Conditions):
    """The conditions of one capture. Each that is new becomes a guard at once, so that it carries the user's line."""

    def __init__(self, capture: Capture) -> None:
        super().__init__(self._guard)
        self.capture = capture
        self.leaves: dict[Symbol, Leaf] = {}
        self._nodes: dict[Any, fx.Node] = {}
        self._numbers: dict[Source, Expression] = {}
        self._of_list: dict[tuple[str, int, int, Bounds], Symbol] = {}

    def pin(self, expression: Expression) -> int:
        self.capture.assumed_again += expression.value is None
        return super().pin(expression)

    def open(
        self, tensor: torch.Tensor, source: Source, dims: Mapping[int, OpenDim], changed: Mapping[int, bool]
    ) -> SymbolicLayout:
        """The layout of an input some of whose dimensions are symbols. Strides that follow from the sizes now are taken
        to follow always. Those of `changed`, that have been others, are taken to be as much apart from what follows as
        now: each row of `tokens[:, :-1]` begins one behind the end of that before it. Where what follows is a known
        number, or an entry that assumed this did not fit, they are symbols. Sizes that are equal in parts of a list, as
        in the layers of a cache, are taken to stay so: one symbol stands for them, and layers ask the same questions.
        Those that an entry leaves open already are not, for they may have come apart."""
        sizes = [Expression.constant(size) for size in tensor.shape]
        for dim, known in dims.items():
            symbol = Symbol(f"{source.name()}.size({dim})", tensor.shape[dim], known.bounds, known.grows)
            self.leaves[symbol] = Leaf(source, dim)
            alike = None if known.again else self._alike(symbol, source, dim)
            sizes[dim] = Expression.of(alike or symbol)
            if alike is None:
                self._guard_bounds(symbol, symbol.bounds)
            else:
                self.equate(symbol, alike)
        strides = [Expression.constant(stride) for stride in tensor.stride()]
        free_strides = 0
        dense = Expression.constant(1)
        for dim in sorted(range(tensor.dim()), key=lambda d: (tensor.stride(d), tensor.shape[d])):
            apart = tensor.stride(dim) - dense.hint
            if tensor.stride(dim) >= LEAST and (dim in changed if apart else dense.value is None):
                symbol = Symbol(f"{source.name()}.stride({dim})", tensor.stride(dim), (LEAST, INFINITE))
                self.leaves[symbol] = Leaf(source, dim, True)
                if dense.value is None and not changed.get(dim):
                    strides[dim] = dense + Expression.constant(apart)
                    self._guard(Condition(Expression.of(symbol) - strides[dim], "==", True))
                else:
                    strides[dim] = Expression.of(symbol)
                    self._guard_bounds(symbol, symbol.bounds)
                free_strides |= 1 << dim
            dense = strides[dim] * sizes[dim]
        return SymbolicLayout(
            tuple(symbolic(size, self) for size in sizes), tuple(symbolic(stride, self) for stride in strides),
            sum(1 << dim for dim in dims), free_strides
        )

    def _alike(self, symbol: Symbol, source: Source, dim: int) -> Symbol | None:
        """The symbol of an equal size in another part of the list that the source leads through, if it leads through
        one."""
        in_list, index, _ = among_alike(source.name()).rpartition(ANY_INDEX)
        known = self._of_list.setdefault((in_list, dim, symbol.hint, symbol.bounds), symbol) if index else symbol
        return None if known is symbol else known

    def number(self, value: int, source: Source) -> Any:
        """An int from 0 to LARGEST that is an argument, as a SymInt."""
        known = self._numbers.get(source)
        if known is None:
            symbol = Symbol(source.name(), value, (0, LARGEST))
            self.leaves[symbol] = Leaf(source, NUMBER)
            known = self._numbers[source] = Expression.of(symbol)
            self._guard_bounds(symbol, symbol.bounds)
        return symbolic(known, self)

    def place(self, symbol: DataSymbol) -> tuple[Any, int]:
        """The value that has a size that data decides, and which dimension that is."""
        sizes = self.capture.graph.metadata.data_sizes
        assert sizes is not None
        return sizes.place(symbol)

    def check_assumed(self, expression: Expression) -> None:
        """Break the graph where an int is to be known that is made of one which is another in each call, as the length
        of a list is that grows."""
        for symbol in expression.symbols():
            leaf = self.leaves.get(symbol)
            if leaf is not None and leaf.dim == NUMBER and self.capture.is_ever_new(leaf.source.name()):
                raise Unsupported(
                    f"int {str(expression)!r}, which is another number in each call, has to be known", "FJ121",
                    "keep it in a tensor, or use it outside the compiled function",
                )

    # ---- guards -----------------------------------------------------------------------------------

    def _guard_bounds(self, symbol: Symbol, bounds: Bounds) -> None:
        low, high = bounds
        size = Expression.of(symbol)
        self._guard(Condition(size - Expression.constant(int(low)), "<", False))
        if high != INFINITE:
            self._guard(Condition(Expression.constant(int(high)) - size, "<", False))

    def _guard(self, condition: Condition) -> None:
        sources: list[Source] = []
        program = _program(condition, self.leaves, sources)
        self.capture.add_guard(sources[0], native.C_SIZES, program, tuple(sources[1:]))

    # ---- in the graph and behind it ---------------------------------------------------------------

    def node(self, expression: Expression) -> Any:
        """The expression as an argument of graph nodes: an int, or a node that computes it from the sizes of inputs."""
        expression = self.simplified(expression)
        value = expression.value
        return value if value is not None else self._node_of(expression, lambda: self._sum_node(expression))

    def _node_of(self, key: Any, make: Callable[[], fx.Node]) -> fx.Node:
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = make()
        return node

    def _sum_node(self, expression: Expression) -> fx.Node:
        total: Any = None
        so_far = Expression({})
        for product, coefficient in expression.terms.items():
            term: Any = coefficient
            partial = Expression.constant(coefficient)
            for atom in product:
                partial = partial * Expression.of(atom)
                factor = self._node_of(atom, lambda atom=atom: self._atom_node(atom))  # type: ignore[misc]
                term = factor if term == 1 and type(term) is int else self._call(operator.mul, (term, factor), partial)
            so_far = so_far + partial
            total = term if total is None else self._call(operator.add, (total, term), so_far)
        return cast(fx.Node, total)

    def _atom_node(self, atom: Atom) -> fx.Node:
        if isinstance(atom, DataSymbol):
            value, dim = self.place(atom)
            if dim == NUMBER:
                return self.capture.graph.size_in(value, symbolic(Expression.of(atom), self))
            return self._call(torch.ops.aten.sym_size.int, (value.node, dim), Expression.of(atom))
        if isinstance(atom, Symbol):
            leaf = self.leaves[atom]
            if leaf.dim == NUMBER:
                layout = SymbolicLayout((symbolic(Expression.of(atom), self), 0), (1, 1), 1, 0)
                carrier = self.capture.graph.add_input(of_length(atom.hint), CallSource(leaf.source, of_length), layout)
                return self._call(torch.ops.aten.sym_size.int, (carrier.node, 0), Expression.of(atom))
            target = torch.ops.aten.sym_stride.int if leaf.is_stride else torch.ops.aten.sym_size.int
            return self._call(target, (self.capture.graph.input_at(leaf.source).node, leaf.dim), Expression.of(atom))
        function: Any = {"//": operator.floordiv, "%": operator.mod, "min": torch.sym_min, "max": torch.sym_max}[
            atom.op
        ]
        return self._call(function, (self.node(atom.left), self.node(atom.right)), Expression.of(atom))

    def _call(self, target: Any, args: tuple[Any, ...], expression: Expression) -> fx.Node:
        node = self.capture.graph.graph.call_function(target, args)
        node.meta["val"] = node.meta["example_value"] = symbolic(expression, self)
        node.meta[SIZE] = True
        return node

    def close(self) -> None:
        """Let go of the capture. Fakes that outlive it refer to this object through torch's C++, where the garbage
        collector finds no cycles."""
        self._nodes.clear()
        self._numbers.clear()
        self._of_list.clear()
        self.leaves.clear()
        if self.capture.graph.metadata.data_sizes is not None:
            self.capture.graph.metadata.data_sizes.forget()
        del self.capture
        self.forget_listener()

    def drop_unused_nodes(self) -> None:
        """Take sizes that nothing came to need out of the graph."""
        if self._nodes:
            graph = self.capture.graph.graph
            for node in reversed(graph.nodes):
                if SIZE in node.meta and not node.users:
                    graph.erase_node(node)


def _program(condition: Condition, leaves: dict[Symbol, Leaf], sources: list[Source]) -> tuple[int, ...]:
    """Postfix code for native.C_SIZES that leaves 1 where the condition holds; the sources it reads are added to
    `sources`."""
    left, right = condition.sides()
    code = [*_expression_code(left, leaves, sources), *_expression_code(right, leaves, sources)]
    code.append(native.S_EQ if condition.relation == "==" else native.S_LT)
    return tuple(code if condition.outcome else [*code, native.S_NOT])


_BINARY = {"//": native.S_FLOORDIV, "%": native.S_MOD, "min": native.S_MIN, "max": native.S_MAX}


def _expression_code(expression: Expression, leaves: dict[Symbol, Leaf], sources: list[Source]) -> list[int]:
    code: list[int] = []
    for n, (product, coefficient) in enumerate(expression.terms.items()):
        if coefficient != 1 or not product:
            code += [native.S_CONST, coefficient]
        for i, atom in enumerate(product):
            code += _atom_code(atom, leaves, sources)
            if i or coefficient != 1:
                code.append(native.S_MUL)
        if n:
            code.append(native.S_ADD)
    return code or [native.S_CONST, 0]


def _atom_code(atom: Atom, leaves: dict[Symbol, Leaf], sources: list[Source]) -> list[int]:
    if isinstance(atom, Symbol):
        leaf = leaves[atom]
        if leaf.source not in sources:
            sources.append(leaf.source)
        return [native.S_STRIDE if leaf.is_stride else native.S_SIZE, sources.index(leaf.source), leaf.dim]
    left, right = (_expression_code(part, leaves, sources) for part in (atom.left, atom.right))
    return [*left, *right, _BINARY[atom.op]]
