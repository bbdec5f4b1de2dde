"""Graphs whose sizes are symbolic in the form that torch.compile gives to its backends: with torch's own symbolic
integers.

A backend of torch.compile's contract gets a graph whose first placeholders are the symbolic sizes (`torch.SymInt`s of a
`ShapeEnv`), and finds the fakes of the inputs in the `TracingContext`. What it asks the `ShapeEnv` while it compiles
must hold at each call of what it made: it is asked of our own symbols, too, which makes guards of the answers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.backends.shared_memory import writes_into_inputs
from framejit.backends.symbolic_sizes import NeedsKnownSizes, Place, has_symbols
from framejit.environment.imports_under_way import met_half_a_module
from framejit.fakes.light_torch import DYNAMO, SOURCES, SYMBOLS, real
from framejit.symbols.expression import Compound, DataSymbol, Expression, Symbol
from framejit.symbols.sym_node import expression_of, symbolic

if TYPE_CHECKING:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from framejit.backends.registry import Backend
    from framejit.symbols.conditions import Conditions

_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "//": operator.floordiv, "%": operator.mod, "min": torch.sym_min, "max": torch.sym_max,
}

_READING: Final = (torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int)
"""The operations that read sizes and strides."""
_DYNAMO_NOTE: Final = "_dynamo_propagated_dynamic_indices"
"""The attribute of results in which AOTAutograd leaves word to Dynamo. Plain Python has none such."""


def compile_symbolic(backend: Backend, gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Compile a graph with symbolic sizes by a backend of torch's; what is returned takes the inputs of `gm`. Raises
    NeedsKnownSizes where torch's symbols can't stand for the sizes."""
    try:
        graph = _TorchGraph(gm, example_inputs)
    except NeedsKnownSizes:
        raise
    except Exception as e:
        if met_half_a_module(e):
            raise
        raise NeedsKnownSizes(f"torch's symbols can't stand for them ({type(e).__name__}: {e})") from e
    try:
        compiled = graph.compile(backend)
    except Exception as e:
        if met_half_a_module(e):
            raise
        raise NeedsKnownSizes(f"it raised {type(e).__name__}: {e}") from e
    if not callable(compiled):
        return compiled  # for the caller to complain about
    graph.assume_what_was_asked()
    return _called_with_inputs(compiled, tuple(graph.places), tuple(graph.kept))


def _called_with_inputs(
    compiled: Callable[..., Any], places: tuple[Place, ...], kept: tuple[int, ...]
) -> Callable[..., Any]:
    def call(*inputs: torch.Tensor) -> Any:
        outputs = compiled(*[place.read(inputs) for place in places], *[inputs[i] for i in kept])
        for output in outputs:
            if isinstance(output, torch.Tensor):
                output.__dict__.pop(_DYNAMO_NOTE, None)
        return outputs

    return call


class _TorchGraph:
    """A graph rewritten for torch's symbols.

    `places` says for each placeholder of a number where it is read; `kept` has the inputs that stay
    inputs, which those that carry an int do not.
    """

    def __init__(self, gm: fx.GraphModule, examples: list[torch.Tensor]) -> None:
        if next(iter(gm.graph.find_nodes(op="get_attr")), None) is not None:
            raise NeedsKnownSizes("functions that are arguments of operations are captured for known sizes")
        self.placeholders = gm.graph.find_nodes(op="placeholder")
        real(DYNAMO)  # a ShapeEnv imports a part of it
        self.shape_env: ShapeEnv = real(SYMBOLS).ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.shape_env)
        self.ours: dict[Any, Any] = {}  # by symbol of torch: the same integer as ours
        self.theirs: dict[Symbol, Any] = {}  # by symbol of ours: torch's SymInt
        self.conditions: Conditions | None = None
        self.places: list[Place] = []
        self.kept: list[int] = []
        self.examples: list[Any] = []
        self.numbers: list[Any] = []
        shared = _shared_storages(examples) if writes_into_inputs(gm) else set()
        for i, (node, example) in enumerate(zip(self.placeholders, examples)):
            fake = node.meta["val"]
            if not has_symbols(fake):
                self.kept.append(i)
                self.examples.append(example)
                continue
            if example.untyped_storage()._cdata in shared and example.untyped_storage().nbytes():
                raise NeedsKnownSizes("inputs share memory")
            self._open(i, fake, example, carries_int=_carries_int(node))
        self._tell_what_is_known()
        self.module = self._rewritten(gm)

    def _open(self, i: int, fake: torch.Tensor, example: torch.Tensor, carries_int: bool) -> None:
        """Make torch's symbols for an input with symbolic sizes."""
        for at, size in enumerate((*fake.shape, *fake.stride())):
            is_stride, dim = divmod(at, fake.dim())
            expression = expression_of(size)
            symbol = expression.lone_symbol if expression is not None else None
            if symbol is None or is_stride and symbol in self.theirs:
                continue
            self.conditions = size.node.conditions
            number = self._number(f"{'t' if is_stride else 's'}{i}_{dim}", symbol, carries_int)
            self.theirs[symbol] = number
            self.ours[number.node._expr] = symbolic(Expression.of(symbol), self.conditions)
            self.places.append(Place(i, dim, bool(is_stride)))
            self.numbers.append(number)
        if not carries_int:
            self.kept.append(i)
            self.examples.append(_without_history(example))

    def _number(self, name: str, symbol: Symbol, is_plain_int: bool) -> Any:
        source = real(SOURCES).ConstantSource(name)
        made = self.shape_env.create_symbol(
            symbol.hint, source, dynamic_dim=real(SYMBOLS).DimDynamic.DYNAMIC, positive=None if is_plain_int else True,
            do_not_specialize_zero_one=is_plain_int
        )
        if is_plain_int:
            self.shape_env.constrain_symbol_range(made, 0, int(symbol.bounds[1]))
        return self.shape_env.create_symintnode(made, hint=symbol.hint, source=source)

    def _tell_what_is_known(self) -> None:
        """Ask torch's symbols what ours were asked while the graph was captured."""
        for condition in self.conditions or ():
            if all(symbol in self.theirs for symbol in condition.expression.symbols()):
                left, right = map(self._theirs, condition.sides())
                bool(left == right if condition.relation == "==" else left < right)

    # ---- the graph --------------------------------------------------------------------------------

    def _rewritten(self, gm: fx.GraphModule) -> fx.GraphModule:
        graph = fx.Graph()
        copies: dict[fx.Node, Any] = {}
        read: dict[tuple[Any, ...], fx.Node] = {}
        for (i, dim, is_stride), number in zip(self.places, self.numbers):
            target = _READING[is_stride]
            name = f"{self.placeholders[i].name}_{'stride' if is_stride else 'size'}_{dim}"
            node = read[target, self.placeholders[i], dim] = graph.placeholder(name)
            node.meta["val"] = node.meta["example_value"] = number
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                if _carries_int(node):
                    continue
            elif node.target in _READING and (node.target, *node.args) in read:
                copies[node] = read[node.target, *node.args]
                continue
            copies[node] = graph.node_copy(node, lambda n: copies[n])
            for key in ("val", "example_value"):
                if key in node.meta:
                    copies[node].meta[key] = self._in_their_symbols(node.meta[key])
        return fx.GraphModule(gm, graph)

    def _in_their_symbols(self, value: Any) -> Any:
        """Metadata with torch's symbols in place of ours."""
        if isinstance(value, torch.SymInt):
            expression = expression_of(value)
            if expression is None:
                raise NeedsKnownSizes("a size is not an expression")
            self.conditions = value.node.conditions
            return self._theirs(self.conditions.simplified(expression))
        if isinstance(value, torch.Tensor):
            sizes, strides = (tuple(map(self._in_their_symbols, numbers)) for numbers in (value.shape, value.stride()))
            with self.mode, torch.no_grad():
                fake = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
            return fake.requires_grad_(value.requires_grad)
        if isinstance(value, (tuple, list)):
            return (
                type(value)(map(self._in_their_symbols, value))
                if type(value) in (tuple, list)
                else type(value)(*map(self._in_their_symbols, value))
            )
        return value

    def _theirs(self, expression: Expression) -> Any:
        total: Any = 0
        for product, coefficient in expression.terms.items():
            term: Any = coefficient
            for atom in product:
                term = term * (
                    _OPERATIONS[atom.op](self._theirs(atom.left), self._theirs(atom.right))
                    if isinstance(atom, Compound)
                    else self._symbol(atom)
                )
            total = total + term
        return total

    def _symbol(self, symbol: Symbol) -> Any:
        """Torch's integer for one of our symbols; others follow from those that are read."""
        if symbol not in self.theirs:
            if self.conditions is None:
                raise NeedsKnownSizes("a size is none of an input")
            known = self.conditions.simplified(Expression.of(symbol))
            if known == Expression.of(symbol):
                raise NeedsKnownSizes(
                    "data decides a size" if isinstance(symbol, DataSymbol) else f"{symbol} is no size of an input"
                )
            self.theirs[symbol] = self._theirs(known)
        return self.theirs[symbol]

    # ---- compiling --------------------------------------------------------------------------------

    def compile(self, backend: Backend) -> Callable[..., Any]:
        """Call the backend as torch.compile does: with real tensors, whose fakes it finds in the context."""
        mode = FakeTensorMode(shape_env=self.shape_env)  # a fresh one: backends write into the fakes
        context = TracingContext(mode)
        fakes: list[Any] = []  # the mode knows them only for as long as somebody has them
        for i, example in zip(self.kept, self.examples):
            fake = self.placeholders[i].meta["val"]
            if not has_symbols(fake):
                fakes.append(mode.from_tensor(example, static_shapes=True))
                continue
            sizes, strides = (tuple(map(self._in_their_symbols, numbers)) for numbers in (fake.shape, fake.stride()))
            with mode, torch.no_grad():
                made: Any = torch.empty_strided(sizes, strides, dtype=example.dtype, device=example.device)
            mode.fake_tensor_converter.set_tensor_memo(example, made.requires_grad_(example.requires_grad))
            fakes.append(made)
        with tracing(context):
            return backend(self.module, [*self.numbers, *self.examples])

    def assume_what_was_asked(self) -> None:
        """Ask our own symbols whatever torch's were asked, which makes guards of it; a question that we can't put
        assumes the sizes it is about."""
        env = self.shape_env
        if env.deferred_runtime_asserts or any(symbol not in self.ours for symbol in env.var_to_range):
            raise NeedsKnownSizes("it made further symbols")
        for symbol, number in self.ours.items():
            replaced = env.replace(symbol)
            if replaced != symbol:
                self._assume(replaced, lambda value, number=number: number == value)  # type: ignore[misc]
            bounds = env.var_to_range[symbol]
            for limit, holds in ((bounds.lower, operator.ge), (bounds.upper, operator.le)):
                if limit.is_Integer and abs(int(limit)) < 1 << 62:
                    self._assume(limit, lambda value, number=number, holds=holds: holds(number, value))  # type: ignore[misc]
        for guard in env.guards:
            self._assume(guard.expr, lambda value: value)
        env.freeze()

    def _assume(self, expression: Any, question: Callable[[Any], Any]) -> None:
        from torch.utils._sympy.interp import sympy_interp  # imports sympy, for a second
        from torch.utils._sympy.reference import PythonReferenceAnalysis

        try:
            if bool(question(sympy_interp(PythonReferenceAnalysis, self.ours, expression))):
                return
        except Exception:  # our sizes don't answer all that sympy asks: the graph is for the very numbers then
            for symbol in expression.free_symbols:
                int(self.ours[symbol])
            return
        raise NeedsKnownSizes(f"what it assumes does not hold: {expression}")


def _carries_int(node: fx.Node) -> bool:
    """Whether an input has no memory and is there for a symbolic int only, its first size."""
    fake = node.meta["val"]
    if (
        fake.dim() != 2
        or type(fake.shape[1]) is not int
        or fake.shape[1] != 0
        or (size := expression_of(fake.shape[0])) is None
        or size.lone_symbol is None
    ):
        return False
    return all(user.target is torch.ops.aten.sym_size.int for user in node.users)


def _shared_storages(tensors: list[torch.Tensor]) -> set[int]:
    """The memory that more than one of the tensors has."""
    seen: set[int] = set()
    return {key for key in (tensor.untyped_storage()._cdata for tensor in tensors) if key in seen or seen.add(key)}


def _without_history(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or one with its data that is no view to autograd."""
    if not tensor._is_view():
        return tensor
    with torch.inference_mode(tensor.is_inference()):
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        )
