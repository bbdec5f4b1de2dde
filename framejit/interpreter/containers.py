"""Building, extending and unpacking containers; text formatting."""
from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.guards.sources import static_lookup
from framejit.interpreter.opcodes import VERSION, opcode
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.builtins.formatting import text_of
from framejit.values.builtins.instance_checks import is_instance
from framejit.values.builtins.reflection import attribute_or_none
from framejit.values.constant import ConstantValue
from framejit.values.containers.mapping import DictValue, pairs
from framejit.values.containers.sequence import ListValue, TupleValue
from framejit.values.containers.sets import SetValue
from framejit.values.handlers import HANDLERS
from framejit.values.objects.classes import ClassValue

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
    made = SetValue(set())
    for member in tx.pop_n(ins.arg):
        made.put(tx, member)
    tx.push(made)


@opcode("BUILD_MAP")
def build_map(tx: Frame, ins: Instruction) -> None:
    flat = tx.pop_n(2 * ins.arg)
    made = DictValue({})
    for key, value in zip(flat[::2], flat[1::2]):
        made.put(tx, key, value)
    tx.push(made)


@opcode("BUILD_CONST_KEY_MAP", until=(3, 13))
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
    if not can_be_iterated(value):
        raise tx.raised(TypeError, f"Value after * must be an iterable, not {value.python_type().__name__}")
    tx.peek(ins.arg).call_method(tx, "extend", [value], {})


@opcode("SET_UPDATE")
def set_update(tx: Frame, ins: Instruction) -> None:
    value = tx.pop()
    tx.peek(ins.arg).call_method(tx, "update", [value], {})


@opcode("DICT_UPDATE")
def dict_update(tx: Frame, ins: Instruction) -> None:
    value = tx.pop()
    tx.peek(ins.arg).call_method(tx, "update", [value], {})


def refuse_no_mapping(value: Value) -> None:
    """Break where `**` is followed by what is no mapping: the message names the function that was to be called."""
    if static_lookup(value.python_type(), "keys", None) is None:
        raise Unsupported(f"{value.describe()} as a mapping of keyword arguments")


@opcode("DICT_MERGE")
def dict_merge(tx: Frame, ins: Instruction) -> None:
    value = tx.pop()
    target = tx.peek(ins.arg)
    assert isinstance(target, DictValue)
    refuse_no_mapping(value)
    new = pairs(tx, value)
    if not all(isinstance(k, str) for k in new) or any(k in target.items for k in new):
        raise Unsupported("a keyword argument that is given twice, or is no text", "FJ112")
    target.change(tx, {**target.items, **new})


@opcode("LIST_TO_TUPLE", until=(3, 11))
def list_to_tuple(tx: Frame, ins: Instruction) -> None:
    tx.push(TupleValue(list(tx.iterate(tx.pop()))))


def _items(tx: Frame, value: Value) -> list[Value]:
    if not can_be_iterated(value):
        raise tx.raised(TypeError, f"cannot unpack non-iterable {value.python_type().__name__} object")
    return list(tx.iterate(value))


def can_be_iterated(value: Value) -> bool:
    """Whether the class of a value has what iteration goes by; True also where the class is not known."""
    try:
        cls = value.python_type()
    except Unsupported:
        return True
    return any(static_lookup(cls, name, None) is not None for name in ("__iter__", "__getitem__"))


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(tx: Frame, ins: Instruction) -> None:
    iterable, n = tx.pop(), ins.arg
    items = _items(tx, iterable)
    if len(items) > n:
        counted = VERSION >= (3, 14) and iterable.python_type() in (list, tuple, dict)
        raise tx.raised(ValueError, f"too many values to unpack (expected {n}, got {len(items)})" if counted else f"too many values to unpack (expected {n})")
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


# ---- template strings -----------------------------------------------------------------------------------

_HAS_SPEC, _CONVERSION = 1, 2  # a flag, and where the kind of conversion begins


@opcode("BUILD_INTERPOLATION", since=(3, 14))
def build_interpolation(tx: Frame, ins: Instruction) -> None:
    from framejit.values.objects.templates import InterpolationValue  # needs what 3.14 has

    spec = tx.pop() if ins.arg & _HAS_SPEC else ConstantValue("")
    expression, value = tx.pop(), tx.pop_unseen()
    conversion = (None, "s", "r", "a")[ins.arg >> _CONVERSION]
    tx.push(InterpolationValue(value, expression, ConstantValue(conversion), spec))


@opcode("BUILD_TEMPLATE", since=(3, 14))
def build_template(tx: Frame, ins: Instruction) -> None:
    from framejit.values.objects.templates import TemplateValue

    interpolations, strings = tx.pop(), tx.pop()
    tx.push(TemplateValue(tx.constants(tx.iterate(strings)), TupleValue(list(tx.iterate(interpolations)))))


# ---- match statements -------------------------------------------------------------------------------


@opcode("GET_LEN")
def get_len(tx: Frame, ins: Instruction) -> None:
    tx.push(HANDLERS[len](tx, [tx.peek(1)], {}))


_SEQUENCE, _MAPPING, _MATCHES_SELF = 1 << 5, 1 << 6, 1 << 22  # Py_TPFLAGS_SEQUENCE and so on: what match statements go by


def _matches(value: Value, flag: int) -> Value:
    return ConstantValue(bool(value.python_type().__flags__ & flag))


@opcode("MATCH_SEQUENCE")
def match_sequence(tx: Frame, ins: Instruction) -> None:
    tx.push(_matches(tx.peek(1), _SEQUENCE))


@opcode("MATCH_MAPPING")
def match_mapping(tx: Frame, ins: Instruction) -> None:
    tx.push(_matches(tx.peek(1), _MAPPING))


@opcode("MATCH_KEYS")
def match_keys(tx: Frame, ins: Instruction) -> None:
    keys, mapping = tx.peek(1), tx.peek(2)
    names = tx.constants(tx.iterate(keys))
    if not isinstance(mapping, DictValue) or len(set(names)) < len(names):
        raise Unsupported("a pattern for a mapping that is no dict, or with one key twice")
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
    if not isinstance(cls_value, ClassValue):
        raise Unsupported(f"a class pattern with {cls_value.describe()}, which is no class")
    try:
        fits = is_instance(tx, subject, cls_value.cls)
    except TypeError as e:
        raise tx.raised_from(e) from None
    if not fits:
        tx.push(ConstantValue(None))
        return
    attributes, values = list[str](), list[Value]()
    if ins.arg:
        match_args = attribute_or_none(tx, cls_value, "__match_args__")
        if match_args is None and ins.arg == 1 and cls_value.cls.__flags__ & _MATCHES_SELF:
            values.append(subject)
        elif not isinstance(match_args, TupleValue) or match_args.cls is not tuple or len(match_args.items) < ins.arg:
            raise Unsupported(f"the positional patterns do not fit {cls_value.describe()}")
        else:
            attributes = tx.constants(match_args.items[: ins.arg])
    attributes += names
    if any(type(a) is not str for a in attributes) or len(set(attributes)) < len(attributes):
        raise Unsupported(f"a pattern with an attribute of {cls_value.describe()} twice, or with one that has no name")
    for name in attributes:
        found = attribute_or_none(tx, subject, name)
        if found is None:
            tx.push(ConstantValue(None))
            return
        values.append(found)
    tx.push(TupleValue(values))
