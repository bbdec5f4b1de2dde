"""The body of a kernel: expressions as lines of Triton, reductions over blocks or in loops over blocks.

A line is written where the code stands when its value is first needed. Inside a loop over the reduction axis only what
depends on that axis is computed; the rest is made ready before. A value under a mask is another value than the same one
without, if anything is loaded for it; what is wanted without a mask anyway is taken from there.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import torch

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Indirect
from framejit.backends.fuse.loop_ir.nodes import Store
from framejit.backends.fuse.sizes.symbolic_size import surely_equal
from framejit.backends.fuse.triton.analysis import Analysis, is_softmax_sum
from framejit.backends.fuse.triton.block_indices import Indices
from framejit.backends.fuse.triton.block_scans import Scans
from framejit.backends.fuse.triton.dots import Dots
from framejit.backends.fuse.triton.expressions import (
    IDENTITIES,
    LITERALS,
    TRITON_DTYPES,
    combination,
    conversion,
    number,
    operation,
)
from framejit.backends.fuse.triton.lines import Lines
from framejit.backends.fuse.triton.random_words import random_words
from framejit.backends.fuse.triton.tiles.tile import Axis, Tile

Mask = tuple[Expr, ...]
Key = tuple[Expr, Mask]


class Body:
    """Writes the body of a kernel. `pointers` gives the name of the argument for each buffer, `draw` the text of the
    number of a draw of random numbers; `spares`: see `spares_multiprocessors`."""

    def __init__(
        self, tile: Tile, pointers: dict[str, str], lines: Lines, draw: Callable[[int], str], spares: bool = False
    ) -> None:
        self.tile, self.pointers, self.lines = tile, pointers, lines
        self.draw = draw
        self.kernel = tile.kernel
        self.analysis = Analysis(tile.kernel, tile.online)
        self.indices = Indices(tile, lines, self._checked)
        self.checked: set[tuple[str, int]] = set()
        self.outside_loop: dict[Key, str] = {}
        self.inside_loop: dict[Key, str] = {}
        self.scans = Scans(self)
        self.dots = Dots(self)
        self.in_loop = False
        self.last = True  # no later pass over the reduction axes loads again what this one does
        self.within = False  # nothing of the block reaches over the end
        memories = {self._memory(name) for name in self.kernel.reads}
        self.overwritten = {store.buffer for store in self.kernel.stores if self._memory(store.buffer) in memories}
        self.waits = self.kernel.steady is not None
        self.overlaps = self.waits  # the kernel launched behind it may begin, which has not been said as yet
        self.spares = spares

    def write(self, program: str = "tl.program_id(0)") -> None:
        """Write all of it; `program` is the number of the program, counted from the first of this kernel's."""
        self.indices.sizes()
        if self.spares and not self.tile.looped:
            self._let_others_begin()
        if self.tile.resident or self.tile.apart:
            self._let_others_begin()
            self._wait()
        if not self.tile.resident:
            self._parts(program)
            return
        stages = f", num_stages={self.tile.stages}" if self.tile.stages > 1 else ""
        with self.lines.block(
            f"for program in tl.range({program}, {self.tile.blocks}, {self.tile.programs}{stages}):"
        ):
            self._parts("program")

    def _parts(self, number: str) -> None:
        """The lines for the block of a number: if it is to be so, one part for whole blocks and one for others."""
        self.indices.parallel(number)
        if not self.tile.apart:
            self._turns()
            return
        (axis,) = self.tile.parallel
        for self.within, head in ((True, f"if {number} < {axis.size // axis.block}:"), (False, "else:")):
            with self.lines.block(head):
                self._turns()
            self.outside_loop.clear()

    def _let_others_begin(self) -> None:
        """The kernel launched behind this one may begin: early it loads while this one waits for memory, but its blocks
        take registers and shared memory from those of this one."""
        if self.overlaps:
            self.lines.add("cuda.gdc_launch_dependents()")
            self.overlaps = False

    def _wait(self) -> None:
        """What is read from here on may have been written by the kernel that was launched before."""
        if self.waits:
            self.lines.add("cuda.gdc_wait()")
            self.waits = False

    def _ahead(self) -> list[Expr]:
        """The loads of steady memory for each element of a block, which need not wait."""
        if not self.waits:
            return []
        return [
            node for node in self.analysis.order
            if node.op == "load"
            and node.attr[0] in (self.kernel.steady or ())
            and node in self.analysis.unmasked
            and not node.attr[1].indirects
            and self.dims(node).issuperset(self.tile.dims)
        ]

    def _turns(self) -> None:
        if not self.tile.looped:
            self.indices.reduction()
            ahead = self._ahead()
            if ahead:
                self._let_others_begin()
            for node in ahead:
                self.value(node)
            self._wait()
        if self.tile.early and not self.tile.looped:
            for node in self.analysis.order:
                if node.op == "load" and self.dims(node).issuperset(self.tile.dims):
                    self.value(node)
        reductions = list(self._reductions())
        for position in range(self.analysis.passes):
            self.last = position == self.analysis.passes - 1
            now = [key for key in reductions if self.analysis.depth[key[0]] == position + 1]
            stores = [
                store for store in self.kernel.stores
                if store.in_reduction and self.analysis.pass_of(store) == position
            ]
            if self.tile.looped:
                self._loop(now, stores)
            else:
                self._block(now, stores)
        self._stores([store for store in self.kernel.stores if not store.in_reduction])

    def _memory(self, name: str) -> str:
        return self.kernel.buffers[name].memory

    def _reductions(self) -> Iterator[Key]:
        """The reductions with the masks that they stand under; what a reduction needs comes before it."""
        done: set[Key] = set()
        for store in self.kernel.stores:
            stack = [
                (self._key(root, ()), False)
                for root in (store.value, *(atom.value for atom in store.index.indirects))
            ]
            while stack:
                key, ready = stack.pop()
                if ready:
                    yield key
                    continue
                if key in done:
                    continue
                done.add(key)
                if key[0].op == "reduce":
                    stack.append((key, True))
                    stack.append((self._key(key[0].args[0], key[1]), False))
                stack.extend((operand, False) for operand in self._operands(key))

    # passes over the reduction axes

    def _block(self, reductions: Sequence[Key], stores: Sequence[Store]) -> None:
        for key in reductions:
            if self.dots.takes(key):
                total = self.dots.start()
                self.dots.step(key, total)
                self.outside_loop[key] = self.dots.finish(total)
            else:
                self.outside_loop[key] = self._reduce(key[0], *self._elements(key))
        self._stores(stores)

    def _loop(self, reductions: Sequence[Key], stores: Sequence[Store]) -> None:
        ahead = self._first_loads(reductions)
        if ahead:
            self._let_others_begin()
        self._wait()
        self._prepare([self._key(key[0].args[0], key[1]) for key in reductions if key[0] not in self.analysis.online])
        self._prepare(
            [
                self._key(root, ())
                for store in stores
                for root in (store.value, *(atom.value for atom in store.index.indirects))
            ]
        )
        with_maximum = {
            self._key(self.analysis.online[key[0]], key[1]): key for key in reductions if key[0] in self.analysis.online
        }
        plain = [key for key in reductions if key[0] not in self.analysis.online and key not in with_maximum]
        self.scans.begin([*(key[0].args[0] for key in reductions), *(store.value for store in stores)])
        states = {key: self._start(key) for key in plain}
        online = {key: self._start_online(key) for key in with_maximum}
        axis = self.tile.reduction[0]
        turns = f"0, {axis.size}, {axis.letter.upper()}BLOCK"
        staged = self.tile.stages > 1 and not self.tile.resident
        turns = f"tl.range({turns}, num_stages={self.tile.stages})" if staged else f"range({turns})"
        with self.lines.block(f"for {axis.letter}_start in {turns}:"):
            self.in_loop = True
            self.indices.reduction()
            self._next_loads(ahead)
            for key in online:
                self._step_online(key, online[key])
            for key in plain:
                self._step(key, states[key])
            self._stores(stores)
            self.in_loop = False
            self.inside_loop.clear()
            self.scans.end()
        for key, sum_key in with_maximum.items():
            self.outside_loop[key], self.outside_loop[sum_key] = self._finish_online(key, online[key])
        for key in plain:
            total = states[key]
            self.outside_loop[key] = self.dots.finish(*total) if self.dots.takes(key) else self._reduce(key[0], *total)
        if self.last:
            self._let_others_begin()

    def _first_loads(self, reductions: Sequence[Key]) -> dict[Expr, str]:
        """Load for the first turn of a loop what need not wait: the name of each such load."""
        staged = self.tile.stages > 1 or any(self.dots.takes(key) for key in reductions)
        if staged or self.analysis.passes > 1:
            return {}
        nodes = [node for node in self._ahead() if self.analysis.free[node] & self.analysis.reduction]
        if nodes:
            axis = self.tile.reduction[0]
            self.lines.add(f"{axis.letter}_start = 0")
            self.indices.reduction()
        return {node: self.lines.name(self._load((node, ())), "ahead") for node in nodes}

    def _next_loads(self, ahead: dict[Expr, str]) -> None:
        """Take what was loaded for this turn of a loop, and load for the next one."""
        for node, name in ahead.items():
            taken = self.inside_loop[node, ()] = self.lines.fresh("in")
            self.lines.add(f"{taken} = {name}")
        if ahead:
            with self.indices.next_block() as inside:
                for node, name in ahead.items():
                    self.lines.add(f"{name} = {self._load((node, ()), inside)}")

    def _prepare(self, keys: Iterable[Key]) -> None:
        """Compute what the keys need and no reduction turn changes."""
        seen: set[Key] = set()
        stack = list(keys)
        while stack:
            key = stack.pop()
            if key in seen:
                continue
            seen.add(key)
            if self._is_in_reduction(key):
                stack.extend(self._operands(key))
            elif key[0].op != "const":
                self.value(*key)

    def _elements(self, key: Key) -> tuple[str, ...]:
        """The values that one turn of the reduction loops, or a block of turns, adds to a reduction; for argmax and
        argmin with their places."""
        node, mask = key
        operand = node.args[0]
        dims = self.dims(operand, mask) | {axis for axis in self.tile.reduction if axis.block > 1}
        shape = self.indices.shape(dims)
        if operand.op == "const":
            text = f"tl.full({shape}, {number(operand.attr)}, tl.{TRITON_DTYPES[operand.dtype]})"
        else:
            text = self.value(operand, mask)
            if dims != self.dims(operand, mask):
                text = f"tl.broadcast_to({text}, {shape})"
        if node.attr in ("any", "all"):
            text = f"({text}).to(tl.int32)"
        kind = {"argmax": "max", "argmin": "min"}.get(node.attr, node.attr)
        ragged = self._ragged(self.tile.reduction)
        masked = _is_load(operand) and self.dims(operand, mask).issuperset(ragged)
        if ragged and not (kind == "sum" and masked):  # such a load gives 0 beyond the end
            condition = " & ".join(self.indices.mask(axis) for axis in ragged)
            text = f"tl.where({condition}, {text}, {self._identity(kind, operand.dtype)})"
        if kind == node.attr:
            return (text,)
        return self.lines.name(text), self.lines.name(f"tl.broadcast_to({self.indices.flat_reduction()}, {shape})")

    def _identity(self, kind: str, dtype: torch.dtype) -> str:
        value = number(IDENTITIES[kind](dtype))
        exact = dtype in (torch.float32, torch.int32, torch.bool)
        return value if exact else f"tl.full([], {value}, tl.{TRITON_DTYPES[dtype]})"

    def _reduce(self, node: Expr, values: str, places: str | None = None) -> str:
        """The reduction of blocks to what the parallel axes leave of them."""
        dims = self.tile.dims
        text = values
        combine = combination(node.attr, node.args[0].dtype)
        for position in reversed([position for position, axis in enumerate(dims) if axis.reduction]):
            if places is not None:
                self.lines.add(f"{values}_best, {places}_best = tl.reduce(({values}, {places}), {position}, {combine})")
                text = f"{places}_best"
            elif combine == "added" and node.dtype.itemsize >= 4:
                text = f"tl.sum({text}, {position})"
            else:
                text = f"tl.reduce({text}, {position}, {combine})"
        if places is not None and text == values:
            text = places
        text += self.expansion(dims)
        if node.attr in ("any", "all"):
            text = f"{text} != 0"
        return self.lines.name(text)

    def expansion(self, dims: Sequence[Axis]) -> str:
        """Put back the dimensions that a reduction has taken, with one element each."""
        if not any(axis.reduction for axis in dims) or all(axis.reduction for axis in dims):
            return ""
        return f"[{', '.join('None' if axis.reduction else ':' for axis in dims)}]"

    def _start(self, key: Key) -> tuple[str, ...]:
        """What a reduction holds before the first turn."""
        node, mask = key
        if self.dots.takes(key):
            return (self.dots.start(),)
        blocks = {axis for axis in self.tile.reduction if axis.block > 1}
        shape = self.indices.shape(self.dims(node.args[0], mask) | blocks)
        dtype = "int32" if node.attr in ("any", "all") else TRITON_DTYPES[node.args[0].dtype]
        kind = {"argmax": "max", "argmin": "min"}.get(node.attr, node.attr)
        held = self.lines.name(
            f"tl.full({shape}, {number(IDENTITIES[kind](node.args[0].dtype))}, tl.{dtype})", node.attr
        )
        if kind == node.attr:
            return (held,)
        return held, self.lines.name(f"tl.full({shape}, {2**62}, tl.int64)", "place")

    def _step(self, key: Key, state: Sequence[str]) -> None:
        if self.dots.takes(key):
            self.dots.step(key, *state)
            return
        elements = self._elements(key)
        combine = combination(key[0].attr, key[0].args[0].dtype)
        held = ", ".join(state)
        if combine == "added":
            self.lines.add(f"{held} += {elements[0]}")
        else:
            self.lines.add(f"{held} = {combine}({held}, {', '.join(elements)})")

    # the maximum and the sum of a softmax in one pass: each lane keeps its own maximum, and its sum relative to that

    def _lanes(self, key: Key) -> tuple[set[Axis], int | None]:
        """The dimensions of the lanes, and the dimension of a block that lies within one lane."""
        dims = self.tile.dims
        within = len(dims) - 1 if sum(axis.reduction for axis in dims) > 1 else None
        kept = self.dims(key[0].args[0], key[1]) | {axis for axis in dims if axis.reduction}
        return kept - ({dims[within]} if within is not None else set()), within

    def _start_online(self, key: Key) -> tuple[str, str]:
        shape = self.indices.shape(self._lanes(key)[0])
        return self.lines.name(f'tl.full({shape}, float("-inf"), tl.float32)', "max"), self.lines.name(
            f"tl.zeros({shape}, tl.float32)", "sum"
        )

    def _step_online(self, key: Key, state: tuple[str, str]) -> None:
        greatest, total = state
        _, within = self._lanes(key)
        values = self.lines.name(*self._elements(key))
        again = f"[{', '.join([':'] * (len(self.tile.dims) - 1) + ['None'])}]"
        top = values if within is None else f"tl.reduce({values}, {within}, nan_max){again}"
        new = self.lines.name(f"nan_max({greatest}, {top})")
        base = self.lines.name(f'tl.where({new} == float("-inf"), 0.0, {new})')  # -inf - -inf would be nan
        exponentials = f"tl.exp({values} - {base})"
        inside = exponentials if within is None else f"tl.sum({exponentials}, {within}){again}"
        self.lines.add(f"{total} = {total} * tl.exp({greatest} - {base}) + {inside}")
        self.lines.add(f"{greatest} = {new}")

    def _finish_online(self, key: Key, state: tuple[str, str]) -> tuple[str, str]:
        dims = self.tile.dims
        reduction = [position for position, axis in enumerate(dims) if axis.reduction]
        greatest, total = state
        lanes = reduction[:1]
        drop = f"[{', '.join([':'] * (len(dims) - 1) + ['0'])}]" if len(reduction) > 1 else ""
        if drop:  # the dimension within lanes has one element
            shape = self.indices.shape(self._lanes(key)[0], len(dims) - 1)
            greatest, total = (self.lines.name(f"tl.reshape({name}, {shape})") for name in state)
        kept = [axis for axis in dims if not axis.reduction]
        back = f"[{', '.join([':'] * len(kept) + ['None'])}]" if kept else ""
        top = self.lines.name(f"tl.reduce({greatest}, {lanes[0]}, nan_max)")
        summed = self.lines.name(f"tl.sum({total} * tl.exp({greatest} - {top}{back}), {lanes[0]})")
        expansion = self.expansion(dims)
        return (
            (self.lines.name(f"{top}{expansion}"), self.lines.name(f"{summed}{expansion}"))
            if expansion
            else (top, summed)
        )

    # stores

    def _stores(self, stores: Sequence[Store]) -> None:
        # all loads come before the first store: it may write over what they read
        texts = [self._stored(store) for store in stores]
        if any(store.buffer in self.overwritten for store in stores) and self.tile.dims:
            self.lines.add("tl.debug_barrier()")
        for text in texts:
            self.lines.add(text)

    def _stored(self, store: Store) -> str:
        value = self.value(store.value)
        dims = self._index_dims(store.index, ())
        place = self.indices.text(store.index, ())
        everywhere = dims | self.dims(store.value, ())
        if everywhere != dims:
            place = f"tl.zeros({self.indices.shape(everywhere)}, tl.int32) + {place}"
        mask = " & ".join(self.indices.mask(axis) for axis in self._ragged(everywhere))
        streamed = ', cache_modifier=".cs"' if self.tile.streamed else ""
        return f"tl.store({self.pointers[store.buffer]} + ({place}), {value}{f', {mask}' if mask else ''}{streamed})"

    # values

    def value(self, expr: Expr, mask: Mask = ()) -> str:
        """The name of an expression's value under a mask, computed now if it is not yet."""
        root = self._key(expr, mask)
        stack = [root]
        while stack:
            key = stack[-1]
            if self._known(key) is not None:
                stack.pop()
                continue
            missing = [operand for operand in self._operands(key) if self._known(operand) is None]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            scope = self.inside_loop if self.in_loop else self.outside_loop
            scope[key] = self._computed(key)
        name = self._known(root)
        assert name is not None
        return name

    def _checked(self, index: Indirect, mask: Mask) -> str:
        """The name of a computed index. As ATen's kernels do, those of ours assert that it is in range, if that takes
        what is in memory."""
        name = self.value(index.value, mask)
        if index.value.loads() and (name, index.size) not in self.checked:
            self.checked.add((name, index.size))
            masks = [self.indices.mask(axis) for axis in self._ragged(self.dims(index.value, mask))]
            masks += [self.value(*condition) for condition in self._conditions(mask)]
            where = f", {' & '.join(masks)}" if masks else ""
            self.lines.add(
                f'tl.device_assert(({name} >= 0) & ({name} < {index.size}), "index out of bounds"{where})'
            )
        return name

    def _known(self, key: Key) -> str | None:
        return self.inside_loop.get(key) or self.outside_loop.get(key)

    def _key(self, expr: Expr, mask: Mask) -> Key:
        if not self.analysis.reads[expr] or expr in self.analysis.unmasked:
            return expr, ()
        if expr.op == "reduce":  # it is over all elements, though its result may be wanted at some of them only
            return expr, tuple(each for each in mask if not self.analysis.free[each] & self.analysis.reduction)
        return expr, mask

    def _operands(self, key: Key) -> list[Key]:
        node, mask = key
        if node.op == "reduce":
            return []
        if node.op == "masked":
            condition, value, other = node.args
            return [self._key(condition, mask), self._key(value, (*mask, condition)), self._key(other, mask)]
        if node.op == "load":
            return [*(self._key(operand, mask) for operand in node.operands()), *self._conditions(mask)]
        if node in self.analysis.quick and (inside := _one_plus(node)) is not None:
            return [self._key(inside.args[0], mask)]
        return [
            self._key(operand, mask)
            for operand, literal in zip(node.operands(), self._literals(node))
            if literal is None
        ]

    def _conditions(self, mask: Mask) -> list[Key]:
        """The conditions of a mask, each under those before it: under itself, it would have to be known before it
        is."""
        return [self._key(condition, mask[:position]) for position, condition in enumerate(mask)]

    def _is_in_reduction(self, key: Key) -> bool:
        return any(self.analysis.free[node] & self.analysis.reduction for node in (key[0], *key[1]))

    def dims(self, expr: Expr, mask: Mask = ()) -> set[Axis]:
        """The dimensions that a value's block has."""
        mask = self._key(expr, mask)[1]
        axes = {self.tile.axis_of[var] for node in (expr, *mask) for var in self.analysis.free[node] if var.size > 1}
        return {axis for axis in axes if axis.block > 1}

    def _ragged(self, among: Collection[Axis]) -> list[Axis]:
        """The axes along which the block may reach over the end."""
        return [
            axis for axis in self.tile.axes
            if axis in among and axis.ragged and not (self.within and not axis.reduction)
        ]

    def _index_dims(self, index: Index, mask: Mask) -> set[Axis]:
        axes = {self.tile.axis_of[var] for var in self.analysis.index_vars(index) if var.size > 1}
        for node in mask:
            axes |= self.dims(node, ())
        return {axis for axis in axes if axis.block > 1}

    def _computed(self, key: Key) -> str:
        node, mask = key
        if node.op == "load":
            return self._loaded(key)
        if node.op == "scan":
            return self.scans.value(node)
        if node.op == "const":
            return self.lines.name(f"tl.full([], {number(node.attr)}, tl.{TRITON_DTYPES[node.dtype]})")
        if node.op == "index":
            return self.lines.name(f"tl.cast({self.indices.text(node.attr, mask)}, tl.int64)")  # a size of 1 is an int
        if node.op == "masked":
            condition, value, other = node.args
            chosen = self.value(value, (*mask, condition))
            is_masked_load = _is_load(value) and self._key(_without_casts(value), (*mask, condition))[1]
            if is_masked_load and other.op == "const" and repr(other.attr) in ("0", "0.0", "False"):
                return chosen  # its load has given 0 already
            return self.lines.name(f"tl.where({self.value(condition, mask)}, {chosen}, {self.value(other, mask)})")
        if node in self.analysis.quick and (inside := _one_plus(node)) is not None:
            return self.lines.name(
                operation(f"one_plus_{inside.op}", [self.value(inside.args[0], mask)], node.dtype, quick=True)
            )
        if node.op == "div" and node in self.analysis.quick and is_softmax_sum(node.args[1]):
            # such a sum is neither tiny nor huge: nothing is lost by its reciprocal, of which there is one for a whole
            # row
            return self.lines.name(f"{self.value(node.args[0], mask)} * (1.0 / {self.value(node.args[1], mask)})")
        if node.op == "philox" and (words := random_words(self, key)) is not None:
            return words
        operands = [
            self.value(operand, mask) if literal is None else literal
            for operand, literal in zip(node.args, self._literals(node))
        ]
        if node.op == "cast":
            return self.lines.name(conversion(operands[0], node.args[0].dtype, node.dtype))
        if node.op == "bitcast":
            return self.lines.name(f"{operands[0]}.to(tl.{TRITON_DTYPES[node.dtype]}, bitcast=True)")
        return self.lines.name(operation(node.op, operands, node.args[-1].dtype, quick=node in self.analysis.quick))

    def _literals(self, node: Expr) -> list[str | None]:
        """For each operand what is written in the operation itself; None for what is computed before."""
        if node.op == "philox":
            return [None, self.draw(node.args[1].attr), None]
        return [number(operand.attr) if _may_be_literal(node, operand) else None for operand in node.operands()]

    def _loaded(self, key: Key) -> str:
        return self.lines.name(self._load(key), "in")

    def _load(self, key: Key, inside: str = "") -> str:
        """A load as an expression; `inside` says what of the block of the looped axis is there, in place of its
        mask."""
        node, mask = key
        name, index = node.attr
        dims = self._index_dims(index, ())
        everywhere = self._index_dims(index, mask)
        place = self.indices.text(index, mask)
        if everywhere != dims:
            place = f"tl.zeros({self.indices.shape(everywhere)}, tl.int32) + {place}"
        ragged = [axis for axis in self._ragged(everywhere) if not (inside and axis is self.tile.reduction[0])]
        masks = [self.indices.mask(axis) for axis in ragged]
        masks += [self.value(*condition) for condition in self._conditions(mask)]
        masks += [f"({inside})"] if inside else []
        guard = f", {' & '.join(masks)}, other=0" if masks else ""
        return f"tl.load({self.pointers[name]} + ({place}){guard}{self._hint(index)})"

    def _hint(self, index: Index) -> str:
        used = {self.tile.axis_of[var] for var in self.analysis.index_vars(index) if var.size > 1}
        covered = (axis in used or surely_equal(axis.steps, 1) for axis in self.tile.axes)
        once = all(covered) and (self.last or not self.tile.looped)
        if self.tile.hints:
            return f', eviction_policy="evict_{"first" if once else "last"}"'
        return ', cache_modifier=".cg"' if self.tile.streamed and once else ""  # which can't be combined with the other


def _is_load(node: Expr) -> bool:
    """Whether it is a load, perhaps with another dtype, so that 0 loaded is 0 here."""
    return _without_casts(node).op == "load"


def _without_casts(node: Expr) -> Expr:
    while node.op == "cast":
        node = node.args[0]
    return node


def _one_plus(node: Expr) -> Expr | None:
    """The erf or tanh to which the node adds 1."""
    if node.op != "add":
        return None
    for one, other in (node.args, node.args[::-1]):
        if one.op == "const" and one.attr == 1.0 and other.op in ("erf", "tanh"):
            return other
    return None


def _may_be_literal(node: Expr, operand: Expr) -> bool:
    """Whether an operand can be written as a number in the operation: another operand then says what dtype it is."""
    if (
        operand.op != "const"
        or node.op not in LITERALS
        or operand.dtype not in (torch.float32, torch.int32, torch.int64)
    ):
        return False
    if operand.dtype == torch.int64 and abs(operand.attr) > 2**31 - 1:
        return False
    return any(other.op != "const" and other.dtype == operand.dtype for other in node.args)
