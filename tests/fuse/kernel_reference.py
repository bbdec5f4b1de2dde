"""Kernels run one torch operation at a time: what generated code is compared with. And helpers to build kernels and to
run compiled ones."""
from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence

import torch

from framejit.backends.fuse.llvm.compiled_kernel import CpuKernel
from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Indirect, Quotient, Var
from framejit.backends.fuse.loop_ir.nodes import Buffer, Kernel, Store
from tests.fuse.interpreter import SCANS

FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "maximum": torch.maximum, "minimum": torch.minimum, "div": torch.div,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "mod": torch.remainder,
    "bitand": torch.bitwise_and, "bitor": torch.bitwise_or,
    "bitxor": torch.bitwise_xor, "bitnot": torch.bitwise_not, "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "where": torch.where, "masked": torch.where, "sign": lambda a: torch.where(a.isnan(), a, torch.sign(a)),
}


def kernel(
    parallel: Sequence[Var], reduction: Sequence[Var], stores: list[Store], tensors: dict[str, torch.Tensor]
) -> Kernel:
    """A kernel over tensors, whose buffers get the tensors' names."""
    buffers = {
        name: Buffer(name, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device)
        for name, tensor in tensors.items()
    }
    device, origins = torch.device("cpu"), ("test.py:1  a line",)
    return Kernel(tuple(parallel), tuple(reduction), stores, device, origins, "kernel", buffers)


def run(compiled: CpuKernel, tensors: dict[str, torch.Tensor], pieces: int = 1) -> None:
    """Run a compiled kernel, its parallel loop cut into pieces."""
    pointers = (ctypes.c_void_p * len(compiled.buffers))(*(tensors[name].data_ptr() for name in compiled.buffers))
    function = FUNCTION(compiled.address)
    for piece in range(pieces):
        function(
            ctypes.addressof(pointers), None, compiled.total * piece // pieces, compiled.total * (piece + 1) // pieces
        )


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor from its first element on, as one dimension."""
    extent = (
        1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    )
    return tensor.as_strided((extent,), (1,))


class Reference:
    """Evaluates a kernel's expressions over all turns of its loops at once: dimension n belongs to the n-th loop."""

    def __init__(self, which: Kernel, tensors: dict[str, torch.Tensor]) -> None:
        self.kernel, self.tensors = which, {name: flat(tensor).clone() for name, tensor in tensors.items()}
        self.loops = (*which.parallel, *which.reduction)
        self.values: dict[Expr, torch.Tensor] = {}

    def run(self) -> dict[str, torch.Tensor]:
        """What lies in each buffer's memory afterwards."""
        after = {name: memory.clone() for name, memory in self.tensors.items()}
        parallel = len(self.kernel.parallel)
        sizes = [var.size for var in self.loops]
        for store in self.kernel.stores:
            value, index = self.value(store.value), self.index(store.index)
            each = store.in_reduction or not self.kernel.reduction
            shape = sizes if each else sizes[:parallel] + [1] * (len(sizes) - parallel)
            if math.prod(shape):
                after[store.buffer][index.expand(shape).reshape(-1)] = value.expand(shape).reshape(-1)
        return after

    def index(self, index: Index) -> torch.Tensor:
        total = torch.full([1] * len(self.loops), index.const)
        for atom, coefficient in index.terms.items():
            if isinstance(atom, Var):
                dimension = self.loops.index(atom)
                part = torch.arange(atom.size).reshape(
                    [-1 if each == dimension else 1 for each in range(len(self.loops))]
                )
            elif isinstance(atom, Indirect):
                part = self.value(atom.value)
            else:
                inside = self.index(atom.index)
                part = (
                    inside.div(atom.divisor, rounding_mode="floor")
                    if isinstance(atom, Quotient)
                    else inside.remainder(atom.divisor)
                )
            total = total + part * coefficient
        return total

    def value(self, root: Expr) -> torch.Tensor:
        for node in root.walk():
            if node not in self.values:
                self.values[node] = self._compute(node)
        return self.values[root]

    def _compute(self, node: Expr) -> torch.Tensor:
        if node.op == "load":
            memory = self.tensors[node.attr[0]]
            places = self.index(node.attr[1])
            return (
                memory[places.clamp(0, len(memory) - 1)] if len(memory) else torch.zeros_like(places, dtype=node.dtype)
            )
        if node.op == "const":
            return torch.full([1] * len(self.loops), node.attr, dtype=node.dtype)
        if node.op == "index":
            return self.index(node.attr)
        operands = [self.values[operand] for operand in node.args]
        if node.op == "cast":
            return operands[0].to(node.dtype)
        if node.op == "bitcast":
            return operands[0].view(node.dtype)
        if node.op == "reduce":
            return self._reduce(node, operands[0])
        if node.op == "scan":
            parallel, sizes = len(self.kernel.parallel), [var.size for var in self.loops]
            rows = operands[0].expand(sizes).reshape(*sizes[:parallel], -1)
            return SCANS[node.attr](rows).to(node.dtype).reshape(sizes)
        return TORCH.get(node.op, getattr(torch, node.op, None) or torch.add)(*operands)

    def _reduce(self, node: Expr, value: torch.Tensor) -> torch.Tensor:
        parallel, reduction = len(self.kernel.parallel), [var.size for var in self.kernel.reduction]
        shape = list(value.shape[:parallel]) + reduction
        rows = value.expand(shape).reshape(*value.shape[:parallel], -1)
        exact = rows.double() if rows.dtype == torch.float32 else rows
        results: dict[str, Callable[[], torch.Tensor]] = {
            "sum": lambda: exact.sum(-1), "prod": lambda: exact.prod(-1), "max": lambda: rows.amax(-1),
            "min": lambda: rows.amin(-1),
            "any": lambda: rows.any(-1), "all": lambda: rows.all(-1), "xor": lambda: _xor(rows),
            "argmax": lambda: _first(rows, True), "argmin": lambda: _first(rows, False),
        }
        return results[node.attr]().to(node.dtype).reshape(*value.shape[:parallel], *[1] * len(reduction))


def _first(rows: torch.Tensor, greatest: bool) -> torch.Tensor:
    best = rows.amax(-1, keepdim=True) if greatest else rows.amin(-1, keepdim=True)
    return ((rows == best) | (rows.isnan() & best.isnan())).int().argmax(-1)


def _xor(rows: torch.Tensor) -> torch.Tensor:
    result = torch.zeros_like(rows[..., 0])
    for column in rows.unbind(-1):
        result = result ^ column
    return result


def steps_apart(a: torch.Tensor, b: torch.Tensor) -> int:
    """The greatest distance between two float tensors in units of representable numbers; nans count as equal."""
    whole = {
        torch.float32: torch.int32, torch.float64: torch.int64, torch.float16: torch.int16,
        torch.bfloat16: torch.int16,
    }[a.dtype]

    def ordered(x: torch.Tensor) -> torch.Tensor:
        bits = x.contiguous().view(whole).long()
        return torch.where(bits < 0, torch.iinfo(whole).min - bits, bits)
    assert torch.equal(a.isnan(), b.isnan())
    distance = (ordered(a) - ordered(b)).abs()
    return int(distance[~a.isnan()].max().item()) if (~a.isnan()).any() else 0
