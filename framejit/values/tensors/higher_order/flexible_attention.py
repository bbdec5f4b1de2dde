"""`flex_attention` and the masks for it: nodes that hand torch the program's `score_mod` and `mask_mod`, each
captured as a graph of its own."""
from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention

from framejit.backends.opaque_call import OpaqueCall
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import plain
from framejit.values.handlers import HANDLERS, Handler, looks_up_handler
from framejit.values.tensors.higher_order.nested_graph import CODE, Leaf, filled, structure
from framejit.values.tensors.higher_order.repeated_functions import pure
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_MODULE = "torch.nn.attention.flex_attention"
_PARAMETERS = (
    "query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options", "score_mod_other_buffers",
    "mask_mod_other_buffers",
)


class _PerElement:
    """A function that torch calls with the indices of one element, under `vmap`: numbers as tensors without dimensions.

    `buffers` are the nodes around it that it uses; torch wants their tensors behind its arguments.
    """

    def __init__(self, frame: Frame, function: Value, fakes: list[torch.Tensor], what: str) -> None:
        # imports Dynamo, which whoever calls flex_attention has
        from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

        metadata = frame.capture.graph.metadata
        metadata.forget_results()  # `x[i]` with a number as a tensor means something else in such functions
        try:
            with frame.capture.inside_transform(), TransformGetItemToIndex():
                form = tuple(map(Leaf, range(len(fakes))))
                self._nested = pure(frame, function, form, fakes, what, fresh=False)
        finally:
            metadata.forget_results()
        if not isinstance(self._nested.result_form, Leaf) or self._nested.results[0].fake.dim():
            raise Unsupported(f"a function given to {what} that gives something else than one number", CODE)
        self.buffers = self._nested.outside

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self._nested.module.forward(*args)[0]
        return result


def _numbers(frame: Frame, like: torch.Tensor, count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Fakes of numbers as tensors without dimensions."""
    with frame.capture.graph.metadata.faking():
        return [like.new_empty((), dtype=dtype) for _ in range(count)]


def _attend(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`flex_attention(self, query, key, value, score_mod, block_mask, scale, kernel_options, ...)`, as torch's Python
    function of that name calls it once it has checked its arguments."""
    given = dict(zip(_PARAMETERS, args[1:])) | kwargs
    mask = realize(frame, given["block_mask"])
    inputs = [realize(frame, given[name]) for name in _PARAMETERS[:3]]
    if "score_mod_other_buffers" in given or not isinstance(mask, TupleValue):
        raise Unsupported("flex_attention with arguments that torch does not give it itself", CODE)
    blocks: list[TensorValue] = []
    form = structure(frame, TupleValue(mask.items[:-1]), blocks)
    scale, options = plain(frame, given["scale"]), plain(frame, given["kernel_options"])
    tensors = [tensor for tensor in inputs if isinstance(tensor, TensorValue)]
    if len(tensors) != 3:
        raise Unsupported("flex_attention of something else than tensors", CODE)
    query = tensors[0].fake
    indices = _numbers(frame, query, 4, torch.int)
    [score] = _numbers(frame, query, 1, query.dtype)
    score.requires_grad_(query.requires_grad)
    score_mod = _PerElement(frame, given["score_mod"], [score, *indices], "flex_attention")
    mask_mod = _PerElement(frame, mask.items[-1], indices, "flex_attention")
    first, second = 3 + len(blocks), 3 + len(blocks) + len(score_mod.buffers)

    attend: Any = flex_attention

    def run(*flat: Any) -> Any:
        block_mask = (*filled(form, flat[3:first].__getitem__), mask_mod)
        # torch changes the options that it is given
        return attend(
            *flat[:3], score_mod, block_mask, scale, dict(options), flat[first:second], flat[second:]
        )

    def metadata(*flat: Any) -> Any:
        return _results(flat[0], flat[2], [*flat[:3], *flat[first:second]])

    nodes = (*(tensor.node for tensor in (*tensors, *blocks)), *score_mod.buffers, *mask_mod.buffers)
    fakes = frame.capture.graph.metadata.run(metadata, False, tuple(node.meta["val"] for node in nodes), {})
    call = OpaqueCall(run, "flex_attention", "a function of the program is called for each score")
    return frame.capture.graph.add(call, nodes, fakes)


def _results(query: torch.Tensor, value: torch.Tensor, differentiable: list[Any]) -> tuple[torch.Tensor, ...]:
    """Fakes of what torch's own implementation gives: the output, and logarithms of sums and maxima of scores in the
    precision that scores are computed in. (Torch's function for fakes says float32 for float64, too.)"""
    rows = query.shape[:3]
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    order = sorted(range(4), key=lambda dim: query.stride(dim), reverse=True)
    sizes = [*rows, value.shape[-1]]
    out = query.new_empty([sizes[dim] for dim in order]).permute([order.index(dim) for dim in range(4)])
    sums, maxima = (query.new_empty(rows, dtype=precision) for _ in range(2))
    parents = [t for t in differentiable if isinstance(t, torch.Tensor) and t.requires_grad]
    if torch.is_grad_enabled() and parents:
        link = parents[0].sum()
        out, sums = out * link.to(out.dtype), sums * link.to(precision)
    return out, sums, maxima


HANDLERS[type(flex_attention).__call__] = _attend


@looks_up_handler
def _mask_maker(fn: FunctionType) -> Handler | None:
    if fn.__module__ != _MODULE or fn.__name__ != "create_mask":
        return None
    return lambda frame, args, kwargs: _make_mask(fn, frame, args, kwargs)


def _make_mask(create_mask: Callable[..., Any], frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device=None)` of a function of four indices."""
    given = dict(zip(("mod_fn", "B", "H", "Q_LEN", "KV_LEN", "device"), args)) | kwargs
    function = given.pop("mod_fn")
    sizes = {name: plain(frame, value) for name, value in given.items()}
    with frame.capture.graph.metadata.faking():
        index = torch.empty((), dtype=torch.int64, device=sizes.get("device") or "cpu")
    mask_mod = _PerElement(frame, function, [index] * 4, "create_mask")

    def run(*buffers: torch.Tensor) -> Any:
        def of_indices(b: Any, h: Any, q: Any, kv: Any) -> Any:  # torch counts the arguments
            return mask_mod(b, h, q, kv, *buffers)

        return create_mask(of_indices, **sizes)

    fakes = tuple(node.meta["val"] for node in mask_mod.buffers)
    result = frame.capture.graph.metadata.run(run, False, fakes, {})
    call = OpaqueCall(run, "create_mask", "a function of the program is called for each place of a mask")
    return frame.capture.graph.add(call, tuple(mask_mod.buffers), result)
