"""Matrix products with few rows as loop nests: sums over products of elements.

A few rows times a matrix take as long as reading the matrix. As loops of ours, what comes before such a product (a
norm's factors, a cast) and behind it (bias, activation, gate, residual) is fused as it is around any reduction, and
products of one input over as many columns are one kernel. Other products are ATen's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.loop_ir.expr import Expr, cast, reduce
from framejit.backends.fuse.loop_ir.index import Index, Var, fresh_var, strided
from framejit.backends.fuse.loop_ir.nodes import Store
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, broadcast, by_stride, compute_dtype
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.pointwise import elementwise
from framejit.backends.fuse.lowering.operators.tiled_products import is_small, lower_small
from framejit.backends.fuse.sizes.symbolic_size import as_sizes
from framejit.backends.fuse.targets.lookup import target_of
from framejit.late_dataclass import dataclass

DTYPES: Final = frozenset((torch.bfloat16, torch.float16, torch.float32, torch.float64))
CHEAP: Final = frozenset(
    ("load", "const", "index", "cast", "add", "sub", "mul", "neg", "abs", "maximum", "minimum", "where")
)
"""What may be done again to an element of the smaller operand by each program, which reads all of it."""
MOST_OPS, MOST_LOADS = 8, 4
"""How much of that: about as much as a program then does with the element."""
LONG: Final = 1 << 14
"""Elements of a row of the matrix from which on it takes several programs to read few of them quickly."""


@dataclass(frozen=True)
class Product:
    """`alpha * (left @ right) + beta * bias`, with the rules of `torch.matmul` for ranks and batches."""

    left: Tensor
    right: Tensor
    bias: Tensor | None = None
    alpha: float = 1
    beta: float = 1

    @property
    def inner(self) -> int:
        """How many products are summed."""
        return self.left.sizes[-1]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows that only the left operand has, columns that only the right one has, and batches that both have."""
        left, right = self.left.sizes, self.right.sizes
        rows, columns, batches = math.prod(left[-2:-1]), math.prod(right[-1:]) if len(right) > 1 else 1, 1
        for one, other in zip_longest(left[-3::-1], right[-3::-1], fillvalue=1):
            if one != 1 and other != 1:
                batches *= one
            else:
                rows, columns = rows * one, columns * other
        return rows, columns, batches

    def term(self, place: Sequence[Index], inner: Index, dtype: torch.dtype) -> tuple[Expr, Expr]:
        """The two factors of one term of the element at a place of the result."""
        place = list(place)
        column = [] if len(self.right.sizes) == 1 else [place.pop()]
        row = [] if len(self.left.sizes) == 1 else [place.pop()]
        left = self.left.at([*_batch(self.left, place), *row, inner])
        right = self.right.at([*_batch(self.right, place), inner, *column])
        return cast(left, dtype), cast(right, dtype)

    def finished(self, total: Expr, place: Sequence[Index]) -> Expr:
        """The element at a place, of the sum of its terms."""
        if self.alpha != 1:
            total = a.mul(total, self.alpha)
        if self.bias is None or self.beta == 0:
            return total
        bias = cast(self.bias.at(broadcast(self.bias, place)), total.dtype)
        return a.add(total, bias if self.beta == 1 else a.mul(bias, self.beta))


def _batch(operand: Tensor, place: Sequence[Index]) -> list[Index]:
    """The indices of an operand's leading dimensions."""
    leading = operand.sizes[:-2]
    return [Index({}) if size == 1 else index for size, index in zip(leading, place[len(place) - len(leading) :])]


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Product | None:
    if len(weight.sizes) != 2:
        return None
    (columns, inner), (step, inner_step) = weight.sizes, weight.strides
    return Product(x, Tensor(weight.content, (inner, columns), (inner_step, step), weight.offset), bias)


def _with_bias(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Product:
    return Product(left, right, bias, alpha, beta)


WITH_BIAS: Final = ("addmm", "addmv", "baddbmm")
PRODUCTS: Final[dict[str, Callable[..., Product | None]]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "matmul"), Product),
    **dict.fromkeys(WITH_BIAS, _with_bias),
    "linear": _linear,
}


def lower_product(b: Builder, node: Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of one of `PRODUCTS`, or None where ATen is to do it."""
    out = node.result
    product = PRODUCTS[node.name](*args, **kwargs)
    if product is None:
        return None
    operands = product.left, product.right, product.bias
    if product.alpha == product.beta == 1 and is_small(out, *operands) and accepts(node):
        return lower_small(b, out, *operands)
    if _is_outer(product, out.dtype) and accepts(node):
        return elementwise(b, out, _of_one_term, (product.left, product.right), (), {}, "mul", factor=True)
    if not _is_ours(product, node, as_sizes(out.shape), out.dtype) or not accepts(node):
        return None
    small, dim = (product.left, len(product.left.sizes) - 1)
    if math.prod(small.sizes) > math.prod(product.right.sizes):
        small, dim = product.right, max(0, len(product.right.sizes) - 2)
    kind = compute_dtype(out.dtype)
    given = [operand for operand in operands if operand is not None]
    for operand in given:
        b.finish_products(operand)
    b.prepare(*given)
    sizes, strides = as_sizes(out.shape), as_sizes(out.stride())
    variables = {dim: fresh_var("i", sizes[dim]) for dim in by_stride(sizes, strides)}
    place = [Index.of(variables[dim]) if dim in variables else Index({}) for dim in range(len(sizes))]
    inner = fresh_var("r", product.inner)
    if small.content.buffer is None and _is_costly(small, dim, inner):
        b.realise(small.content)
    total = reduce("sum", a.mul(*product.term(place, Index.of(inner), kind)))
    buffer = b.buffer(sizes, strides, out.dtype, out.device)
    value = cast(product.finished(total, place), out.dtype)
    origins = tuple(dict.fromkeys(origin for operand in given for origin in b.origins_of(operand)))
    b.compute(
        tuple(variables.values()), (inner,), [Store(buffer.name, strided(place, strides), value)], out.device, origins
    )
    b.products.add(buffer.name)
    return Tensor.of(b.held(buffer))


def _is_outer(product: Product, dtype: torch.dtype) -> bool:
    """Whether each sum is of one term, such as of positions and frequencies, so that nothing is read more than once."""
    left, right = product.left, product.right
    if not target_of(left.device).outer_products or product.bias is not None or product.alpha != 1:
        return False
    is_known = dtype in DTYPES and left.dtype == right.dtype == dtype
    return is_known and product.inner == 1 and len(left.sizes) > 1 and len(right.sizes) > 1


def _of_one_term(left: Expr, right: Expr) -> Expr:
    """A sum that began at 0: it is never -0."""
    return a.add(a.mul(left, right), 0.0)


def _is_joint(node: Node) -> bool:
    """Whether there is another product of the same rows, with as many columns: they will be one kernel. All sizes are
    known."""
    if node.name in WITH_BIAS:
        return False
    rows, matrix = node.args[:2]
    return any(
        user is not node and user.name == node.name and user.args[0] is rows and user.args[1].shape == matrix.shape
        for user in rows.users
    )


def _is_ours(product: Product, node: Node, sizes: Sequence[int], dtype: torch.dtype) -> bool:
    """Whether a product is bound by reading one operand, whose rows lie in one piece, and is quick as loops."""
    left, right = product.left, product.right
    target = target_of(left.device)
    if dtype not in DTYPES or left.dtype != dtype or right.dtype != dtype:
        return False
    numbers = (*left.sizes, *right.sizes, *left.strides, *right.strides, *sizes)
    if not all(type(number) is int for number in numbers) or product.inner < 2 or 0 in sizes:
        return False
    if any(type(number) not in (int, float) for number in (product.alpha, product.beta)):
        return False
    rows, columns, batches = product.counts
    if rows <= columns:
        few, many, step = rows, columns, right.strides[-2] if len(right.sizes) > 1 else right.strides[0]
    else:
        few, many, step = columns, rows, left.strides[-1]
    if step != 1 or not (product.inner < LONG or many * batches >= target.parallel_turns):
        return False
    return target.multiplies(few, many * batches, dtype, _is_joint(node))


def _is_costly(operand: Tensor, dim: int, inner: Var) -> bool:
    """Whether to compute the elements along a dimension once for each program would take long."""
    place = [Index.of(inner) if other == dim else Index({}) for other in range(len(operand.sizes))]
    moving = [value for value in operand.at(place).walk() if inner in value.vars()]
    loads = sum(value.op == "load" for value in moving)
    return loads > MOST_LOADS or len(moving) - loads > MOST_OPS or any(value.op not in CHEAP for value in moving)
