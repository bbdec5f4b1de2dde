"""Loads and stores: one element for all lanes, neighbours, or elements here and there."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from framejit.backends.fuse.llvm.assembler import Assembler, Value, integer, like, suffix, truth, vector_type
from framejit.backends.fuse.llvm.types import REGISTER, memory_type
from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.loop_ir.nodes import Store

if TYPE_CHECKING:
    from framejit.backends.fuse.llvm.emit import Emitter, Mask

NOTHING = "@nothing"
"""Sixteen bytes of zeros, read in place of what must not be read."""


def load(emitter: Emitter, node: Expr, instance: int, mask: Mask | None, asm: Assembler) -> Value:
    """The value of a `load` node. Lanes that are masked out are not read and hold zeros."""
    (buffer, index), dtype = node.attr, node.dtype
    base, type, size, vector = emitter.pointer(buffer), memory_type(dtype), dtype.itemsize, emitter.plan.vector
    varies = emitter.lanes > 1 and vector in emitter.analysis.index_vars(index)
    if not varies:
        place = _address(asm, base, emitter.scalar_index(index, instance, mask), type)
        if mask is not None:
            allowed = mask.value
            if allowed.lanes > 1:
                allowed = asm.call(f"llvm.vector.reduce.or.{suffix('i1', allowed.lanes)}", "i1", 1, allowed)
            place = asm.put(f"select {allowed}, ptr {place.text}, ptr {NOTHING}", "ptr")
        return _from_memory(asm, asm.put(f"load {type}, ptr {place.text}, align {size}", type), dtype)
    lanes = emitter.lanes
    mask_lanes = _lanes_allowed(emitter, instance, mask, asm)
    stride = _stride(emitter, index)
    full = vector_type(type, lanes)
    if stride == 1:
        place = _contiguous(emitter, base, index, instance, mask, type, asm)
        if mask_lanes is None:
            value = asm.put(f"load {full}, ptr {place.text}, align {size}", type, lanes)
        else:
            value = masked_load(asm, place, type, size, mask_lanes)
        return _from_memory(asm, value, dtype)
    offsets = emitter.vector_index(index, instance, mask)
    places = asm.put(f"getelementptr {type}, ptr {base}, {offsets}", "ptr", lanes)
    if size < 4:  # no machine gathers these, and LLVM would branch around every lane
        return _from_memory(asm, _lane_by_lane(asm, places, type, size, mask_lanes), dtype)
    name = f"llvm.masked.gather.{suffix(type, lanes)}.v{lanes}p0"
    asm.module.declare(name, full, [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", full])
    value = asm.put(
        f"call {full} @{name}({places}, i32 {size}, {mask_lanes or truth(True, lanes)}, {full} zeroinitializer)",
        type,
        lanes,
    )
    return _from_memory(asm, value, dtype)


def masked_load(asm: Assembler, place: Value, type: str, size: int, allowed: Value) -> Value:
    """Neighbouring elements, where lanes that are not allowed are not read and hold zeros."""
    lanes = allowed.lanes
    full, name = vector_type(type, lanes), f"llvm.masked.load.{suffix(type, lanes)}.p0"
    asm.module.declare(name, full, ["ptr", "i32", f"<{lanes} x i1>", full])
    return asm.put(f"call {full} @{name}(ptr {place.text}, i32 {size}, {allowed}, {full} zeroinitializer)", type, lanes)


def store(emitter: Emitter, what: Store, value: Value, instance: int, asm: Assembler) -> None:
    """Carry out a store for the lanes of an instance."""
    index, dtype = what.index, what.value.dtype
    base, type, size, vector = emitter.pointer(what.buffer), memory_type(dtype), dtype.itemsize, emitter.plan.vector
    if emitter.lanes == 1 or vector not in emitter.analysis.index_vars(index):
        if value.lanes > 1:
            raise NotImplementedError("a store of many lanes to one place")
        place = _address(asm, base, emitter.scalar_index(index, instance, None), type)
        asm.do(f"store {_to_memory(asm, value, dtype)}, ptr {place.text}, align {size}")
        return
    lanes = emitter.lanes
    value = _to_memory(asm, emitter.splat(value, lanes), dtype)
    allowed = emitter.tails[instance]
    if _stride(emitter, index) == 1:
        place = _contiguous(emitter, base, index, instance, None, type, asm)
        # LLVM 22 would write too many bytes of a value just narrowed, seeing one lane of a mask
        if allowed is not None and allowed.text in emitter.lone:
            value, allowed = asm.extract(value, 0), None
        if allowed is None:
            asm.do(f"store {value}, ptr {place.text}, align {size}")
            return
        name = f"llvm.masked.store.{suffix(type, lanes)}.p0"
        asm.module.declare(name, "void", [value.full_type, "ptr", "i32", f"<{lanes} x i1>"])
        asm.do(f"call void @{name}({value}, ptr {place.text}, i32 {size}, {allowed})")
        return
    places = asm.put(f"getelementptr {type}, ptr {base}, {emitter.vector_index(index, instance, None)}", "ptr", lanes)
    name = f"llvm.masked.scatter.{suffix(type, lanes)}.v{lanes}p0"
    asm.module.declare(name, "void", [value.full_type, f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>"])
    asm.do(f"call void @{name}({value}, {places}, i32 {size}, {allowed or truth(True, lanes)})")


def load_kept(emitter: Emitter, node: Expr, instance: int, asm: Assembler) -> Value:
    """A value that an earlier pass has kept."""
    type, size = memory_type(node.dtype), node.dtype.itemsize
    place = _kept_place(emitter, node, instance, asm)
    value = asm.put(f"load {vector_type(type, emitter.lanes)}, ptr {place.text}, align {size}", type, emitter.lanes)
    return _from_memory(asm, value, node.dtype)


def store_kept(emitter: Emitter, node: Expr, value: Value, instance: int, asm: Assembler) -> None:
    """Keep a value. There is room for lanes beyond the loop's end, too."""
    value = _to_memory(asm, emitter.splat(value, emitter.lanes), node.dtype)
    asm.do(f"store {value}, ptr {_kept_place(emitter, node, instance, asm).text}, align {node.dtype.itemsize}")


def load_turned(emitter: Emitter, node: Expr, instance: int, asm: Assembler) -> Value:
    """A load whose tile has been turned around."""
    type, size = memory_type(node.dtype), node.dtype.itemsize
    assert emitter.plan.vector is not None
    place = asm.binary("add", emitter.vars[emitter.plan.vector], emitter.tile_row)
    place = _address(asm, _address(asm, emitter.tiles[node], place, type).text, integer(instance * emitter.lanes), type)
    return _from_memory(
        asm,
        asm.put(f"load {vector_type(type, emitter.lanes)}, ptr {place.text}, align {size}", type, emitter.lanes),
        node.dtype,
    )


def _kept_place(emitter: Emitter, node: Expr, instance: int, asm: Assembler) -> Value:
    position = emitter.scalar_index(emitter.kept_at, instance, None)
    place = _address(asm, emitter.kept[node], position, memory_type(node.dtype))
    return _address(asm, place.text, integer(instance * emitter.lanes), memory_type(node.dtype))


def _stride(emitter: Emitter, index: Index) -> int:
    """How far apart the elements of neighbouring lanes lie, or 0 if that differs."""
    vector = emitter.plan.vector
    assert vector is not None
    others = Index({atom: coefficient for atom, coefficient in index.terms.items() if atom != vector})
    return 0 if vector in emitter.analysis.index_vars(others) else index.stride(vector)


def _contiguous(
    emitter: Emitter, base: str, index: Index, instance: int, mask: Mask | None, type: str, asm: Assembler
) -> Value:
    """Where the element of the first lane lies."""
    place = _address(asm, base, emitter.scalar_index(index, instance, mask), type)
    return _address(asm, place.text, integer(instance * emitter.lanes), type)


def _address(asm: Assembler, base: str, offset: Value, type: str) -> Value:
    if offset.text == "0":
        return Value(base, "ptr")
    return asm.put(f"getelementptr {type}, ptr {base}, {offset}", "ptr")


def _lanes_allowed(emitter: Emitter, instance: int, mask: Mask | None, asm: Assembler) -> Value | None:
    """The lanes that may be loaded, or None for all of them."""
    tail = emitter.tails[instance]
    if mask is None:
        return tail
    allowed = emitter.splat(mask.value, emitter.lanes)
    return allowed if tail is None else asm.binary("and", allowed, tail)


def _lane_by_lane(asm: Assembler, places: Value, type: str, size: int, allowed: Value | None) -> Value:
    if allowed is not None:
        nowhere = asm.splat(Value(NOTHING, "ptr"), places.lanes)
        places = asm.select(allowed, places, nowhere)
    result = Value("poison", type, places.lanes)
    for lane in range(places.lanes):
        place = asm.extract(places, lane)
        result = asm.insert(result, asm.put(f"load {type}, ptr {place.text}, align {size}", type), lane)
    return result


def _from_memory(asm: Assembler, value: Value, dtype: torch.dtype) -> Value:
    return asm.compare("ne", value, like(value, 0)) if dtype == torch.bool else value


def _to_memory(asm: Assembler, value: Value, dtype: torch.dtype) -> Value:
    assert value.type == REGISTER[dtype]
    return asm.convert("zext", value, memory_type(dtype)) if dtype == torch.bool else value
