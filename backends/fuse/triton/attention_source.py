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


class AttentionBody:
    """Writes the body of a kernel's function.

    In it `key` numbers keys, `inner` and `column` elements of a key and of a value, `head` heads of the query, `shared`
    the cache's head that these share, and `batch` sequences. What is in a block lies keys by heads, or elements by
    heads.
    """

    def __init__(self, kernel: AttentionKernel, tile: AttentionTile, pointers: Mapping[str, str]) -> None:
        """`pointers` gives the name of the argument for each buffer."""
        self.kernel, self.tile, self.pointers = kernel, tile, pointers
        self.attention = attention = tile.attention
        self.lines = Lines()
        _, self.shared, keys, inner = attention.key.sizes
        self.is_key = "" if keys % attention.keys_a_part == 0 else f"key < {keys}"
        self.is_inner = "" if inner == tile.inner else f"inner < {inner}"
        columns = attention.value.sizes[3]
        self.is_column = "" if columns == tile.columns else f"column < {columns}"
        self.is_head = "" if attention.group == tile.heads else f"member < {attention.group}"

    def text(self, spares: bool, function: str, arguments: Sequence[Sequence[str]]) -> str:
        """The lines. `spares`: see `spares_multiprocessors`. What is to be done first do functions that are called
        `function` and their number, with these arguments behind the number of a program."""
        self._indices()
        waits, add = self.kernel.steady is not None, self.lines.add
        if waits and spares:
            add("cuda.gdc_launch_dependents()")
        early = [name for name, layout, *_ in self._cached() if waits and self._may_be_early(layout)]
        for name, layout, indices, masks in self._cached():
            if name in early:
                add(f"{name} = {self._load(layout, indices, *masks)}")
        if waits:
            add("cuda.gdc_wait()")
        self._do_first(function, arguments)
        indices = "batch", "head[None, :]", "", "inner[:, None]"
        masks = _along(self.is_inner, 0), _along(self.is_head, 1)
        add(f"queries = {self._load(self.attention.query, indices, *masks)}")
        for name, layout, indices, masks in self._cached():
            if name not in early:
                add(f"{name} = {self._load(layout, indices, *masks)}")
            elif layout.buffer.name in self.kernel.rows:
                self._read_row(name, layout)
        self._weigh()
        self._give()
        return "\n".join(self.lines.texts)

    def _indices(self) -> None:
        attention, tile, add = self.attention, self.tile, self.lines.add
        add(f"program = tl.program_id(0){'.to(tl.int64)' if tile.wide else ''}")
        add(f"part = program % {attention.parts}")
        add(f"shared = program // {attention.parts} % {self.shared}")
        add(f"batch = program // {attention.parts * self.shared}")
        add(f"key = part * {attention.keys_a_part} + tl.arange(0, {attention.keys_a_part})")
        add(f"inner = tl.arange(0, {tile.inner})")
        add(f"column = tl.arange(0, {tile.columns})")
        add(f"member = tl.arange(0, {tile.heads})")
        add(f"head = shared * {attention.group} + member")

    def _cached(self) -> list[tuple[str, Layout, tuple[str, ...], tuple[str, ...]]]:
        """Of keys and of values the name, where they lie, their indices, and the masks along these."""
        is_key = _along(self.is_key, 0)
        place = "batch", "shared", "key[:, None]"
        return [
            ("keys", self.attention.key, (*place, "inner[None, :]"), (is_key, _along(self.is_inner, 1))),
            ("values", self.attention.value, (*place, "column[None, :]"), (is_key, _along(self.is_column, 1))),
        ]

    def _may_be_early(self, layout: Layout) -> bool:
        """Whether all of it but for one row, or all, may be loaded before the launch before has ended."""
        return layout.buffer.name in self.kernel.rows or layout.buffer.name in (self.kernel.steady or ())

    def _load(self, layout: Layout, indices: Sequence[str], *masks: str) -> str:
        guard = _all(masks)
        place = _place(layout.offset, layout.strides, indices)
        return f"tl.load({self.pointers[layout.buffer.name]} + {place}{f', mask={guard}, other=0' if guard else ''})"

    def _do_first(self, function: str, arguments: Sequence[Sequence[str]]) -> None:
        """The lines for what is done before, of which the rest reads what the program's own threads have stored."""
        batch = self.attention.key.sizes[0]
        for at, (part, own) in enumerate(zip(self.tile.first, arguments)):
            times, given = part.programs // (batch * self.shared), ", ".join(own)
            for turn in range(times):
                self.lines.add(f"{function}_{at}((batch * {self.shared} + shared) * {times} + {turn}, {given})")
        if self.tile.first:
            self.lines.add("tl.debug_barrier()")

    def _read_row(self, name: str, layout: Layout) -> None:
        """Put the row that was written meanwhile into what was loaded early."""
        row, add = self.kernel.rows[layout.buffer.name], self.lines.add
        narrow = "" if self.tile.wide else ".to(tl.int32)"
        add(f"row = tl.load({self.pointers[row.attr[0]]} + {row.attr[1].const}){narrow}")
        along, guard = ("inner", self.is_inner) if name == "keys" else ("column", self.is_column)
        add(f"{name}_row = {self._load(layout, ('batch', 'shared', 'row', along), guard)}")
        add(f"{name} = tl.where((key == row)[:, None], {name}_row[None, :], {name})")

    def _weigh(self) -> None:
        """The lines for the greatest score of a part, the sum of weights and the weighted sums of values."""
        attention, add = self.attention, self.lines.add
        add(f"scores = tl.dot(keys, queries) * {number(attention.scale)}")
        if attention.mask is not None:
            differs = attention.mask.strides[1] != 0  # from head to head
            indices = "batch", "head[None, :]" if differs else "", "", "key[:, None]"
            mask = self._load(
                attention.mask, indices, _along(self.is_key, 0), _along(self.is_head, 1) if differs else ""
            )
            is_bool = attention.mask.buffer.dtype == torch.bool
            masked = f"tl.where({mask} != 0, scores, {LOWEST})" if is_bool else f"scores + ({mask}).to(tl.float32)"
            add(f"scores = {masked}")
        if self.is_key:
            add(f"scores = tl.where({_along(self.is_key, 0)}, scores, {LOWEST})")
        add("greatest = tl.reduce(scores, 0, nan_max)")
        add(f"base = tl.where(greatest == {LOWEST}, 0.0, greatest)")  # -inf - -inf would be nan
        add("weights = tl.exp(scores - base[None, :])")
        add("total = tl.sum(weights, 0)")
        add("sums = tl.dot(tl.trans(values), weights.to(values.dtype))")

    def _give(self) -> None:
        """The lines that store what a part has to say, or the result."""
        attention = self.attention
        guard = _all((_along(self.is_column, 0), _along(self.is_head, 1)))
        between, result = attention.between, attention.result
        if between is not None:
            for buffer, value in ((between.greatest, "greatest"), (between.totals, "total")):
                self._store(buffer, 0, buffer.strides, ("batch", "head", "", "part"), value, self.is_head)
            indices = "batch", "head[None, :]", "", "part", "column[:, None]"
            self._store(between.sums, 0, between.sums.strides, indices, "sums", guard)
            if between.arrived is not None and result is not None:
                self._put_together(between, between.arrived, result)
        elif result is not None:
            self._finish(result, ("greatest", "total", "sums"), ("head[None, :]", "column[:, None]"), guard)

    def _store(
        self, buffer: Buffer, offset: int, strides: Sequence[int], indices: Sequence[str], value: str, guard: str
    ) -> None:
        place = _place(offset, strides, indices)
        masked = f", mask={guard}" if guard else ""
        self.lines.add(f"tl.store({self.pointers[buffer.name]} + {place}, {value}{masked})")

    def _put_together(self, between: AttentionParts, arrived: Buffer, result: Layout) -> None:
        """The lines that put parts together. What a program has stored the others see once it has counted itself: all
        its threads are done then, and counting releases what they stored to the program that counts last (PTX ISA,
        memory consistency model). That one leaves the count at 0."""
        add = self.lines.add
        group, parts = self.attention.group, self.attention.parts
        counted = f"{self.pointers[arrived.name]} + (batch * {self.shared} + shared)"
        add("tl.debug_barrier()")
        add(f'earlier = tl.atomic_add({counted}, 1, sem="acq_rel")')
        with self.lines.block(f"if earlier == {parts - 1}:"):
            add("tl.debug_barrier()")  # what all threads load from here on was stored before
            add(f"tl.store({counted}, 0)")
            heads, parts_filled = power_above(group), power_above(parts)
            is_head = "" if heads == group else f"each < {group}"
            is_part = "" if parts_filled == parts else f"parts < {parts}"
            add(f"each = tl.arange(0, {heads})")
            add(f"heads = shared * {group} + each")
            add(f"parts = tl.arange(0, {parts_filled})")
            indices: tuple[str, ...] = ("batch", "heads[:, None]", "", "parts[None, :]")
            guard = _all((_along(is_head, 0), _along(is_part, 1)))
            add(f"tops = {self._said(between.greatest, indices, guard, LOWEST)}")
            add("top = tl.reduce(tops, 1, nan_max)")
            add(f"shares = tl.exp(tops - tl.where(top == {LOWEST}, 0.0, top)[:, None])")
            add(f"all_total = tl.sum(shares * {self._said(between.totals, indices, guard, '0')}, 1)")
            indices = "batch", "heads[:, None, None]", "", "parts[None, :, None]", "column[None, None, :]"
            conditions = (is_head, "[:, None, None]"), (is_part, "[None, :, None]"), (self.is_column, "[None, None, :]")
            guard = _all(f"({condition}){at}" for condition, at in conditions if condition)
            add(f"all_sums = tl.sum(shares[:, :, None] * {self._said(between.sums, indices, guard, '0')}, 1)")
            guard = _all((_along(is_head, 0), _along(self.is_column, 1)))
            self._finish(result, ("top", "all_total", "all_sums"), ("heads[:, None]", "column[None, :]"), guard)

    def _said(self, buffer: Buffer, indices: Sequence[str], guard: str, other: str) -> str:
        """The load of what other programs have stored, which a multiprocessor's own cache need not know of."""
        masked = f", mask={guard}, other={other}" if guard else ""
        place = f"{self.pointers[buffer.name]} + {_place(0, buffer.strides, indices)}"
        return f'tl.load({place}{masked}, cache_modifier=".cg")'

    def _finish(self, result: Layout, found: tuple[str, str, str], dims: tuple[str, str], guard: str) -> None:
        """Store the result, 0 where a query looks at no key. `found` are the greatest score, the sum of weights, and
        the weighted sums of values; `dims` the heads and elements that these are for."""
        (greatest, total, sums), (heads, columns) = found, dims
        of_head = heads[heads.index("[") :]
        self.lines.add(f"result = {sums} / {total}{of_head}")
        self.lines.add(f"result = tl.where(({greatest} == {LOWEST}){of_head}, 0.0, result)")
        value = f"result.to(tl.{TRITON_DTYPES[result.buffer.dtype]})"
        self._store(result.buffer, result.offset, result.strides, ("batch", heads, "", columns), value, guard)


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
