"""The `backward` of a `torch.autograd.Function`, captured along with its `forward` as a graph from what is kept and the
gradients that come in to those that go out.

It runs later than captured code does: it may look at nothing that could be another thing by then, and change nothing.
Where it does, or can't be captured, the frame is captured again, and leaves calls of that class whole.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from framejit import _native as native
from framejit.backends.may_raise import draws_numbers
from framejit.backends.subgraph import subgraph
from framejit.guards.sources import BinarySource, CallSource, PairSource, Source
from framejit.late_dataclass import dataclass
from framejit.signals import FunctionStaysWhole, Raised, Restart, SkipFrame, Unsupported
from framejit.values.base import Value, deep_realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.tuples import TupleValue
from framejit.values.sym_int import SIZE
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.held_numbers import HeldNumber
from framejit.values.tensors.higher_order.nested_graph import operand_node, refuse_data_sizes
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Capture, Frame

STABLE = frozenset((native.C_TYPE, native.C_ID, native.C_LACKS, native.C_NO_ATTR))
"""Checks of functions, modules and classes, which stay what they are between a forward and its backward."""


@dataclass
class Kept:
    """What a forward keeps for its backward."""

    saved: list[Value]
    """By `save_for_backward`: tensors and None."""
    attributes: dict[str, Value]
    tensors: list[TensorValue]
    """The tensors among both, those that are saved first; behind them what the backward takes of numbers that are not
    assumed."""


@dataclass
class CapturedBackward:
    """The graph of a backward."""

    module: fx.GraphModule
    gradients: list[int | None]
    """For each argument of `apply` which result of the graph its gradient is; None for no gradient."""


def kept_of(saved: list[Value], attributes: Mapping[str, Value]) -> Kept | None:
    """What is kept, where all of it is tensors, numbers read from such, constants and tuples of these; else None."""
    found = dict.fromkeys(value for value in saved if isinstance(value, TensorValue))
    n_saved = len(found)
    for value in attributes.values():
        if not _is_plain(value, found):
            return None
    tensors = [*found]
    return Kept([*tensors[:n_saved]], {**attributes, _SAVED: TupleValue(saved)}, tensors)


_SAVED = "saved_tensors"


def _is_plain(value: Value, tensors: dict[TensorValue, None]) -> bool:
    """Whether a value has no state but tensors, which are added to `tensors`."""
    if isinstance(value, (TensorValue, HeldNumber)):
        tensors.setdefault(value.tensor if isinstance(value, HeldNumber) else value)
        return True
    if isinstance(value, TupleValue):
        return value.python_type() in (tuple, torch.Size) and all(_is_plain(item, tensors) for item in value.items)
    return value.is_constant()


def can_be_traced(nodes: Sequence[fx.Node], tensors: Sequence[TensorValue], others: Sequence[Value]) -> bool:
    """Whether a forward is a list of operations that is the same for each call. `nodes`: what it consists of.
    `tensors`, `others`: the arguments of `apply`."""
    if len({tensor.node for tensor in tensors}) < len(tensors):
        return False  # a gradient for each
    # ints that nothing is computed with, such as the number of a step, may be sizes
    sizes = {node for arg in others if isinstance(node := arg.proxy(), fx.Node)}
    if any(sizes.intersection(node.all_input_nodes) for node in nodes):
        return False
    return not any(map(_is_odd, nodes)) and not _writes_outside(nodes)


def _is_odd(node: fx.Node) -> bool:
    """Whether a node reads an object of the graph's, draws random numbers, or has to do with sizes that are left
    open."""
    return (
        node.op not in ("call_function", "call_method")
        or draws_numbers(node.target, node.args, node.kwargs)
        or any(map(_is_size, (node, *node.all_input_nodes)))
    )


def _writes_outside(nodes: Sequence[fx.Node]) -> bool:
    """Whether any of the nodes writes into what is none of theirs."""
    inside = {*nodes}
    taken = {given.meta.get("val") for node in nodes for given in node.all_input_nodes if given not in inside}
    memory = {_memory(fake) for fake in taken if isinstance(fake, torch.Tensor)}
    return any(_memory(fake) in memory for node in nodes for fake in node.meta.get("written", ()))


def _memory(fake: torch.Tensor) -> int:
    return fake.untyped_storage()._cdata


def _is_size(node: fx.Node) -> bool:
    return SIZE in node.meta or isinstance(node.meta.get("val"), torch.SymInt)


def captured_backward(
    frame: Frame, cls: Any, cls_value: Value, ctx: Any, makes_zeros: bool, kept: Kept, results: Sequence[TensorValue],
    constant: Sequence[bool], args: Sequence[Value]
) -> CapturedBackward:
    """Capture a backward. `ctx`: an empty one. `makes_zeros`: whether there are zeros where no gradient comes.
    `constant`: which of the results have no gradient. `args`: those of `apply`. Raises FunctionStaysWhole where that
    can't be done."""
    graph, capture = frame.capture.graph, frame.capture
    before, n_inputs = set(graph.graph.nodes), len(graph.inputs)
    version = capture.effects.version
    kept_operands = [TensorValue(operand_node(graph.graph, t.fake), t.fake, torch.Tensor) for t in kept.tensors]
    gradients = [TensorValue(operand_node(graph.graph, g), g, torch.Tensor) for g in _gradients(frame, results)]
    stands_for: dict[Value, Value] = dict(zip(kept.tensors, kept_operands))
    stands_for |= {number: _as_kept(number) for value in kept.attributes.values() for number in _numbers_in(value)}
    kept_numbers = {number.source for number in stands_for.values() if isinstance(number, SymNumberValue)}
    ctx.attributes = {name: _replaced(value, stands_for) for name, value in kept.attributes.items()}
    ctx.attributes["needs_input_grad"] = TupleValue(
        [ConstantValue(isinstance(arg, TensorValue) and arg.fake.requires_grad) for arg in args]
    )
    given = [NONE if is_constant and not makes_zeros else g for g, is_constant in zip(gradients, constant)]
    try:
        with (
            capture.guards_apart() as guards, torch.no_grad(), torch._C._DisableAutocast(), capture.state_apart(),
            graph.taken_out(),
        ):
            answer = frame.call(_undecorated(frame, cls, cls_value, ctx), [ctx, *given], {})
            answer = deep_realize(frame, [answer])[0]
        found = list(answer.items) if isinstance(answer, TupleValue) else [answer]
        while len(found) > len(args) and is_none(found[-1]):  # of arguments that were left out
            found.pop()
        inputs = {*graph.placeholders}
        made = dict.fromkeys(node for node in graph.graph.nodes if node not in before and node not in inputs)
        kept_inputs = _numbers_taken(capture, kept_numbers, made)
        operands = [value.node for value in (*kept_operands, *kept_inputs, *gradients)]
        inner = [node for node in made if node not in operands]
        refuse_data_sizes(inner, "backward")
    except (Raised, Unsupported, Restart, SkipFrame) as e:
        raise FunctionStaysWhole(cls) from e
    known = {*made, *operands}
    if (
        any(value.node not in known for value in graph.inputs[n_inputs:])
        or capture.effects.version != version
        or not all(
            _holds_until_then(guard.check, place, kept_numbers)
            for guard in guards
            for place in (guard.source, *guard.also)
        )
        or any(_is_odd(node) or not known >= {*node.all_input_nodes} for node in inner)
        or _writes_outside(inner)
        or not all(_fits(arg, gradient, operands, inner) for arg, gradient in zip(args, found))
        or len(found) != len(args)
    ):
        raise FunctionStaysWhole(cls)
    places: dict[fx.Node, int] = {}
    numbers = [
        places.setdefault(gradient.node, len(places)) if isinstance(gradient, TensorValue) else None
        for gradient in found
    ]
    module = subgraph(operands, inner, [*places])
    kept.tensors += kept_inputs
    for node in reversed(made):
        graph.graph.erase_node(node)
    return CapturedBackward(module, numbers)


def _numbers_in(value: Value) -> Iterator[SymNumberValue]:
    """The numbers that are not assumed in what a forward keeps."""
    if isinstance(value, SymNumberValue):
        yield value
    elif isinstance(value, TupleValue):
        for item in value.items:
            yield from _numbers_in(item)


def _as_kept(number: SymNumberValue) -> SymNumberValue:
    """The number that a forward keeps, at a place of its own: what a backward reads at the number's place itself may be
    another one by then."""
    kept = copy(number)
    kept.source = CallSource(number.source, kept_number)
    if number.leaves == (number,):
        kept.leaves = (kept,)
    return kept


def kept_number(number: int | float) -> int | float:
    """A number as a forward keeps it for its backward, read when the forward runs."""
    return number


def _numbers_taken(capture: Capture, kept: Set[Source], nodes: Iterable[fx.Node]) -> list[TensorValue]:
    """The inputs of the graph that nodes of a backward take, and that are made of the numbers that are kept."""
    taken = {given for node in nodes for given in node.all_input_nodes}
    return [
        value for (place, _), value in capture.scalar_inputs.items() if value.node in taken and _is_made_of(place, kept)
    ]


def _is_made_of(place: Source | None, kept: Set[Source]) -> bool:
    """Whether a number is one of those at `kept`, or made of them alone."""
    if place in kept:
        return True
    if isinstance(place, PairSource):
        return _is_made_of(place.left, kept) and _is_made_of(place.right, kept)
    return isinstance(place, (BinarySource, CallSource)) and _is_made_of(place.origin, kept)


def _holds_until_then(check: int, place: Source, kept: Set[Source]) -> bool:
    """Whether what is guarded when the forward runs holds when the backward does."""
    return _is_made_of(place, kept) or check in STABLE and not isinstance(place, BinarySource)


def _undecorated(frame: Frame, cls: Any, cls_value: Value, ctx: Any) -> Value:
    """The program's `backward`. What torch's decorators do around it: gradients of gradients are refused by whoever
    records the backward, and autocast is what it was in `forward`, which is off in a backward that is traced."""
    function, value = cls.backward, cls_value.getattr(frame, "backward")
    while (decorator := _DECORATORS.get(getattr(function, "__code__", None))) is not None:
        used_autocast = ctx.attributes.get("_fwd_used_autocast", ConstantValue(False))
        if decorator is torch.amp.custom_bwd and used_autocast.constant():
            raise FunctionStaysWhole(cls)
        function, value = function.__wrapped__, value.getattr(frame, "__wrapped__")
    return value


def is_decorated(function: Any) -> bool:
    """Whether a `backward` is in a decorator of torch's that does more than its graph says."""
    return getattr(function, "__code__", None) in _DECORATORS


_DECORATORS: dict[Any, Any] = {
    torch.autograd.function.once_differentiable(len).__code__: torch.autograd.function.once_differentiable,
    torch.amp.custom_bwd(len, device_type="cpu").__code__: torch.amp.custom_bwd,
}


def _fits(arg: Value, gradient: Value, operands: Sequence[fx.Node], inner: Sequence[fx.Node]) -> bool:
    """Whether a gradient is one that an argument can have, made of nothing but what `backward` is given."""
    if gradient is NONE or gradient.is_constant():
        return gradient.is_constant() and gradient.constant() is None
    return isinstance(arg, TensorValue) and isinstance(gradient, TensorValue) and (
        gradient.node in operands or gradient.node in inner
    )


def _gradients(frame: Frame, results: Sequence[TensorValue]) -> list[torch.Tensor]:
    """Fakes of gradients, which lie as results do."""
    with frame.capture.graph.metadata.faking(), torch.no_grad():
        fakes = [result.fake for result in results]
        return [torch.empty_strided(f.shape, f.stride(), dtype=f.dtype, device=f.device) for f in fakes]


def _replaced(value: Value, stands_for: Mapping[Value, Value]) -> Value:
    if isinstance(value, (TensorValue, SymNumberValue)):
        return stands_for[value]
    if isinstance(value, HeldNumber):
        kept = stands_for[value.tensor]
        assert isinstance(kept, TensorValue)
        return value.held_by(kept)
    if isinstance(value, TupleValue):
        return TupleValue([_replaced(item, stands_for) for item in value.items]) if value.cls is tuple else value
    return value
