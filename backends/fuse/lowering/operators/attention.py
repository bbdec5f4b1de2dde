"""Attention of one query, such as of one token of a text that is generated.

What it takes is to read keys and values once. In half precision a kernel (`SplitAttention`) does so: each program takes
a part of the keys, and all heads that share these, whether the program repeats heads or torch's operation shares them;
the one that is done last puts the parts together.

Else, where several heads read the same keys because a program has repeated these, there are two loop nests, and nothing
is copied: products of queries and keys, of which each program takes some keys and all queries that share them; and sums
of values, weighted by a softmax that each program finds for its own results anew, since its row is read from the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import COMPUTE, Expr, cast, index_value, load, op, reduce
from framejit.backends.fuse.loop_ir.index import Index, Quotient, fresh_var, strided
from framejit.backends.fuse.loop_ir.nodes import AttentionParts, Buffer, Layout, SplitAttention, Store
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
MOST_ELEMENTS: Final = 256
"""Elements of a head that a program of `SplitAttention` holds."""
MUCH: Final = 24 << 20
"""Bytes of keys and values from which on torch's kernels are quicker, where they can be used (benchmarks/attention.py:
on an H200 10.1 for 11.9 us of 17 MB, 15.7 for 15.1 of 34)."""
MOST_HEADS: Final = 32
"""Heads that share keys, of which a program holds scores."""
RANK: Final = 4
"""(batch, heads, positions, elements of a head)."""


@lowers("scaled_dot_product_attention")
def _attention(
    b: Builder, out: Value, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:
    """As `torch.nn.functional.scaled_dot_product_attention`, whose fully masked queries give 0."""
    sizes = as_sizes(out.shape)
    if dropout_p or type(scale) not in (float, int, type(None)) or not _is_ours(sizes, query, key, value):
        return NotImplemented
    group = 1 if enable_gqa else _heads_alike(key, value)
    if scale is None:
        scale = 1 / math.sqrt(query.sizes[-1])
    if not is_causal and _is_split(query, key, value, attn_mask, group):
        made = _in_parts(b, out, query, key, value, attn_mask, float(scale), group)
        if made is not None:
            return made
    if group == 1:  # torch's kernels are as quick
        return NotImplemented
    _ready(b, query, key, value)
    b.prepare(*(operand for operand in (key, value, attn_mask) if operand is not None))
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
    if key.sizes[1] != value.sizes[1] or query.sizes[1] % key.sizes[1] or key.strides[-1] != 1:
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


def _ready(b: Builder, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Put into memory what is not to be computed by each program."""
    for operand in (query, key, value):
        b.finish_products(operand)
        b.computed_once(operand)
    b.realise(query.content)  # which each program reads


def _is_split(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, group: int) -> bool:
    """Whether one query's keys are looked at in parts, side by side."""
    if query.sizes[2] != 1 or query.dtype not in COMPUTE or max(key.sizes[3], value.sizes[3]) > MOST_ELEMENTS:
        return False
    if query.sizes[1] * group > MOST_HEADS * key.sizes[1]:
        return False
    if mask is not None and (len(mask.sizes) > RANK or not (mask.dtype == torch.bool or mask.dtype.is_floating_point)):
        return False
    # torch's kernels split keys, too, if they are given no mask; they are a little quicker where there is much to read
    is_copied = group > 1 or mask is not None
    read = math.prod(key.sizes) + math.prod(value.sizes)
    return is_copied or read * query.dtype.itemsize <= MUCH


def _in_parts(
    b: Builder, out: Value, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, group: int
) -> Tensor | None:
    """The result, if queries, keys and values are read from memory as they are."""
    batch, heads, _, _ = query.sizes
    _ready(b, query, key, value)
    b.prepare(key, value)
    shared, keys = key.sizes[1] // group, key.sizes[2]
    queries_lie = _as_it_lies(b, query, query.sizes)
    keys_lie, values_lie = (
        _as_it_lies(b, each, (batch, shared, *each.sizes[2:]), group) for each in (key, value)
    )
    if mask is not None:
        b.realise(mask.content)
    mask_lies = None if mask is None else _as_it_lies(b, mask, (batch, heads, 1, keys))
    if queries_lie is None or keys_lie is None or values_lie is None or (mask is not None and mask_lies is None):
        return None
    each = target_of(query.device).keys_a_part(batch * shared, keys, max(key.sizes[3], value.sizes[3]))
    result = b.buffer(as_sizes(out.shape), as_sizes(out.stride()), out.dtype, out.device)
    between = _between(b, (batch, heads, 1, -(-keys // each)), shared, value.sizes[3], query.device)
    is_loops = between is not None and between.arrived is None
    given = None if is_loops else Layout(result, result.sizes, result.strides, 0)
    read = [tensor for tensor in (query, key, value, mask) if tensor is not None]
    origins = tuple(dict.fromkeys(origin for tensor in read for origin in b.origins_of(tensor)))
    b.nodes.append(
        SplitAttention(
            queries_lie, keys_lie, values_lie, mask_lies, scale, each, between, given, query.device, origins
        )
    )
    if between is not None and is_loops:
        _put_together(b, between, result)
    return Tensor.of(b.held(result))


def _between(
    b: Builder, sizes: tuple[int, int, int, int], shared: int, elements: int, device: torch.device
) -> AttentionParts | None:
    """Buffers for what parts have to say; `sizes`: of the batch, heads, queries, and parts."""
    batch, heads, _, parts = sizes
    if parts == 1:
        return None
    greatest, totals, sums = (
        b.buffer(made, contiguous_strides(made), torch.float32, device) for made in (sizes, sizes, (*sizes, elements))
    )
    joins = target_of(device).joins_parts(heads // shared, parts, elements)
    arrived = b.zeros(batch * shared, torch.int32, device) if joins else None
    return AttentionParts(greatest, totals, sums, arrived)


def _put_together(b: Builder, between: AttentionParts, result: Buffer) -> None:
    """Fill a buffer with what the parts of `SplitAttention` come to, 0 where a query looks at no key."""
    greatest, totals, sums = between.filled
    variables = {dim: fresh_var("i", result.sizes[dim]) for dim in by_stride(result.sizes, result.strides)}
    place = [Index.of(variables[dim]) if dim in variables else Index({}) for dim in range(RANK)]
    part = fresh_var("j", greatest.sizes[-1])
    at_part = [*place[:3], Index.of(part)]
    top, total = (load(each.name, strided(at_part, each.strides), each.dtype) for each in (greatest, totals))
    element = load(sums.name, strided([*at_part, place[3]], sums.strides), sums.dtype)
    most = reduce("max", top)
    weight = op("exp", a.sub(top, most))
    made = a.div(reduce("sum", a.mul(weight, element)), reduce("sum", a.mul(weight, total)))
    made = a.where(a.eq(most, -math.inf), 0.0, made)
    store = Store(result.name, strided(place, result.strides), cast(made, result.dtype))
    b.compute(tuple(variables.values()), (part,), [store], result.device)


def _as_it_lies(b: Builder, tensor: Tensor, sizes: Sequence[int], group: int = 1) -> Layout | None:
    """Where a tensor's elements lie, broadcast to these sizes, of each `group` heads those of the first; None if they
    are not simply read."""
    variables = [fresh_var("i", size) for size in sizes]
    place = [Index.of(variable) for variable in variables]
    place[1] *= group
    read = tensor.at(broadcast(tensor, place))
    while read.op == "cast":
        read = read.args[0]
    if read.op != "load" or read.dtype != tensor.dtype or not read.attr[1].is_affine:
        return None
    name, index = read.attr
    return Layout(b.buffers[name], tuple(sizes), tuple(index.stride(variable) for variable in variables), index.const)


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
