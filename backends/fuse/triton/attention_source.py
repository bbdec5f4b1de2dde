"""Attention of one query as Triton source: each program does a part of the keys.

After T. Dao, D. Haziza, F. Massa and G. Sizov, "Flash-Decoding for long-context inference" (2023): parts of the keys
are looked at side by side, each with a softmax of its own, and are put together by a kernel behind. Scores and sums are
products on tensor cores, keys along their longer side: of what is multiplied with a program has a few heads only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from framejit.backends.fuse.loop_ir.nodes import Layout
from framejit.backends.fuse.triton.expressions import number
from framejit.backends.fuse.triton.lines import Lines
from framejit.backends.fuse.triton.tiles.attention_blocks import AttentionTile


def attention_body(tile: AttentionTile, pointers: Mapping[str, str], waits: bool) -> str:
    """The body of a kernel's function. `pointers` gives the name of the argument for each buffer; `waits`: see
    `TritonSource.waits`."""
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
    if waits:
        lines.add("cuda.gdc_wait()")
    is_key = "" if keys % attention.keys_a_part == 0 else f"key < {keys}"
    is_inner = "" if inner == tile.inner else f"inner < {inner}"
    is_column = "" if columns == tile.columns else f"column < {columns}"
    is_head = "" if group == tile.heads else f"member < {group}"

    def load(layout: Layout, indices: Sequence[str], *masks: str) -> str:
        guard = _all(masks)
        place = _place(layout.offset, layout.strides, indices)
        return f"tl.load({pointers[layout.buffer.name]} + {place}{f', mask={guard}, other=0' if guard else ''})"

    of_keys, of_heads = _along(is_key, 0), _along(is_head, 1)
    queries = load(
        attention.query, ("batch", "head[None, :]", "", "inner[:, None]"), _along(is_inner, 0), of_heads
    )
    keys_in = load(
        attention.key, ("batch", "shared", "key[:, None]", "inner[None, :]"), of_keys, _along(is_inner, 1)
    )
    values = load(
        attention.value, ("batch", "shared", "key[:, None]", "column[None, :]"), of_keys, _along(is_column, 1)
    )
    for name, text in (("queries", queries), ("keys", keys_in), ("values", values)):
        lines.add(f"{name} = {text}")
    lines.add(f"scores = tl.dot(keys, queries) * {number(attention.scale)}")
    if attention.mask is not None:
        differs = attention.mask.strides[1] != 0  # from head to head
        head = "head[None, :]" if differs else ""
        mask = load(attention.mask, ("batch", head, "", "key[:, None]"), of_keys, of_heads if differs else "")
        is_bool = attention.mask.buffer.dtype == torch.bool
        text = f'tl.where({mask} != 0, scores, float("-inf"))' if is_bool else f"scores + ({mask}).to(tl.float32)"
        lines.add(f"scores = {text}")
    if is_key:
        lines.add(f'scores = tl.where({of_keys}, scores, float("-inf"))')
    lines.add("greatest = tl.max(scores, 0)")
    lines.add('base = tl.where(greatest == float("-inf"), 0.0, greatest)')  # -inf - -inf would be nan
    lines.add("weights = tl.exp(scores - base[None, :])")
    lines.add("total = tl.sum(weights, 0)")
    lines.add("sums = tl.dot(tl.trans(values), weights.to(values.dtype))")
    for buffer, value in ((attention.greatest, "greatest"), (attention.totals, "total")):
        place = _place(0, buffer.strides, ("batch", "head", "", "part"))
        lines.add(f"tl.store({pointers[buffer.name]} + {place}, {value}{f', mask={is_head}' if is_head else ''})")
    place = _place(0, attention.sums.strides, ("batch", "head[None, :]", "", "part", "column[:, None]"))
    guard = _all((_along(is_column, 0), of_heads))
    lines.add(f"tl.store({pointers[attention.sums.name]} + {place}, sums{f', mask={guard}' if guard else ''})")
    return "\n".join(lines.texts)


def _along(condition: str, dim: int) -> str:
    """A condition of one dimension of two."""
    return condition and f"({condition}){'[:, None]' if dim == 0 else '[None, :]'}"


def _all(conditions: Sequence[str]) -> str:
    return " & ".join(each for each in conditions if each)


def _place(offset: int, strides: Sequence[int], indices: Sequence[str]) -> str:
    """The place of an element; an empty index is 0."""
    pairs = zip(indices, strides, strict=True)
    # an index that is a block is one dimension of the place, whether it moves it or not
    parts = [f"{index} * {step}" for index, step in pairs if index and (step or "[" in index)]
    return f"({' + '.join([*parts, *([str(offset)] if offset else [])]) or '0'})"
