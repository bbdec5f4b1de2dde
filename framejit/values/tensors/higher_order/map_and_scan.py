"""torch's `map` and `scan`: nodes that call a function, captured as a graph of its own, with one slice of their tensors
after the other."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.utils import _maybe_compile_and_run_fn
from torch._higher_order_ops.wrap import Wrap

from framejit.backends.opaque_call import OpaqueCall
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.handlers import HANDLERS, handles
from framejit.values.tensors.higher_order.nested_graph import CODE, Leaf, NestedGraph, structure, valued_form
from framejit.values.tensors.higher_order.repeated_functions import pure
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


@handles(_maybe_compile_and_run_fn)
def _run(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """In plain Python torch has Dynamo compile the function. Captured code is compiled already."""
    return frame.call(args[0], args[1:], kwargs)


@handles(Wrap.__call__)
def _wrap(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """In plain Python it keeps Dynamo out of the function, and calls it."""
    return frame.call(args[1], args[2:], kwargs)


def _map(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`map_impl(f, xs, pos_args)`."""
    function, xs, others = _given(("f", "xs", "pos_args"), args[1:], kwargs)
    slices, rest = _tensors(frame, xs, "map"), _tensors(frame, others, "map")
    call = _SliceCalls(frame, "map", function, [], slices, rest)

    def run(*flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, more = zip(*(tensor.unbind() for tensor in flat[: len(slices)])), flat[len(slices) :]
        return _stacked([call.nested.module.forward(*row, *more) for row in rows])

    return call.node(frame, run, call.stacked(call.nested.results))


def _scan(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`scan_op(combine_fn, init, xs, additional_inputs)`."""
    function, init, xs, others = _given(("combine_fn", "init", "xs", "additional_inputs"), args[1:], kwargs)
    carry, slices, rest = _tensors(frame, init, "scan"), _tensors(frame, xs, "scan"), _tensors(frame, others, "scan")
    call = _SliceCalls(frame, "scan", function, carry, slices, rest)
    n, results = len(carry), call.nested.results
    form = call.nested.result_form
    if not isinstance(form, tuple) or len(form) != 2 or _leaves(form[0]) != n or _leaves(form[1]) is None:
        raise Unsupported(
            "scan of a function that gives something else than what it carries and a result, both of tensors", CODE
        )
    if list(map(_kind, results[:n])) != list(map(_kind, carry)):
        raise Unsupported(
            "scan of a function that gives tensors of other shapes, strides, dtypes or devices than it carries", CODE
        )

    def run(*flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        carried, more = flat[:n], flat[n + len(slices) :]
        outs = []
        for row in zip(*(tensor.unbind() for tensor in flat[n : n + len(slices)])):
            made = call.nested.module.forward(*carried, *row, *more)
            carried = made[:n]
            outs.append(made[n:])
        return (*carried, *_stacked(outs))

    return call.node(frame, run, [*(result.fake for result in results[:n]), *call.stacked(results[n:])])


class _SliceCalls:
    """Calls of `function` with what is carried, with slices of tensors, and with what is the same each time."""

    nested: NestedGraph

    def __init__(
        self, frame: Frame, what: str, function: Value, carry: list[TensorValue], slices: list[TensorValue],
        rest: list[TensorValue],
    ) -> None:
        self.what, self.tensors, self._metadata = what, [*carry, *slices, *rest], frame.capture.graph.metadata
        lengths = {int(tensor.fake.shape[0]) for tensor in slices if tensor.fake.dim()}
        if not slices or len(lengths) != 1 or not all(tensor.fake.dim() for tensor in slices):
            raise Unsupported(f"{what} over tensors of different lengths", CODE)
        self._length = lengths.pop()
        if not self._length:
            raise Unsupported(f"{what} over tensors without a slice", CODE)
        with self._metadata.faking():
            rows = [tensor.fake.select(0, 0) for tensor in slices]
        fakes = [*(tensor.fake for tensor in carry), *rows, *(tensor.fake for tensor in rest)]
        self.nested = pure(frame, function, tuple(map(Leaf, range(len(fakes)))), fakes, what)

    def stacked(self, results: list[TensorValue]) -> list[torch.Tensor]:
        """What results of all calls look like on top of each other."""
        with self._metadata.faking():
            return [torch.stack([result.fake] * self._length) for result in results]

    def node(self, frame: Frame, run: Any, fakes: list[torch.Tensor]) -> Value:
        nodes = (*(tensor.node for tensor in self.tensors), *self.nested.outside)
        made = frame.capture.graph.add(
            OpaqueCall(run, self.what, "a part of it runs several times"), nodes, tuple(fakes)
        )
        return valued_form(self.nested.result_form, list(made.iterate(frame)))  # type: ignore[arg-type]


def _given(names: tuple[str, ...], args: list[Value], kwargs: dict[str, Value]) -> list[Value]:
    given = dict(zip(names, args)) | kwargs
    if len(args) + len(kwargs) != len(names) or set(given) != set(names):
        raise Unsupported("map or scan with other arguments than they have", CODE)
    return [given[name] for name in names]


def _tensors(frame: Frame, value: Value, what: str) -> list[TensorValue]:
    tensors: list[TensorValue] = []
    form = structure(frame, realize(frame, value), tensors)
    if not isinstance(form, (tuple, list)) or not all(isinstance(part, Leaf) for part in form):
        raise Unsupported(f"{what} of something else than tensors", CODE)
    return tensors


def _leaves(form: Any) -> int | None:
    """How many tensors a structure has; None where there is something else, or a dict whose order could be another
    one's."""
    if isinstance(form, Leaf):
        return 1
    if not isinstance(form, (tuple, list, dict)) or isinstance(form, dict) and len(form) > 1:
        return None
    counts = [_leaves(part) for part in (form.values() if isinstance(form, dict) else form)]
    return None if None in counts else sum(counts)  # type: ignore[arg-type]


def _stacked(rows: list[tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.stack(column) for column in zip(*rows))


def _kind(tensor: TensorValue) -> tuple[Any, ...]:
    return tensor.fake.shape, tensor.fake.stride(), tensor.fake.dtype, tensor.fake.device


HANDLERS[type(map_impl).__call__] = _map
HANDLERS[type(scan_op).__call__] = _scan
