"""Attention of one query as Triton source: each program does a part of the keys.

After T. Dao, D. Haziza, F. Massa and G. Sizov, "Flash-Decoding for long-context inference" (2023): parts of the keys
are looked at side by side, each with a softmax of its own, and are put together: where they are few not by a kernel
behind, but by whichever program of some heads is done last. Scores and sums are products on tensor cores, keys along
their longer side: of what is multiplied with a program has a few heads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import torch

from framejit.backends.fuse.loop_ir.nodes import AttentionKernel, AttentionParts, Buffer, Layout
from framejit.backends.fuse.triton.expressions import TRITON_DTYPES, number
from framejit.backends.fuse.triton.lines import Lines
from framejit.backends.fuse.triton.tiles.attention_blocks import AttentionTile
from framejit.backends.fuse.triton.tiles.block_sizes import power_above

LOWEST: Final = 'float("-inf")'

def attention_body(
    kernel: AttentionKernel, tile: AttentionTile, pointers: Mapping[str, str], spares: bool, function: str,
    arguments: Sequence[Sequence[str]]
) -> str:
    """The body of a kernel's function. `pointers` gives the name of the argument for each buffer; `spares`: see
    `spares_multiprocessors`. What is to be done first do functions that are called `function` and their number, with
    these arguments behind the number of a program."""
    attention = tile.attention
    _, shared, keys, inner = attention.key.sizes
    columns, group = attention.value.sizes[3], attention.group
    lines = Lines()
    many = ".to(tl.int64)" if tile.wide else ""
    lines.add(f"program = tl.program_id(0){many}")
    lines.add(f"part = program % {attention.parts}")
    lines.add(f"shared = program // {attention.parts} % {shared}")
    lines.add(f"batch = program // {attention.parts * shared}")
    lines.add(f"key = part * {attention.keys_a_part} + tl.arange(0, {attention.keys_a_part})")
    lines.add(f"inner = tl.arange(0, {tile.inner})")
    lines.add(f"column = tl.arange(0, {tile.columns})")
    lines.add(f"member = tl.arange(0, {tile.heads})")
    lines.add(f"head = shared * {group} + member")
    is_key = "" if keys % attention.keys_a_part == 0 else f"key < {keys}"
    is_inner = "" if inner == tile.inner else f"inner < {inner}"
    is_column = "" if columns == tile.columns else f"column < {columns}"
    is_head = "" if group == tile.heads else f"member < {group}"

    def load(layout: Layout, indices: Sequence[str], *masks: str) -> str:
        guard = _all(masks)
        place = _place(layout.offset, layout.strides, indices)
        return f"tl.load({pointers[layout.buffer.name]} + {place}{f', mask={guard}, other=0' if guard else ''})"

    of_keys, of_heads = _along(is_key, 0), _along(is_head, 1)
    query = load(
        attention.query, ("batch", "head[None, :]", "", "inner[:, None]"), _along(is_inner, 0), of_heads
    )
    keys_in = load(
        attention.key, ("batch", "shared", "key[:, None]", "inner[None, :]"), of_keys, _along(is_inner, 1)
    )
    values = load(
        attention.value, ("batch", "shared", "key[:, None]", "column[None, :]"), of_keys, _along(is_column, 1)
    )
    cached = {
        "keys": (attention.key, keys_in, "inner", is_inner), "values": (attention.value, values, "column", is_column),
    }
    waits = kernel.steady is not None
    early = [
        name for name, (layout, *_) in cached.items()
        if waits and (layout.buffer.name in kernel.rows or layout.buffer.name in (kernel.steady or ()))
    ]
    if waits and spares:
        lines.add("cuda.gdc_launch_dependents()")
    for name in early:
        lines.add(f"{name} = {cached[name][1]}")
    if waits:
        lines.add("cuda.gdc_wait()")
    _do_first(tile, lines, function, arguments)
    lines.add(f"queries = {query}")
    for name, (layout, text, along, guard) in cached.items():
        row = kernel.rows.get(layout.buffer.name)
        if name not in early:
            lines.add(f"{name} = {text}")
        elif row is not None:  # which was written meanwhile
            number_of_row = f"tl.load({pointers[row.attr[0]]} + {row.attr[1].const})"
            lines.add(f"row = {number_of_row}{'' if tile.wide else '.to(tl.int32)'}")
            lines.add(f"{name}_row = {load(layout, ('batch', 'shared', 'row', along), guard)}")
            lines.add(f"{name} = tl.where((key == row)[:, None], {name}_row[None, :], {name})")
    lines.add(f"scores = tl.dot(keys, queries) * {number(attention.scale)}")
    if attention.mask is not None:
        differs = attention.mask.strides[1] != 0  # from head to head
        head = "head[None, :]" if differs else ""
        mask = load(attention.mask, ("batch", head, "", "key[:, None]"), of_keys, of_heads if differs else "")
        is_bool = attention.mask.buffer.dtype == torch.bool
        text = f"tl.where({mask} != 0, scores, {LOWEST})" if is_bool else f"scores + ({mask}).to(tl.float32)"
        lines.add(f"scores = {text}")
    if is_key:
        lines.add(f"scores = tl.where({of_keys}, scores, {LOWEST})")
    lines.add("greatest = tl.reduce(scores, 0, nan_max)")
    lines.add(f"base = tl.where(greatest == {LOWEST}, 0.0, greatest)")  # -inf - -inf would be nan
    lines.add("weights = tl.exp(scores - base[None, :])")
    lines.add("total = tl.sum(weights, 0)")
    lines.add("sums = tl.dot(tl.trans(values), weights.to(values.dtype))")
    of_result = _all((_along(is_column, 0), of_heads))
    between, result = attention.between, attention.result
    if between is not None:
        for buffer, value in ((between.greatest, "greatest"), (between.totals, "total")):
            place = _place(0, buffer.strides, ("batch", "head", "", "part"))
            lines.add(f"tl.store({pointers[buffer.name]} + {place}, {value}{f', mask={is_head}' if is_head else ''})")
        place = _place(0, between.sums.strides, ("batch", "head[None, :]", "", "part", "column[:, None]"))
        guard = f", mask={of_result}" if of_result else ""
        lines.add(f"tl.store({pointers[between.sums.name]} + {place}, sums{guard})")
        if between.arrived is not None and result is not None:
            counted = f"{pointers[between.arrived.name]} + (batch * {shared} + shared)"
            _put_together(tile, between, result, lines, pointers, counted, is_column)
    elif result is not None:
        _finish(result, lines, pointers, ("greatest", "total", "sums"), ("head[None, :]", "column[:, None]"), of_result)
    return "\n".join(lines.texts)


def _do_first(tile: AttentionTile, lines: Lines, function: str, arguments: Sequence[Sequence[str]]) -> None:
    """The lines for what is done before, of which the rest reads what the program's own threads have stored."""
    batch, shared = tile.attention.key.sizes[:2]
    for at, (part, own) in enumerate(zip(tile.first, arguments)):
        times, given = part.programs // (batch * shared), ", ".join(own)
        for turn in range(times):
            lines.add(f"{function}_{at}((batch * {shared} + shared) * {times} + {turn}, {given})")
    if tile.first:
        lines.add("tl.debug_barrier()")


def _put_together(
    tile: AttentionTile, between: AttentionParts, result: Layout, lines: Lines, pointers: Mapping[str, str],
    counted: str, is_column: str
) -> None:
    """The lines that put parts together. What a program has stored the others see once it has counted itself: all its
    threads are done then, and counting releases what they stored to the program that counts last (PTX ISA, memory
    consistency model). That one leaves the count at 0."""
    group, parts = tile.attention.group, tile.attention.parts
    lines.add("tl.debug_barrier()")
    lines.add(f'earlier = tl.atomic_add({counted}, 1, sem="acq_rel")')
    with lines.block(f"if earlier == {parts - 1}:"):
        lines.add("tl.debug_barrier()")  # what all threads load from here on was stored before
        lines.add(f"tl.store({counted}, 0)")
        heads, parts_filled = power_above(group), power_above(parts)
        lines.add(f"each = tl.arange(0, {heads})")
        lines.add(f"parts = tl.arange(0, {parts_filled})")
        is_head = "" if heads == group else f"each < {group}"
        is_part = "" if parts_filled == parts else f"parts < {parts}"

        def said(buffer: Buffer, indices: Sequence[str], guard: str, other: str = "0") -> str:
            place = _place(0, buffer.strides, ("batch", *indices))
            masked = f", mask={guard}, other={other}" if guard else ""
            return f'tl.load({pointers[buffer.name]} + {place}{masked}, cache_modifier=".cg")'

        lines.add(f"heads = shared * {group} + each")
        place: tuple[str, ...] = ("heads[:, None]", "", "parts[None, :]")
        guard = _all((_along(is_head, 0), _along(is_part, 1)))
        lines.add(f"tops = {said(between.greatest, place, guard, LOWEST)}")
        lines.add("top = tl.reduce(tops, 1, nan_max)")
        lines.add(f"shares = tl.exp(tops - tl.where(top == {LOWEST}, 0.0, top)[:, None])")
        lines.add(f"all_total = tl.sum(shares * {said(between.totals, place, guard)}, 1)")
        place = "heads[:, None, None]", "", "parts[None, :, None]", "column[None, None, :]"
        conditions = (is_head, "[:, None, None]"), (is_part, "[None, :, None]"), (is_column, "[None, None, :]")
        guard = _all(f"({condition}){at}" for condition, at in conditions if condition)
        lines.add(f"all_sums = tl.sum(shares[:, :, None] * {said(between.sums, place, guard)}, 1)")
        guard = _all((_along(is_head, 0), _along(is_column, 1)))
        _finish(result, lines, pointers, ("top", "all_total", "all_sums"), ("heads[:, None]", "column[None, :]"), guard)


def _finish(
    result: Layout, lines: Lines, pointers: Mapping[str, str], found: tuple[str, str, str], dims: tuple[str, str],
    guard: str
) -> None:
    """Store the result, 0 where a query looks at no key. `found` are the greatest score, the sum of weights, and the
    weighted sums of values; `dims` the heads and elements that these are for."""
    (greatest, total, sums), (heads, columns) = found, dims
    of_head = heads[heads.index("[") :]
    lines.add(f"result = {sums} / {total}{of_head}")
    lines.add(f"result = tl.where(({greatest} == {LOWEST}){of_head}, 0.0, result)")
    place = _place(result.offset, result.strides, ("batch", heads, "", columns))
    stored = f"result.to(tl.{TRITON_DTYPES[result.buffer.dtype]})"
    lines.add(f"tl.store({pointers[result.buffer.name]} + {place}, {stored}{f', mask={guard}' if guard else ''})")


def _along(condition: str, dim: int) -> str:
    """A condition of one dimension of two."""
    return condition and f"({condition}){'[:, None]' if dim == 0 else '[None, :]'}"


def _all(conditions: Iterable[str]) -> str:
    return " & ".join(each for each in conditions if each)


def _place(offset: int, strides: Sequence[int], indices: Sequence[str]) -> str:
    """The place of an element; an empty index is 0."""
    pairs = zip(indices, strides, strict=True)
    # an index that is a block is one dimension of the place, whether it moves it or not
    parts = [f"{index} * {step}" for index, step in pairs if index and (step or "[" in index)]
    return f"({' + '.join([*parts, *([str(offset)] if offset else [])]) or '0'})"
