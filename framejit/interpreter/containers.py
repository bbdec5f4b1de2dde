"""Building, extending and unpacking containers; text formatting."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framejit.interpreter.opcodes import opcode
from framejit.values.base import Value, realize
from framejit.values.builtin_text import text_of
from framejit.values.constant import ConstantValue
from framejit.values.mapping import DictValue, SetValue, as_key, pairs
from framejit.values.sequence import ListValue, TupleValue
from framejit.values.signals import Unsupported

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


@opcode("BUILD_TUPLE")
def build_tuple(tx: Frame, ins: Instruction) -> None:
    tx.push(TupleValue(tx.pop_n(ins.arg)))


@opcode("BUILD_LIST")
def build_list(tx: Frame, ins: Instruction) -> None:
    tx.push(ListValue(tx.pop_n(ins.arg)))


@opcode("BUILD_SET")
def build_set(tx: Frame, ins: Instruction) -> None:
    tx.push(SetValue(dict.fromkeys(as_key(tx, v) for v in tx.pop_n(ins.arg))))


@opcode("BUILD_MAP")
def build_map(tx: Frame, ins: Instruction) -> None:
    flat = tx.pop_n(2 * ins.arg)
    tx.push(DictValue({as_key(tx, k): v for k, v in zip(flat[::2], flat[1::2])}))


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(tx: Frame, ins: Instruction) -> None:
    keys = tx.pop().constant()
    tx.push(DictValue(dict(zip(keys, tx.pop_n(ins.arg)))))


@opcode("LIST_APPEND")
def list_append(tx: Frame, ins: Instruction) -> None:
    value = tx.pop_unseen()
    tx.peek(ins.arg).call_method(tx, "append", [value], {})


@opcode("SET_ADD")
def set_add(tx: Frame, ins: Instruction) -> None:
    value = tx.pop()
    tx.peek(ins.arg).call_method(tx, "add", [value], {})


@opcode("MAP_ADD")
def map_add(tx: Frame, ins: Instruction) -> None:
    value, key = tx.pop_unseen(), tx.pop()
    tx.peek(ins.arg).call_method(tx, "__setitem__", [key, value], {})


@opcode("LIST_EXTEND")
def list_extend(tx: Frame, ins: Instruction) -> None:
    value = tx.pop()
    tx.peek(ins.arg).call_method(tx, "extend", [value], {})


@opcode("SET_UPDATE")
def set_update(tx: Frame, ins: Instruction) -> None:
    value = tx.pop()
    tx.peek(ins.arg).call_method(tx, "update", [value], {})


@opcode("DICT_UPDATE")
def dict_update(tx: Frame, ins: Instruction) -> None:
    value = tx.pop()
    tx.peek(ins.arg).call_method(tx, "update", [value], {})


@opcode("DICT_MERGE")
def dict_merge(tx: Frame, ins: Instruction) -> None:
    value = tx.pop()
    target = tx.peek(ins.arg)
    assert isinstance(target, DictValue)
    new = pairs(tx, value)
    if any(k in target.items for k in new):
        raise Unsupported("a keyword argument given twice", "FJ112")
    target.change(tx, {**target.items, **new})


@opcode("LIST_TO_TUPLE", until=(3, 11))
def list_to_tuple(tx: Frame, ins: Instruction) -> None:
    tx.push(TupleValue(list(tx.iterate(tx.pop()))))


def _items(tx: Frame, value: Value) -> list[Value]:
    return list(tx.iterate(value))


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(tx: Frame, ins: Instruction) -> None:
    items, n = _items(tx, tx.pop()), ins.arg
    if len(items) > n:
        raise tx.raised(ValueError, f"too many values to unpack (expected {n})")
    if len(items) < n:
        raise tx.raised(ValueError, f"not enough values to unpack (expected {n}, got {len(items)})")
    for item in reversed(items):
        tx.push(item)


@opcode("UNPACK_EX")
def unpack_ex(tx: Frame, ins: Instruction) -> None:
    items, before, after = _items(tx, tx.pop()), int(ins.arg) & 0xFF, int(ins.arg) >> 8
    if len(items) < before + after:
        raise tx.raised(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    middle = items[before : len(items) - after]
    for item in reversed([*items[:before], ListValue(middle), *items[len(items) - after :]]):
        tx.push(item)


# ---- text -----------------------------------------------------------------------------------------


def _formatted(tx: Frame, value: Value, conversion: int, spec: Value) -> Value:
    if conversion:
        value = text_of(tx, (None, str, repr, ascii)[conversion], [value])
    if isinstance(value, ConstantValue) and type(value.value) is str and spec.constant() == "":
        return value
    return text_of(tx, format, [value, spec])


@opcode("FORMAT_VALUE", until=(3, 12))
def format_value(tx: Frame, ins: Instruction) -> None:
    flags = int(ins.arg)
    spec = tx.pop() if flags & 4 else ConstantValue("")
    tx.push(_formatted(tx, tx.pop(), flags & 3, spec))


@opcode("CONVERT_VALUE", since=(3, 13))
def convert_value(tx: Frame, ins: Instruction) -> None:
    tx.push(text_of(tx, (None, str, repr, ascii)[int(ins.arg)], [tx.pop()]))


@opcode("FORMAT_SIMPLE", since=(3, 13))
def format_simple(tx: Frame, ins: Instruction) -> None:
    tx.push(_formatted(tx, tx.pop(), 0, ConstantValue("")))


@opcode("FORMAT_WITH_SPEC", since=(3, 13))
def format_with_spec(tx: Frame, ins: Instruction) -> None:
    spec = tx.pop()
    tx.push(_formatted(tx, tx.pop(), 0, spec))


@opcode("BUILD_STRING")
def build_string(tx: Frame, ins: Instruction) -> None:
    tx.push(ConstantValue("".join(tx.constants(tx.pop_n(ins.arg)))))


# ---- match statements -------------------------------------------------------------------------------


@opcode("GET_LEN")
def get_len(tx: Frame, ins: Instruction) -> None:
    from framejit.values.handlers import HANDLERS

    tx.push(HANDLERS[len](tx, [tx.peek(1)], {}))


def _matches(value: Value, flag: str) -> Value:
    import collections.abc

    abc = getattr(collections.abc, flag)
    return ConstantValue(issubclass(value.python_type(), abc) and not issubclass(value.python_type(), (str, bytes, bytearray)))


@opcode("MATCH_SEQUENCE")
def match_sequence(tx: Frame, ins: Instruction) -> None:
    tx.push(_matches(tx.peek(1), "Sequence"))


@opcode("MATCH_MAPPING")
def match_mapping(tx: Frame, ins: Instruction) -> None:
    tx.push(_matches(tx.peek(1), "Mapping"))


@opcode("MATCH_KEYS")
def match_keys(tx: Frame, ins: Instruction) -> None:
    keys, mapping = tx.peek(1), tx.peek(2)
    found: list[Value] = []
    for key in tx.iterate(keys):
        if not tx.contains(mapping, key):
            tx.push(ConstantValue(None))
            return
        found.append(tx.subscript(mapping, key))
    tx.push(TupleValue(found))


@opcode("MATCH_CLASS")
def match_class(tx: Frame, ins: Instruction) -> None:
    names, cls_value, subject = tx.pop().constant(), tx.pop(), tx.pop()
    cls: Any = cls_value.constant()
    if not issubclass(subject.python_type(), cls):
        tx.push(ConstantValue(None))
        return
    attributes: list[str] = []
    if ins.arg:
        if cls in (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple):
            tx.push(TupleValue([subject] + [realize(tx, subject.getattr(tx, n)) for n in names]))
            return
        match_args = getattr(cls, "__match_args__", ())
        if len(match_args) < ins.arg:
            raise tx.raised(TypeError, f"{cls.__name__}() accepts {len(match_args)} positional sub-patterns ({ins.arg} given)")
        attributes = list(match_args[: ins.arg])
    values: list[Value] = []
    from framejit.values.signals import Raised

    for name in (*attributes, *names):
        try:
            with tx.catching():
                values.append(realize(tx, subject.getattr(tx, name)))
        except Raised as e:
            if not issubclass(e.value.cls, AttributeError):
                raise
            tx.push(ConstantValue(None))
            return
    tx.push(TupleValue(values))
