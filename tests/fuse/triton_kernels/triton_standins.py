"""What Triton's interpreter lacks, does otherwise than a GPU, or takes minutes for. Import it after TRITON_INTERPRET
has been set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps, TensorHandle

from framejit.backends.fuse.triton import device
from framejit.backends.fuse.triton.expressions import LIBDEVICE

NAMES: Final = {"rint": "round"}
"""Functions of libdevice that torch calls otherwise."""


def install() -> None:
    """Put all of it in its place, for the rest of the process."""
    for name in (*LIBDEVICE, "rint", "rsqrt", "sqrt"):
        setattr(libdevice, name, elementwise(getattr(torch, NAMES.get(name, name))))
    device.quick_reciprocal = elementwise(torch.reciprocal)
    InterpreterBuilder.cast_impl = _cast(InterpreterBuilder.cast_impl)
    for name in [name for name in dir(InterpreterBuilder) if name.startswith(("create_icmp", "create_fcmp"))]:
        setattr(InterpreterBuilder, name, _comparison(getattr(InterpreterBuilder, name)))
    InterpreterBuilder.create_dot = _dot
    InterpreterBuilder.create_maxnumf, InterpreterBuilder.create_minnumf = _number(numpy.fmax), _number(numpy.fmin)
    InterpreterBuilder.get_all_ones_value = _all_ones(InterpreterBuilder.get_all_ones_value)
    ReduceOps.generic_reduce = _reduce
    ScanOps.generic_scan = _scan
    interpreter._patch_lang = _patched_once(interpreter._patch_lang)
    # what is computed for assertions that are left out, as they are in compiled kernels
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)


def _patched_once(patch: Callable[..., Any]) -> Callable[..., Any]:
    """The language as the interpreter has it, from the first launch on. The interpreter puts all of it in its place and
    back for each launch, which takes longer than many a kernel."""
    patched: set[tuple[bool, ...]] = set()

    def patch_once(function: Any) -> Any:
        modules = tuple(value is tl for value in function.__globals__.values() if value is tl or value is tl.core)
        if modules not in patched:
            patched.add(modules)
            patch(function)
            tl.tensor.__index__ = _index
        return interpreter._LangPatchScope()  # in which nothing is changed

    return patch_once


def _index(tensor: tl.tensor) -> int:
    """A number of a loop: Triton 3.6 takes it from an array of one dimension, which numpy refuses from 2.5 on."""
    return int(tensor.handle.data.item())


def elementwise(function: Callable[..., torch.Tensor]) -> Callable[..., tl.tensor]:
    """A function of torch's on blocks of the interpreter."""

    def on_blocks(*operands: tl.tensor) -> tl.tensor:
        tensors = torch.broadcast_tensors(
            *(torch.from_numpy(numpy.atleast_1d(operand.handle.data)) for operand in operands)
        )
        result = function(*tensors).numpy()
        widest = max(operands, key=lambda operand: operand.handle.data.size)
        return tl.tensor(TensorHandle(result.reshape(widest.handle.data.shape), widest.handle.dtype), widest.type)

    return on_blocks


def _cast(otherwise: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """Conversions from and to bfloat16 as the machine does them: the interpreter's cut bits off instead of rounding."""

    def cast(self: InterpreterBuilder, source: TensorHandle, target: Any) -> TensorHandle:
        kinds = source.dtype.scalar, target.scalar
        if kinds == (tl.float32, tl.bfloat16):
            rounded = torch.from_numpy(numpy.ascontiguousarray(source.data)).bfloat16()
            return TensorHandle(rounded.view(torch.int16).numpy().view(numpy.uint16), tl.bfloat16)
        if kinds == (tl.bfloat16, tl.float32):
            return TensorHandle((source.data.astype(numpy.uint32) << numpy.uint32(16)).view(numpy.float32), tl.float32)
        return otherwise(self, source, target)

    return cast


def _number(function: numpy.ufunc) -> Callable[..., TensorHandle]:
    """The larger or the smaller of two, a number where the other is none: Triton 3.6's interpreter gives NaN."""

    def chosen(self: InterpreterBuilder, one: TensorHandle, other: TensorHandle) -> TensorHandle:
        return self.binary_op(one, other, function)

    return chosen


def _all_ones(otherwise: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """What an inversion is made with, of unsigned numbers, too: Triton 3.6's interpreter asks numpy for their -1."""

    def all_ones(self: InterpreterBuilder, kind: Any) -> TensorHandle:
        if not kind.scalar.is_int_unsigned():
            return otherwise(self, kind)
        dtype = interpreter._get_np_dtype(kind)
        return TensorHandle(numpy.full(1, numpy.iinfo(dtype).max, dtype), kind.scalar)

    return all_ones


def _dot(
    self: InterpreterBuilder, one: TensorHandle, other: TensorHandle, total: TensorHandle, *_: Any
) -> TensorHandle:
    """A product of blocks; the interpreter's takes the bits of bfloat16 for numbers."""
    kind = total.data.dtype
    factors = [
        self.cast_impl(factor, tl.float32).data if factor.dtype.scalar == tl.bfloat16 else factor.data.astype(kind)
        for factor in (one, other)
    ]
    return TensorHandle(numpy.matmul(*factors) + total.data, total.dtype.scalar)


def _comparison(compare: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """A comparison whose result is of booleans: the interpreter's says that it is of what was compared, and becomes
    that when it is broadcast."""

    def compared(self: InterpreterBuilder, one: TensorHandle, other: TensorHandle) -> TensorHandle:
        return TensorHandle(compare(self, one, other).data.astype(bool), tl.int1)

    return compared


def _reduce(self: ReduceOps, operands: tuple[tl.tensor, ...]) -> list[tl.tensor]:
    """A reduction with a function of the program's, neighbours first, in steps over half of the elements: the
    interpreter's goes through them one by one."""
    assert self.axis is not None and not self.keep_dims
    held = [operand.handle.data for operand in operands]
    dtypes = [operand.dtype for operand in operands]
    length = held[0].shape[self.axis]
    assert length & (length - 1) == 0, "blocks are powers of two"
    while length > 1:
        length //= 2
        parts = [[numpy.take(data, range(first, 2 * length, 2), self.axis) for data in held] for first in (0, 1)]
        combined = self.combine_fn.fn(
            *(self.to_tensor(data, dtype) for part in parts for data, dtype in zip(part, dtypes))
        )
        held = [result.handle.data for result in (combined if isinstance(combined, tuple) else (combined,))]
    taken = [numpy.take(data, 0, self.axis) for data in held]
    return [self.to_tensor(data if data.shape else data.item(), dtype) for data, dtype in zip(taken, dtypes)]


def _scan(self: ScanOps, operands: tuple[tl.tensor, ...]) -> list[tl.tensor]:
    """A scan with a function of the program's: in each step, what lies twice as far back is taken up."""
    held = [operand.handle.data for operand in operands]
    dtypes = [operand.dtype for operand in operands]
    length, distance = held[0].shape[self.axis], 1
    while distance < length:
        before = [numpy.roll(data, distance, self.axis) for data in held]
        combined = self.combine_fn.fn(
            *(self.to_tensor(data, dtype) for part in (before, held) for data, dtype in zip(part, dtypes))
        )
        results = [result.handle.data for result in (combined if isinstance(combined, tuple) else (combined,))]
        rest = range(distance, length)
        held = [
            numpy.concatenate(
                (numpy.take(data, range(distance), self.axis), numpy.take(result, rest, self.axis)), self.axis
            )
            for data, result in zip(held, results)
        ]
        distance *= 2
    return [self.to_tensor(data, dtype) for data, dtype in zip(held, dtypes)]
