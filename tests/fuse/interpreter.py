"""A slow executor of lowered graphs, on torch tensors: what the loops say, taken literally."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Indirect, Quotient, Remainder, Var
from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, ExternNode, Layout, LoweredGraph, SmallProduct

INFIX = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.true_divide,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "hypot": torch.hypot,
    "fmod": torch.fmod,
    "nextafter": torch.nextafter,
    "mod": torch.remainder,
    "bitand": torch.bitwise_and,
    "bitor": torch.bitwise_or,
    "bitxor": torch.bitwise_xor,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "neg": torch.neg,
    "bitnot": torch.bitwise_not,
    "where": torch.where,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "sign": lambda a: torch.where(torch.isnan(a), a, torch.sign(a)) if a.is_floating_point() else torch.sign(a),
}


SCANS = {
    "sum": lambda v: v.cumsum(-1),
    "prod": lambda v: v.cumprod(-1),
    "max": lambda v: v.cummax(-1).values,
    "min": lambda v: v.cummin(-1).values,
    "argmax": lambda v: v.cummax(-1).indices,
    "argmin": lambda v: v.cummin(-1).indices,
    "logsumexp": lambda v: v.logcumsumexp(-1),
}


class Interpreter:
    """Runs a LoweredGraph on inputs; `run` may be called with the inputs it was lowered for, or others like them."""

    def __init__(self, graph: LoweredGraph) -> None:
        self.graph = graph
        self.memory: dict[str, torch.Tensor] = {}

    def run(self, inputs: Sequence[torch.Tensor]) -> list[Any]:
        graph = self.graph
        for buffer in graph.buffers.values():
            if buffer.memory == buffer.name and (buffer.input is not None or buffer.constant is not None):
                tensor = inputs[buffer.input] if buffer.input is not None else buffer.constant
                assert (
                    tensor.shape == torch.Size(buffer.sizes)
                    and tensor.stride() == buffer.strides
                    and tensor.dtype == buffer.dtype
                )
                self.memory[buffer.name] = tensor
        with torch.no_grad():
            for node in graph.nodes:
                if isinstance(node, ExternNode):
                    self._extern(node)
                elif isinstance(node, SmallProduct):
                    self._product(node)
                else:
                    self._loops(node)
            return [self._output(output, inputs) for output in graph.outputs]

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        """The tensor over a buffer's memory, allocated on its first use."""
        found = self.memory.get(buffer.name)
        if found is None:
            if buffer.memory != buffer.name:
                base = self.tensor(self.graph.buffers[buffer.memory])
                found = base if base.dtype == buffer.dtype else None
                assert found is not None, "a buffer in another dtype is made by an operation"
            else:
                found = torch.empty_strided(buffer.sizes, buffer.strides, dtype=buffer.dtype)
            self.memory[buffer.name] = found
        return found

    def flat(self, buffer: Buffer) -> torch.Tensor:
        tensor = self.tensor(buffer).data  # whose version counter is its own, for a kernel counts nothing
        return tensor.as_strided((self.graph.buffers[buffer.memory].extent,), (1,), tensor.storage_offset())

    def view(self, layout: Layout) -> torch.Tensor:
        base = self.tensor(layout.buffer)
        if layout.is_whole:
            return base
        return base.as_strided(layout.sizes, layout.strides, base.storage_offset() + layout.offset)

    def _output(self, output: Any, inputs: Sequence[torch.Tensor]) -> Any:
        return self.view(output) if isinstance(output, Layout) else output

    def _extern(self, node: ExternNode) -> None:
        seen: set[str] = set()

        def real(value: Any) -> Any:
            if isinstance(value, Layout):
                seen.add(value.buffer.name)
                return self.view(value)
            return type(value)(map(real, value)) if isinstance(value, (tuple, list)) else value

        result = node.function(*map(real, node.args), **{key: real(value) for key, value in node.kwargs.items()})
        assert seen == set(node.reads)
        pairs = zip(node.results, result, strict=True) if isinstance(node.results, tuple) else [(node.results, result)]
        for buffer, tensor in pairs:
            if buffer is not None:
                assert tensor.shape == torch.Size(buffer.sizes), (node.function, tensor.shape, buffer.sizes)
                assert tensor.dtype == buffer.dtype, (node.function, tensor.dtype, buffer.dtype)
                assert not tensor.numel() or all(
                    size == 1 or a == b for size, a, b in zip(tensor.shape, tensor.stride(), buffer.strides)
                ), (node.function, tensor.stride(), buffer.strides)
                self.memory[buffer.name] = tensor

    def _product(self, node: SmallProduct) -> None:
        """Nobody is to look at columns beyond the operands'."""
        made = self.view(node.left) @ self.view(node.right)
        made = made if node.bias is None else made + self.tensor(node.bias)
        result = self.tensor(node.result)
        result.view(-1, result.shape[-1])[:, : made.shape[1]].copy_(made)
        result.view(-1, result.shape[-1])[:, made.shape[1] :].fill_(float("nan"))

    def _loops(self, node: ComputeNode) -> None:
        for member in getattr(node, "members", ()):
            self._loops(member)
        if getattr(node, "members", ()):
            return
        stored = []
        for store in node.stores:
            loops = _Loops(self, node)
            value = loops.value(store.value)
            assert value.dtype == self.graph.buffers[store.buffer].dtype, (value.dtype, store.buffer)
            place = loops.index(store.index, None)
            if node.reduction and not store.in_reduction:
                assert not store.index.vars() & set(node.reduction)
            shape = torch.broadcast_shapes(
                value.shape, place.shape,
                loops.shape if store.in_reduction or not node.reduction else loops.parallel_shape,
            )
            stored.append((store, value.expand(shape).reshape(-1), place.expand(shape).reshape(-1)))
        for store, value, place in stored:
            flat = self.flat(self.graph.buffers[store.buffer])
            assert not place.numel() or (0 <= int(place.min()) and int(place.max()) < flat.numel()), (
                store, place.max(), flat.numel(),
            )
            assert place.unique().numel() == place.numel(), f"places are written twice: {store}"
            flat[place] = value


class _Loops:
    """One loop nest, all turns at once: each loop is a dimension."""

    def __init__(self, run: Interpreter, node: ComputeNode) -> None:
        self.run, self.node = run, node
        variables = (*node.parallel, *node.reduction)
        rank = len(variables)
        self.shape = tuple(var.size for var in variables)
        self.parallel_shape = (*(var.size for var in node.parallel), *(1 for _ in node.reduction))
        self.grid = {
            var: torch.arange(var.size).reshape([var.size if i == j else 1 for j in range(rank)])
            for i, var in enumerate(variables)
        }
        self.rank = rank
        self.known: dict[tuple[Expr, int], torch.Tensor] = {}
        self.masks: list[torch.Tensor] = []

    def index(self, index: Index, mask: torch.Tensor | None) -> torch.Tensor:
        total = torch.full([1] * self.rank, index.const)
        for atom, coefficient in index.terms.items():
            if isinstance(atom, Var):
                part = self.grid[atom]
            elif isinstance(atom, Indirect):
                part = self.value(atom.value, mask)
                checked = part if mask is None else torch.where(mask, part, 0)
                assert not part.numel() or (0 <= int(checked.min()) and int(checked.max()) < atom.size)
            elif isinstance(atom, Quotient):
                part = torch.div(self.index(atom.index, mask), atom.divisor, rounding_mode="floor")
            else:
                assert isinstance(atom, Remainder)
                part = self.index(atom.index, mask) % atom.divisor
            total = total + part * coefficient
        if mask is None:
            low, high = index.bounds
            assert not total.numel() or 0 in self.shape or (low <= int(total.min()) and int(total.max()) <= high)
        return total

    def value(self, root: Expr, mask: torch.Tensor | None = None) -> torch.Tensor:
        if (root, id(mask)) not in self.known:
            if root.op == "masked":
                self._masked(root, mask)
            else:
                for operand in root.args:
                    self.value(operand, mask)
                self.known[root, id(mask)] = self._apply(root, mask)
                assert self.known[root, id(mask)].dtype == root.dtype, (
                    root, self.known[root, id(mask)].dtype, root.dtype,
                )
        return self.known[root, id(mask)]

    def _masked(self, node: Expr, mask: torch.Tensor | None) -> None:
        condition = self.value(node.args[0], mask)
        inside = condition if mask is None else condition & mask
        self.masks.append(inside)  # keeps its id its own
        self.known[node, id(mask)] = torch.where(
            condition, self.value(node.args[1], inside), self.value(node.args[2], mask)
        )

    def _apply(self, node: Expr, mask: torch.Tensor | None) -> torch.Tensor:
        args = [self.value(operand, mask) for operand in node.args]
        if node.op == "const":
            return torch.full([1] * self.rank, node.attr, dtype=node.dtype)
        if node.op == "load":
            flat = self.run.flat(self.run.graph.buffers[node.attr[0]])
            place = self.index(node.attr[1], mask)
            if mask is not None:
                place = torch.where(mask, place, 0)
            if 0 in self.shape:
                return torch.empty([0 if size == 0 else 1 for size in self.shape], dtype=node.dtype)
            assert 0 <= int(place.min()) and int(place.max()) < max(flat.numel(), 1), (
                f"{node} reads outside of the buffer: {int(place.min())}, {int(place.max())}"
            )
            return flat[place] if flat.numel() else torch.zeros(place.shape, dtype=node.dtype)
        if node.op == "index":
            return self.index(node.attr, mask)
        if node.op == "cast":
            return args[0].to(node.dtype)
        if node.op == "bitcast":
            return args[0].view(node.dtype)
        if node.op == "reduce":
            return self._reduce(node, args[0])
        if node.op == "scan":
            n = len(self.node.parallel)
            full = args[0].expand(torch.broadcast_shapes(args[0].shape, self.shape))
            return SCANS[node.attr](full.reshape(*self.shape[:n], -1)).to(node.dtype).reshape(self.shape)
        function = INFIX.get(node.op) or getattr(torch, node.op, None) or getattr(torch.special, node.op)
        return function(*args)

    def _reduce(self, node: Expr, value: torch.Tensor) -> torch.Tensor:
        n = len(self.node.parallel)
        count = math.prod(self.shape[n:])
        assert self.node.reduction and count
        full = value.expand(torch.broadcast_shapes(value.shape, self.shape)).reshape(*self.shape[:n], count)
        kinds = {
            "sum": lambda v: v.sum(-1, dtype=node.dtype),
            "prod": lambda v: v.prod(-1, dtype=node.dtype),
            "max": lambda v: v.amax(-1),
            "min": lambda v: v.amin(-1),
            "any": lambda v: v.any(-1),
            "all": lambda v: v.all(-1),
            "argmax": lambda v: v.argmax(-1),
            "argmin": lambda v: v.argmin(-1),
        }
        return kinds[node.attr](full).reshape(*self.shape[:n], *(1 for _ in self.node.reduction))
