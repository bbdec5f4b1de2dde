"""Operations that ATen carries out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from framejit.backends.fuse.ir import Buffer
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.storages import Storages
from framejit.backends.fuse.lowering.tensor import Tensor
from framejit.backends.fuse.trace import Call
from framejit.backends.may_raise import may_raise

# Python's own entries to operations parse their arguments quicker than an OpOverload does. Only those are here whose
# parameters have the operation's order, and whose overloads can't be mixed up.
_FUNCTIONS: Final = (
    "matmul",
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addmv",
    "mv",
    "dot",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "bilinear",
    "embedding",
    "index_select",
    "gather",
    "cumsum",
    "topk",
    "sort",
    "cat",
    "stack",
    "cdist",
)
_NN_FUNCTIONS: Final = ("linear", "scaled_dot_product_attention", "one_hot", "pad", "avg_pool2d", "adaptive_avg_pool2d", "upsample_nearest2d")
_BY_POSITION: Final = {
    **{name: getattr(torch._C._VariableFunctions, name) for name in _FUNCTIONS},
    **{name: getattr(torch._C._nn, name) for name in _NN_FUNCTIONS},
}


def callable_of(func: torch._ops.OpOverload) -> Callable[..., Any]:
    """The quickest callable that does the operation."""
    if func.namespace == "aten" and func._overloadname in ("default", "padding", ""):
        return _BY_POSITION.get(func._opname, func)
    return func


def call_extern(b: Builder, storages: Storages, call: Call) -> None:
    """Add the call of an operation that writes into none of its arguments; its results are looked up if they are the same each time."""
    fakes = list(call.results())
    values = [value for fake in fakes if (value := storages.known_values.value(fake)) is not None]
    if fakes and len(values) == len(fakes):
        for fake, value in zip(fakes, values):
            buffer = b.buffer(fake.shape, fake.stride(), fake.dtype, fake.device, constant=b.shared(value))
            storages.bind(fake, Tensor.of(b.held(buffer)))
        return
    args, kwargs = storages.operands(call)
    function = callable_of(call.func)
    if call.func._opname == "embedding" and len(args) > 2:
        function, args = torch._C._VariableFunctions.embedding, args[:2]  # padding and sparse gradients are of no concern here
    results, made = buffers_for_results(b, storages, call)
    b.extern(function, args, kwargs, results, ordered=is_ordered(call), may_raise=may_raise_when_run(call), accepted=partial(accepts, call))
    for fake, buffer in made:
        storages.bind(fake, Tensor.of(b.held(buffer)))


def buffers_for_results(b: Builder, storages: Storages, call: Call) -> tuple[Any, list[tuple[torch.Tensor, Buffer]]]:
    """Buffers for what a call of ATen returns, as an ExternNode has them, and each with its fake; what is known already, a view or an argument, has none."""
    made: list[tuple[torch.Tensor, Buffer]] = []

    def buffer_for(fake: Any) -> Buffer | None:
        if not isinstance(fake, torch.Tensor) or storages.knows(fake):
            return None
        buffer = b.buffer(fake.shape, fake.stride(), fake.dtype, fake.device)
        made.append((fake, buffer))
        return buffer

    return tuple(map(buffer_for, call.result)) if isinstance(call.result, (tuple, list)) else buffer_for(call.result), made


def may_raise_when_run(call: Call) -> bool:
    """Whether an operation may raise for what is in its tensors."""
    return may_raise(call.func, call.args, call.kwargs)


def is_ordered(call: Call) -> bool:
    """Whether it draws random numbers, or does what the schema doesn't tell."""
    if call.func._opname == "scaled_dot_product_attention":
        return bool(_argument(call, "dropout_p", 0.0))
    return torch.Tag.nondeterministic_seeded in call.func.tags or call.func.namespace != "aten" or call.func._opname in ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _argument(call: Call, name: str, default: Any) -> Any:
    for position, argument in enumerate(call.func._schema.arguments):
        if argument.name == name:
            return call.args[position] if position < len(call.args) else call.kwargs.get(name, default)
    return default
