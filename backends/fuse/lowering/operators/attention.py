"""Attention of few queries, such as of one token of a text that is generated, as loop nests, where several heads read
the same keys and values because a program has repeated these: nothing is copied then.

What it takes is to read keys and values once. So there are two loop nests, whichever way the keys are shared among
heads: products of queries and keys, of which each program takes some keys and all queries that share them; and sums of
values, weighted by a softmax that each program finds for its own results anew, since its row is read from the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, cast, index_value, load, op, reduce
from framejit.backends.fuse.loop_ir.index import Index, Quotient, fresh_var, strided
from framejit.backends.fuse.loop_ir.nodes import Buffer, Store
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import (
    Tensor,
    broadcast,
    by_stride,
    compute_dtype,
    contiguous_strides,
)
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.sizes.symbolic_size import as_sizes
from framejit.backends.fuse.targets.lookup import target_of

DTYPES: Final = frozenset((torch.bfloat16, torch.float16, torch.float32))
RANK: Final = 4
"""(batch, heads, positions, elements of a head)."""


@lowers("scaled_dot_product_attention")
def _attention(
    b: Builder, out: Value, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:
    """As `torch.nn.functional.scaled_dot_product_attention`, whose fully masked queries give 0."""
    sizes = as_sizes(out.shape)
    # with torch's own sharing of heads its kernels are quicker, and without any as quick
    if dropout_p or enable_gqa or type(scale) not in (float, int, type(None)):
        return NotImplemented
    group = _heads_alike(key, value) if _is_ours(sizes, query, key, value) else 1
    if group == 1:
        return NotImplemented
    for operand in (query, key, value):
        b.finish_products(operand)
        b.computed_once(operand)
    b.realise(query.content)  # which each program reads
    b.prepare(*(operand for operand in (key, value, attn_mask) if operand is not None))
    if scale is None:
        scale = 1 / math.sqrt(query.sizes[-1])
    scores = _scores(b, query, key, attn_mask, is_causal, scale, group)
    buffer = b.buffer(sizes, as_sizes(out.stride()), out.dtype, out.device)
    _weighted_sums(b, scores, value, buffer, may_be_masked=is_causal or attn_mask is not None)
    return Tensor.of(b.held(buffer))


def _is_ours(sizes: Sequence[int], query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether sizes and dtypes are such that loops of ours are quick."""
    tensors = query, key, value
    numbers = [*sizes, *(number for each in tensors for number in (*each.sizes, *each.strides))]
    if not all(type(number) is int for number in numbers) or 0 in sizes or 0 in query.sizes or 0 in key.sizes:
        return False
    if any(len(each.sizes) != RANK or each.dtype != query.dtype for each in tensors) or query.dtype not in DTYPES:
        return False
    if len({each.sizes[0] for each in tensors}) > 1 or len({each.device for each in tensors}) > 1:
        return False
    if not query.sizes[1] == key.sizes[1] == value.sizes[1] or key.strides[-1] != 1:
        return False
    return target_of(query.device).attends(query.sizes[2], key.sizes[2], query.dtype)


def _heads_alike(*tensors: Tensor) -> int:
    """How many neighbouring heads have the same elements: 1 but for tensors that are read where heads are repeated."""
    if any(tensor.content.buffer is None and not tensor.is_readable for tensor in tensors):
        return 1
    found = tensors[0].sizes[1]
    for tensor in tensors:
        head, *others = (fresh_var("h", size) for size in (tensor.sizes[1], tensor.sizes[0], *tensor.sizes[2:]))
        element = tensor.at([Index.of(others[0]), Index.of(head), *map(Index.of, others[1:])])
        for read in element.loads():
            for atom in read.attr[1].terms:
                if isinstance(atom, Quotient) and atom.index == Index.of(head):
                    found = math.gcd(found, atom.divisor)
                elif head in Index({atom: 1}).vars():
                    return 1
    return found


def _scores(
    b: Builder, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float, group: int
) -> Buffer:
    """A buffer with the products of queries and keys, scaled and masked, in the dtype that is computed in."""
    batch, heads, length, inner = query.sizes
    sizes, kind = (batch, heads, length, key.sizes[2]), compute_dtype(query.dtype)
    scores = b.buffer(sizes, contiguous_strides(sizes), kind, query.device)
    variables = tuple(
        fresh_var(name, size)
        for name, size in zip("bhgijr", (batch, heads // group, group, length, key.sizes[2], inner), strict=True)
    )
    at_batch, shared, member, at_query, at_key, element = map(Index.of, variables)
    head = shared * group + member
    factors = query.at([at_batch, head, at_query, element]), key.at([at_batch, head, at_key, element])
    place = [at_batch, head, at_query, at_key]
    score = a.mul(reduce("sum", a.mul(*(cast(factor, kind) for factor in factors))), scale)
    store = Store(scores.name, strided(place, scores.strides), _masked(score, mask, is_causal, place))
    read = [tensor for tensor in (query, key, mask) if tensor is not None]
    origins = tuple(dict.fromkeys(origin for tensor in read for origin in b.origins_of(tensor)))
    b.compute(variables[:-1], variables[-1:], [store], query.device, origins)
    return scores


def _masked(score: Expr, mask: Tensor | None, is_causal: bool, place: Sequence[Index]) -> Expr:
    """A score where its key is to be looked at, and minus infinity elsewhere; or with what a mask adds."""
    if is_causal:
        score = a.where(a.le(index_value(place[3]), index_value(place[2])), score, -math.inf)
    if mask is None:
        return score
    given = mask.at(broadcast(mask, place))
    return a.where(given, score, -math.inf) if mask.dtype == torch.bool else a.add(score, cast(given, score.dtype))


def _weighted_sums(b: Builder, scores: Buffer, value: Tensor, result: Buffer, may_be_masked: bool) -> None:
    """Fill a buffer with the sums of the values, weighted by the softmax of the scores."""
    variables = {dim: fresh_var("i", result.sizes[dim]) for dim in by_stride(result.sizes, result.strides)}
    place = [Index.of(variables[dim]) if dim in variables else Index({}) for dim in range(RANK)]
    key = fresh_var("j", scores.sizes[-1])
    at_key = Index.of(key)
    score = load(scores.name, strided([*place[:3], at_key], scores.strides), scores.dtype)
    most = reduce("max", score)
    weight = op("exp", a.sub(score, most))
    element = value.at([*place[:2], at_key, place[3]])
    sums = a.div(reduce("sum", a.mul(weight, cast(element, scores.dtype))), reduce("sum", weight))
    if may_be_masked:
        sums = a.where(a.eq(most, -math.inf), 0.0, sums)
    store = Store(result.name, strided(place, result.strides), cast(sums, result.dtype))
    b.compute(tuple(variables.values()), (key,), [store], result.device, b.origins_of(value))
