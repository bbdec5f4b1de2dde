"""Functions that torch calls more than once, as nodes of the graph: `torch.utils.checkpoint` (again in the backward
pass) and `while_loop`."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import _DEFAULT_DETERMINISM_MODE, checkpoint, noop_context_fn

from framejit.backends.opaque_call import CheckpointCall, OpaqueCall
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.handlers import HANDLERS
from framejit.values.objects.functions.function_values import CallableValue
from framejit.values.tensors.higher_order.nested_graph import CODE, EMPTY, Leaf, NestedGraph, structure, valued_form
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


_OPTIONS = ("use_reentrant", "preserve_rng_state", "early_stop", "determinism_check", "debug", "context_fn")
"""What is said to `checkpoint` itself; other arguments by name are the function's."""


def pure(
    frame: Frame, function: Value, form: tuple[Any, ...], fakes: list[torch.Tensor], what: str, fresh: bool = True,
    named: Mapping[str, Any] = EMPTY,
) -> NestedGraph:
    """The function as a graph, if calling it again does nothing but compute again; with `fresh`, if it gives new
    tensors."""
    effects, existing = frame.capture.effects, existing_values(frame, [function])
    outside = effects.outside
    with effects.changed_inside() as changed:
        nested = NestedGraph(frame, function, form, fakes, what, named)
    if effects.outside != outside or any(id(value) in existing for value in changed) or fresh > nested.fresh:
        raise Unsupported(f"a function given to {what} that changes something, or gives back what it was given", CODE)
    return nested


def existing_values(frame: Frame, others: list[Value]) -> set[int]:
    """The values that captured code holds now, and others, by their ids: what is made later is not among them."""
    found: set[int] = set()
    todo = [*others]
    for each in frame.chain():
        todo += each.held()
    while todo:
        value = todo.pop()
        if id(value) not in found:
            found.add(id(value))
            todo += value.children()
            if isinstance(value, CallableValue):
                todo += value.closure(frame)
    return found


def _checkpoint(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    options = {name: realize(frame, kwargs[name]) for name in _OPTIONS if name in kwargs}
    rest = {name: value for name, value in kwargs.items() if name not in options}
    contexts = options.pop("context_fn", None)
    known = dict(zip(options, frame.constants(list(options.values()))))
    reentrant = known.pop("use_reentrant", None)
    has_contexts = contexts is not None and getattr(contexts, "fn", None) is not noop_context_fn
    if not args or type(reentrant) is not bool or has_contexts or known.pop("debug", False) is not False:
        raise Unsupported("torch.utils.checkpoint with options of its own", CODE, "pass use_reentrant=False")
    if known.get("determinism_check", "none") not in ("none", _DEFAULT_DETERMINISM_MODE):
        raise Unsupported("torch.utils.checkpoint with a determinism_check that it does not have", CODE)
    function, given = args[0], args[1:]
    if reentrant and not torch.is_grad_enabled():
        raise _unlike("without gradients")
    if not torch.is_grad_enabled():  # nothing is kept, and nothing computed again
        return frame.call(function, given, rest)
    if reentrant and rest:
        raise _unlike("given arguments by name, which it refuses")
    tensors: list[TensorValue] = []
    form = tuple(structure(frame, value, tensors) for value in given)
    named = {name: structure(frame, value, tensors) for name, value in rest.items()}
    made_at = frame.capture.seq
    fakes = [tensor.fake for tensor in tensors]
    nested = pure(frame, function, form, fakes, "torch.utils.checkpoint", named=named)
    if reentrant:
        _check_reentrant(frame, function, form, tensors, nested)
        frame.capture.graph.reentrant.append((made_at, [result.fake for result in nested.results]))

    def run(*flat: torch.Tensor) -> Any:
        return checkpoint(nested.module.forward, *flat, use_reentrant=False, **known)

    nodes = (*(tensor.node for tensor in tensors), *nested.outside)
    made = frame.capture.graph.add(
        CheckpointCall(run, nested.module, known.get("preserve_rng_state") is not False),
        nodes,
        tuple(r.fake for r in nested.results),
    )
    return valued_form(nested.result_form, list(made.iterate(frame)))  # type: ignore[arg-type]


def _check_reentrant(
    frame: Frame, function: Value, form: tuple[Any, ...], tensors: list[TensorValue], nested: NestedGraph
) -> None:
    """Raises Unsupported unless a checkpoint with `use_reentrant=True`, which is an `autograd.Function` with a backward
    of its own inside of the backward, gives what one without does."""
    graph = frame.capture.graph
    if not any(tensor.fake.requires_grad for tensor in tensors):
        raise _unlike("of nothing that requires gradients, of which torch warns")
    if any(isinstance(part, (tuple, list, dict)) for part in form):
        raise _unlike("given a list, tuple or dict, in which it finds no tensors")
    parts = nested.result_form if isinstance(nested.result_form, tuple) else (nested.result_form,)
    if not all(isinstance(part, Leaf) for part in parts) or not all(r.fake.requires_grad for r in nested.results):
        raise _unlike("with results that have no gradients")
    fakes = [node.meta["val"] for node in nested.outside]
    if any(fake.requires_grad and not fake.is_leaf for fake in fakes) or any(
        fake is leaf.fake for fake in fakes for cut in graph.cuts for leaf in cut.leaves
    ):
        raise _unlike("whose function takes what was computed from elsewhere")
    with torch.no_grad():  # as the forward is done
        forward = pure(frame, function, form, [tensor.fake for tensor in tensors], "torch.utils.checkpoint")
    if _operations(forward.module.graph) != _operations(nested.module.graph) or forward.outside != nested.outside:
        raise _unlike("of a function that does something else without gradients")


def _operations(graph: fx.Graph) -> list[Any]:
    """The operations of a graph, without the names of their results."""
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    return [
        (
            node.op, None if node.op == "placeholder" else node.target,
            fx.node.map_arg((node.args, node.kwargs), lambda used: numbers[used]),
        )
        for node in graph.nodes
    ]


def _unlike(what: str) -> Unsupported:
    return Unsupported(f"torch.utils.checkpoint with use_reentrant=True, {what}", CODE, "pass use_reentrant=False")


def _while_loop(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(("cond_fn", "body_fn", "carried_inputs"), args)) | kwargs
    if set(given) != {"cond_fn", "body_fn", "carried_inputs"} or len(args) + len(kwargs) != 3:
        raise Unsupported("while_loop with other arguments than it has", CODE)
    tensors: list[TensorValue] = []
    form = structure(frame, given["carried_inputs"], tensors)
    if (
        not isinstance(form, tuple)
        or not all(isinstance(part, Leaf) for part in form)
        or any(tensor.fake.requires_grad for tensor in tensors)
    ):
        raise Unsupported("while_loop that carries something else than tensors without gradients", CODE)
    fakes = [tensor.fake for tensor in tensors]
    condition, body = (pure(frame, given[name], form, fakes, "while_loop") for name in ("cond_fn", "body_fn"))
    [decided] = condition.results if len(condition.results) == 1 and isinstance(condition.result_form, Leaf) else [None]
    if decided is None or decided.fake.numel() != 1 or decided.fake.dtype is not torch.bool:
        raise Unsupported("while_loop whose condition is not one bool", CODE)
    if not isinstance(body.result_form, tuple) or list(map(_kind, body.results)) != list(map(_kind, tensors)):
        raise Unsupported(
            "while_loop whose body gives tensors of other shapes, strides, dtypes or devices than it takes", CODE
        )
    n, split = len(tensors), len(tensors) + len(condition.outside)

    def run(*flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        carried, for_condition, for_body = flat[:n], flat[n:split], flat[split:]
        if not condition.module.forward(*carried, *for_condition)[0]:
            return tuple(tensor.clone() for tensor in carried)
        while True:
            carried = body.module.forward(*carried, *for_body)
            if not condition.module.forward(*carried, *for_condition)[0]:
                return carried

    nodes = (*(tensor.node for tensor in tensors), *condition.outside, *body.outside)
    return frame.capture.graph.add(
        OpaqueCall(run, "while_loop", "data decides how often a part of it runs"),
        nodes,
        tuple(r.fake for r in body.results),
    )


def _kind(tensor: TensorValue) -> tuple[Any, ...]:
    return tensor.fake.shape, tensor.fake.stride(), tensor.fake.dtype, tensor.fake.device


HANDLERS[checkpoint] = _checkpoint
HANDLERS[while_loop] = _while_loop
