"""Convolutions of images in channels-last memory, as LLVM's text.

After M. Dukhan, "The indirect convolution algorithm" (2019): of each tile (`convolution_tile.py`) the sums stay in
registers while the pixels under the weight are walked through; where a tile lies within a row and the weight within
the image, at steps that are known, elsewhere by an address for each pixel, which for a place beyond the image's edge is
that of zeros. A tile that would reach beyond the last pixel begins earlier: it does some pixels again.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final

from framejit.backends.fuse.llvm.assembler import Assembler, Block, Module, Value, floating, integer
from framejit.backends.fuse.llvm.counted_loop import counted_loop
from framejit.backends.fuse.llvm.kernel_function import begin_function, end_function, module_text
from framejit.backends.fuse.llvm.plan import GRAIN
from framejit.backends.fuse.llvm.products.convolution_tile import tile_of
from framejit.backends.fuse.llvm.products.tile_epilogue import TileEpilogue, after, vectors
from framejit.backends.fuse.loop_ir.nodes import Convolution, TileKernel

NEAR: Final = 96 << 10
"""Bytes of an image that stay in the second-level cache beside weights while all output channels of some pixels are
done."""
FEW_TURNS: Final = 16
"""Turns of the parallel loop that deal work out evenly to a few threads."""
UNROLL: Final = 4
LONG: Final = 64
"""Products that are added up one after the other; longer sums are sums of such, so that their rounding is at most twice
that of a library that adds up in the lanes of vectors (257 products with AVX-512, of MKL's: 1.6; with 256 of them one
after the other 2.8)."""

Sums = list[Value]
"""Those of a tile, pixel by pixel."""
Addresses = Callable[[Assembler, Value], tuple[list[Value], int]]
"""Given a segment of the weight, the addresses under it of a tile's pixels. Or only of the first, and how many elements
lie between neighbours."""


class ConvolutionWriter:
    """Writes the function of a convolution's kernel."""

    def __init__(self, kernel: TileKernel) -> None:
        assert isinstance(kernel.tile, Convolution)
        self.kernel, self.what = kernel, kernel.tile
        convolution = kernel.tile
        self.images, self.channels, self.height, self.width = convolution.image_sizes
        self.blocks, self.rows, self.columns, self.depth, self.block = convolution.weight.sizes
        _, self.outputs, self.high, self.wide = convolution.result_sizes
        self.pixels = self.high * self.wide
        self.chunk, self.chunks = self._chunks()
        self.tile = tile_of(self.block, min(self.pixels, self.chunk))
        self.chunk = -(-self.chunk // self.tile.pixels) * self.tile.pixels
        self.chunks = -(-self.pixels // self.chunk)
        self.module = Module()
        self.text: list[Block] = []
        self.pointers = {name: Value(f"%p{position}", "ptr") for position, name in enumerate(kernel.buffers)}
        self.epilogue = TileEpilogue(kernel, self.pointers, self.tile.lanes)

    @property
    def total(self) -> int:
        """Turns of the parallel loop: blocks of channels for chunks of an image's pixels."""
        return self.images * self.chunks * self.blocks

    @property
    def grain(self) -> int:
        """The fewest turns that are worth a thread."""
        work = self.chunk * self.what.products * self.tile.vectors
        return max(1, -(-GRAIN // work))

    def _chunks(self) -> tuple[int, int]:
        """How many pixels of an image a turn does, about, and how many such chunks an image has."""
        stride = math.prod(self.what.stride)
        near = max(1, NEAR // (4 * self.channels * stride))
        parts = max(-(-self.pixels // near), -(-FEW_TURNS // (self.images * self.blocks)))
        return -(-self.pixels // parts), parts

    def write(self, name: str) -> str:
        """The module's text."""
        asm = begin_function(self.text, self.module, (register.text for register in self.pointers.values()))
        if self.epilogue.is_long:
            asm.do(f"%sums = alloca [{self.tile.pixels * self.block} x float], align 64")
        counted_loop(self.text, asm, Value("%begin", "i64"), Value("%end", "i64"), 1, [], self._turn)
        end_function(self.text, asm)
        size = self.block if self.what.is_depthwise else self.channels
        zeros = f"@zeros = private unnamed_addr constant [{size} x float] zeroinitializer, align 64"
        return module_text(name, self.module, self.text, (zeros,), wide=True)

    def _turn(self, asm: Assembler, turn: Value, _: Sums) -> Sums:
        block, image, chunk = self._place(asm, turn)
        what, tile = self.what, self.tile
        channel = asm.binary("mul", block, integer(self.block))
        size = self.height * self.width * self.channels
        source = after(asm, self.pointers[what.image.name], asm.binary("mul", image, integer(size)))
        if what.is_depthwise:
            source = after(asm, source, channel)
        weight = after(
            asm, self.pointers[what.weight.name], asm.binary("mul", block, integer(what.products * self.block))
        )
        base = asm.binary("mul", image, integer(self.pixels * self.outputs))
        base = asm.binary("add", base, channel)
        bias = None
        if what.bias is not None:
            bias = vectors(asm, after(asm, self.pointers[what.bias.name], channel), tile.vectors, tile.lanes)
        start = asm.binary("mul", chunk, integer(self.chunk))
        stop = asm.intrinsic("smin", asm.binary("add", start, integer(self.chunk)), integer(self.pixels))
        body = partial(self._tile, source, weight, base, bias)
        counted_loop(self.text, asm, start, stop, tile.pixels, [], body)
        return []

    def _place(self, asm: Assembler, turn: Value) -> tuple[Value, Value, Value]:
        """The block of channels, the image and the chunk of its pixels that a turn is for. Which of images and weights
        is larger, and may not stay in the cache, is gone through once."""
        chunks = self.images * self.chunks
        if math.prod(self.what.weight.sizes) > math.prod(self.what.image_sizes):
            block, rest = _divided(asm, turn, chunks)
        else:
            rest, block = _divided(asm, turn, self.blocks)
        return block, *_divided(asm, rest, self.chunks)

    def _tile(
        self, source: Value, weight: Value, base: Value, bias: Sums | None, asm: Assembler, start: Value, _: Sums
    ) -> Sums:
        """What is done for the tile of pixels that begins with number `start`."""
        tile = self.tile
        pixel = asm.intrinsic("smin", start, integer(self.pixels - tile.pixels))
        row, column = self._corner(asm, pixel)
        inside = self._is_inside(asm, pixel, row, column)
        joined = Block(self.module.fresh("joined"))
        blocks = [Block(self.module.fresh(label)) for label in ("inside", "edge")]
        ways: list[Callable[[Assembler], Sums]] = [
            lambda on: self._inside(on, source, weight, row, column),
            lambda on: self._at_edge(on, source, weight, pixel),
        ]
        if inside is None:
            blocks.pop()
            asm.do(f"br label %{blocks[0].label}")
        else:
            asm.do(f"br {inside}, label %{blocks[0].label}, label %{blocks[1].label}")
        for block, sums_of in zip(blocks, ways):
            self.text.append(block)
            on = Assembler(self.module, block)
            sums = sums_of(on)
            if bias is not None:  # at last: the sums before are smaller, and are rounded less
                sums = [on.binary("fadd", a, b) for a, b in zip(sums, bias * tile.pixels)]
            place = on.binary("add", base, on.binary("mul", pixel, integer(self.outputs)))
            self._store(on, place, sums)
            on.do(f"br label %{joined.label}")
        self.text.append(joined)
        asm.block = joined
        return []

    def _corner(self, asm: Assembler, pixel: Value) -> tuple[Value, Value]:
        """Row and column of the image that the weight begins at for a pixel; maybe before the image's edge."""
        places = _divided(asm, pixel, self.wide)
        scaled = (asm.binary("mul", place, integer(step)) for place, step in zip(places, self.what.stride))
        row, column = (asm.binary("sub", place, integer(edge)) for place, edge in zip(scaled, self.what.padding))
        return row, column

    def _is_inside(self, asm: Assembler, pixel: Value, row: Value, column: Value) -> Value | None:
        """Whether a tile lies in one row and the weight within the image; None where each does."""
        what, pixels = self.what, self.tile.pixels
        if (self.rows, self.columns, *what.stride, *what.padding) == (1, 1, 1, 1, 0, 0):
            return None
        zero, (down, across) = integer(0), what.dilation
        last = self.width - 1 - across * (self.columns - 1) - (pixels - 1) * what.stride[1]
        conditions = [
            asm.compare("sge", row, zero), asm.compare("sge", column, zero),
            asm.compare("sle", row, integer(self.height - 1 - down * (self.rows - 1))),
            asm.compare("sle", column, integer(last)),
            asm.compare("sle", asm.binary("urem", pixel, integer(self.wide)), integer(self.wide - pixels)),
        ]
        found = conditions[0]
        for condition in conditions[1:]:
            found = asm.binary("and", found, condition)
        return found

    def _inside(self, asm: Assembler, source: Value, weight: Value, row: Value, column: Value) -> Sums:
        what = self.what
        down, across = what.dilation
        start = asm.binary("add", asm.binary("mul", row, integer(self.width)), column)
        corner = after(asm, source, asm.binary("mul", start, integer(self.channels)))
        is_row = what.is_depthwise or across == 1
        """Whether what lies under a row of the weight is one segment: steps within it are all the same."""

        def addresses(on: Assembler, segment: Value) -> tuple[list[Value], int]:
            if is_row:
                place = on.binary("mul", segment, integer(down * self.width * self.channels))
            else:
                at_row, at_column = _divided(on, segment, self.columns)
                place = on.binary("mul", at_row, integer(down * self.width * self.channels))
                place = on.binary("add", place, on.binary("mul", at_column, integer(across * self.channels)))
            return [after(on, corner, place)], what.stride[1] * self.channels

        segments = self.rows if is_row else self.rows * self.columns
        return self._sums(asm, addresses, segments, what.products // segments, weight)

    def _at_edge(self, asm: Assembler, source: Value, weight: Value, pixel: Value) -> Sums:
        corners = [
            self._corner(asm, asm.binary("add", pixel, integer(number))) for number in range(self.tile.pixels)
        ]

        def addresses(on: Assembler, segment: Value) -> tuple[list[Value], int]:
            places = _divided(on, segment, self.columns)
            steps = [on.binary("mul", place, integer(step)) for place, step in zip(places, self.what.dilation)]
            found = []
            for corner in corners:
                row, column = (on.binary("add", start, step) for start, step in zip(corner, steps))
                inside = on.binary(
                    "and", on.compare("ult", row, integer(self.height)), on.compare("ult", column, integer(self.width))
                )
                place = on.binary("add", on.binary("mul", row, integer(self.width)), column)
                address = after(on, source, on.binary("mul", place, integer(self.channels)))
                found.append(on.select(inside, address, Value("@zeros", "ptr")))
            return found, 0

        return self._sums(asm, addresses, self.rows * self.columns, self.depth, weight)

    def _sums(self, asm: Assembler, addresses: Addresses, segments: int, length: int, weight: Value) -> Sums:
        """The sums over all segments of the weight, each of so many products at places that follow on one another."""
        is_long = self.what.products > LONG
        parts, size = _parts(length, segments == 1) if is_long else (1, length)
        zeros = [floating(0.0, "float", self.tile.lanes)] * (self.tile.pixels * self.tile.vectors)

        def segment(on: Assembler, number: Value, sums: Sums) -> Sums:
            where, part = _divided(on, number, parts)
            found, step = addresses(on, where)
            skipped = on.binary("mul", part, integer(size))
            found = [after(on, address, skipped) for address in found] if parts > 1 else found
            at = on.binary("mul", number, integer(size * self.block))
            more = self._segment(on, found, step, size, after(on, weight, at), zeros if is_long else sums)
            return [on.binary("fadd", a, b) for a, b in zip(sums, more)] if is_long else more

        sums = counted_loop(self.text, asm, integer(0), integer(segments * parts), 1, zeros, segment)
        done = parts * size
        if done == length:
            return sums
        found, step = addresses(asm, integer(0))
        found = [after(asm, address, integer(done)) for address in found]
        more = self._segment(asm, found, step, length - done, after(asm, weight, integer(done * self.block)), zeros)
        return [asm.binary("fadd", a, b) for a, b in zip(sums, more)]

    def _segment(
        self, asm: Assembler, addresses: list[Value], step: int, length: int, weight: Value, sums: Sums
    ) -> Sums:
        if self.what.is_depthwise:
            for number in range(length):
                sums = self._products(asm, addresses, step, number, weight, sums)
            return sums
        unroll = max(count for count in range(1, UNROLL + 1) if length % count == 0)

        def turn(on: Assembler, number: Value, carried: Sums) -> Sums:
            found = [after(on, address, number) for address in addresses]
            weights = after(on, weight, on.binary("mul", number, integer(self.block)))
            for each in range(unroll):
                carried = self._products(on, found, step, each, weights, carried)
            return carried

        return counted_loop(self.text, asm, integer(0), integer(length), unroll, sums, turn)

    def _products(
        self, asm: Assembler, addresses: list[Value], step: int, number: int, weight: Value, sums: Sums
    ) -> Sums:
        """The sums with the products of one element of the weight, of each channel."""
        tile = self.tile
        weights = vectors(asm, after(asm, weight, integer(number * self.block)), tile.vectors, tile.lanes)
        across = self.what.dilation[1] * self.channels if self.what.is_depthwise else 1
        made: Sums = []
        for pixel in range(self.tile.pixels):
            place = after(asm, addresses[pixel if len(addresses) > 1 else 0], integer(number * across + pixel * step))
            if self.what.is_depthwise:
                elements = vectors(asm, place, tile.vectors, tile.lanes)
            else:
                element = asm.put(f"load float, {place}, align 4", "float")
                elements = [asm.splat(element, self.tile.lanes)] * self.tile.vectors
            before = sums[pixel * self.tile.vectors :]
            made += [asm.intrinsic("fma", a, b, c) for a, b, c in zip(elements, weights, before)]
        return made

    def _store(self, asm: Assembler, place: Value, sums: Sums) -> None:
        """Store what is made of a tile's sums; where that is long, by way of memory that is the tile's own, so that it
        is written once for all pixels."""
        vectors_each, lanes, where = self.tile.vectors, self.tile.lanes, Value("%sums", "ptr")
        if not self.epilogue.is_long:
            for number in range(self.tile.pixels):
                own = sums[number * vectors_each : (number + 1) * vectors_each]
                self.epilogue.store(asm, asm.binary("add", place, integer(number * self.outputs)), own)
            return
        for number, value in enumerate(sums):
            asm.do(f"store {value}, {after(asm, where, integer(number * lanes))}, align 4")

        def pixel(on: Assembler, number: Value, _: Sums) -> Sums:
            own = vectors(on, after(on, where, on.binary("mul", number, integer(self.block))), vectors_each, lanes)
            self.epilogue.store(on, on.binary("add", place, on.binary("mul", number, integer(self.outputs))), own)
            return []

        counted_loop(self.text, asm, integer(0), integer(self.tile.pixels), 1, [], pixel)


def _divided(asm: Assembler, number: Value, divisor: int) -> tuple[Value, Value]:
    """Quotient and remainder."""
    if divisor == 1:
        return number, integer(0)
    return asm.binary("udiv", number, integer(divisor)), asm.binary("urem", number, integer(divisor))


def _parts(length: int, may_leave_rest: bool) -> tuple[int, int]:
    """Into how many equal parts of which useful length so many products are divided, that none be too long; maybe with
    a rest."""
    parts = range(1, length // UNROLL + 1)
    equal = next((count for count in parts if length % count == 0 and length // count <= LONG), None)
    if equal is not None and (not may_leave_rest or length // equal >= LONG // 4):
        return equal, length // equal
    return (length // LONG, LONG) if may_leave_rest else (1, length)
