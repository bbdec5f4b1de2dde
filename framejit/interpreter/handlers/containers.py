"""Building, extending and unpacking containers; text formatting."""
from __future__ import annotations

from typing import TYPE_CHECKING

from framejit import _native as native
from framejit.guards.sources import static_lookup
from framejit.interpreter.opcodes import VERSION, opcode
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.builtins.formatting import text_of
from framejit.values.builtins.reflection import attribute_or_none
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue, pairs
from framejit.values.containers.sets import SetValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.instance_checks import is_instance
from framejit.values.runtime_numbers.number_texts import NumberTextValue, joined, text_made_of
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


@opcode("BUILD_TUPLE")
def build_tuple(frame: Frame, ins: Instruction) -> None:
    frame.push(TupleValue(frame.pop_n(ins.arg)))


@opcode("BUILD_LIST")
def build_list(frame: Frame, ins: Instruction) -> None:
    frame.push(ListValue(frame.pop_n(ins.arg)))


@opcode("BUILD_SET")
def build_set(frame: Frame, ins: Instruction) -> None:
    made = SetValue(set())
    for member in frame.pop_n(ins.arg):
        made.put(frame, member)
    frame.push(made)


@opcode("BUILD_MAP")
def build_map(frame: Frame, ins: Instruction) -> None:
    flat = frame.pop_n(2 * ins.arg)
    made = DictValue({})
    for key, value in zip(flat[::2], flat[1::2]):
        made.put(frame, key, value)
    frame.push(made)


@opcode("BUILD_CONST_KEY_MAP", until=(3, 13))
def build_const_key_map(frame: Frame, ins: Instruction) -> None:
    keys = frame.pop().constant()
    frame.push(DictValue(dict(zip(keys, frame.pop_n(ins.arg)))))


@opcode("LIST_APPEND")
def list_append(frame: Frame, ins: Instruction) -> None:
    value = frame.pop_unseen()
    frame.peek(ins.arg).call_method(frame, "append", [value], {})


@opcode("SET_ADD")
def set_add(frame: Frame, ins: Instruction) -> None:
    value = frame.pop()
    frame.peek(ins.arg).call_method(frame, "add", [value], {})


@opcode("MAP_ADD")
def map_add(frame: Frame, ins: Instruction) -> None:
    value, key = frame.pop_unseen(), frame.pop()
    frame.peek(ins.arg).call_method(frame, "__setitem__", [key, value], {})


@opcode("LIST_EXTEND")
def list_extend(frame: Frame, ins: Instruction) -> None:
    value = frame.pop()
    if not can_be_iterated(value):
        raise frame.raised(TypeError, f"Value after * must be an iterable, not {native.type_name(value.python_type())}")
    frame.peek(ins.arg).call_method(frame, "extend", [value], {})


@opcode("SET_UPDATE")
def set_update(frame: Frame, ins: Instruction) -> None:
    value = frame.pop()
    frame.peek(ins.arg).call_method(frame, "update", [value], {})


@opcode("DICT_UPDATE")
def dict_update(frame: Frame, ins: Instruction) -> None:
    value = frame.pop()
    refuse_no_mapping(value)  # `update` would take pairs, too
    frame.peek(ins.arg).call_method(frame, "update", [value], {})


def refuse_no_mapping(value: Value) -> None:
    """Break where `**` is followed by what is no mapping: the message may name the function that was to be called."""
    if static_lookup(value.python_type(), "keys", None) is None:
        raise Unsupported(f"{value.describe()} as a mapping")


@opcode("DICT_MERGE")
def dict_merge(frame: Frame, ins: Instruction) -> None:
    value = frame.pop()
    target = frame.peek(ins.arg)
    assert isinstance(target, DictValue)
    refuse_no_mapping(value)
    new = pairs(frame, value)
    if not all(isinstance(k, str) for k in new) or any(k in target.items for k in new):
        raise Unsupported("a keyword argument that is given twice, or is no text", "FJ112")
    target.change(frame, {**target.items, **new})


@opcode("LIST_TO_TUPLE", until=(3, 11))
def list_to_tuple(frame: Frame, ins: Instruction) -> None:
    frame.push(TupleValue(list(frame.iterate(frame.pop()))))


def _items(frame: Frame, value: Value) -> list[Value]:
    if not can_be_iterated(value):
        raise frame.raised(TypeError, f"cannot unpack non-iterable {value.python_type().__name__} object")
    return list(frame.iterate(value))


def can_be_iterated(value: Value) -> bool:
    """Whether the class of a value has what iteration goes by; True also where the class is not known."""
    try:
        cls = value.python_type()
    except Unsupported:
        return True
    return any(static_lookup(cls, name, None) is not None for name in ("__iter__", "__getitem__"))


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, ins: Instruction) -> None:
    iterable, n = frame.pop(), ins.arg
    items = _items(frame, iterable)
    if len(items) > n:
        counted = VERSION >= (3, 14) and iterable.python_type() in (list, tuple, dict)
        got = f", got {len(items)}" if counted else ""
        raise frame.raised(ValueError, f"too many values to unpack (expected {n}{got})")
    if len(items) < n:
        raise frame.raised(ValueError, f"not enough values to unpack (expected {n}, got {len(items)})")
    for item in reversed(items):
        frame.push(item)


@opcode("UNPACK_EX")
def unpack_ex(frame: Frame, ins: Instruction) -> None:
    items, before, after = _items(frame, frame.pop()), int(ins.arg) & 0xFF, int(ins.arg) >> 8
    if len(items) < before + after:
        raise frame.raised(
            ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        )
    middle = items[before : len(items) - after]
    for item in reversed([*items[:before], ListValue(middle), *items[len(items) - after :]]):
        frame.push(item)


# ---- text -----------------------------------------------------------------------------------------


def _formatted(frame: Frame, value: Value, conversion: int, spec: Value) -> Value:
    if conversion:
        value = text_of(frame, (None, str, repr, ascii)[conversion], [value])
    is_text = isinstance(value, NumberTextValue) or isinstance(value, ConstantValue) and type(value.value) is str
    if is_text and spec.constant() == "":
        return value
    return text_of(frame, format, [value, spec])


@opcode("FORMAT_VALUE", until=(3, 12))
def format_value(frame: Frame, ins: Instruction) -> None:
    flags = int(ins.arg)
    spec = frame.pop() if flags & 4 else ConstantValue("")
    frame.push(_formatted(frame, frame.pop(), flags & 3, spec))


@opcode("CONVERT_VALUE", since=(3, 13))
def convert_value(frame: Frame, ins: Instruction) -> None:
    frame.push(text_of(frame, (None, str, repr, ascii)[int(ins.arg)], [frame.pop()]))


@opcode("FORMAT_SIMPLE", since=(3, 13))
def format_simple(frame: Frame, ins: Instruction) -> None:
    frame.push(_formatted(frame, frame.pop(), 0, ConstantValue("")))


@opcode("FORMAT_WITH_SPEC", since=(3, 13))
def format_with_spec(frame: Frame, ins: Instruction) -> None:
    spec = frame.pop()
    frame.push(_formatted(frame, frame.pop(), 0, spec))


@opcode("BUILD_STRING")
def build_string(frame: Frame, ins: Instruction) -> None:
    parts = [realize(frame, part) for part in frame.pop_n(ins.arg)]
    frame.push(text_made_of(joined, parts) or ConstantValue("".join(frame.constants(parts))))


# ---- template strings -----------------------------------------------------------------------------------

_HAS_SPEC, _CONVERSION = 1, 2  # a flag, and where the kind of conversion begins


@opcode("BUILD_INTERPOLATION", since=(3, 14))
def build_interpolation(frame: Frame, ins: Instruction) -> None:
    from framejit.values.containers.templates import InterpolationValue  # needs what 3.14 has

    spec = frame.pop() if ins.arg & _HAS_SPEC else ConstantValue("")
    expression, value = frame.pop(), frame.pop_unseen()
    conversion = (None, "s", "r", "a")[ins.arg >> _CONVERSION]
    frame.push(InterpolationValue(value, expression, ConstantValue(conversion), spec))


@opcode("BUILD_TEMPLATE", since=(3, 14))
def build_template(frame: Frame, ins: Instruction) -> None:
    from framejit.values.containers.templates import TemplateValue  # needs what 3.14 has

    interpolations, strings = frame.pop(), frame.pop()
    frame.push(TemplateValue(frame.constants(frame.iterate(strings)), TupleValue(list(frame.iterate(interpolations)))))


# ---- match statements -------------------------------------------------------------------------------


@opcode("GET_LEN")
def get_len(frame: Frame, ins: Instruction) -> None:
    frame.push(frame.call(from_python(len), [frame.peek(1)], {}))


# Py_TPFLAGS_SEQUENCE and so on: what match statements go by
_SEQUENCE, _MAPPING, _MATCHES_SELF = 1 << 5, 1 << 6, 1 << 22


def _matches(value: Value, flag: int) -> Value:
    return ConstantValue(bool(value.python_type().__flags__ & flag))


@opcode("MATCH_SEQUENCE")
def match_sequence(frame: Frame, ins: Instruction) -> None:
    frame.push(_matches(frame.peek(1), _SEQUENCE))


@opcode("MATCH_MAPPING")
def match_mapping(frame: Frame, ins: Instruction) -> None:
    frame.push(_matches(frame.peek(1), _MAPPING))


@opcode("MATCH_KEYS")
def match_keys(frame: Frame, ins: Instruction) -> None:
    keys, mapping = frame.peek(1), frame.peek(2)
    names = frame.constants(frame.iterate(keys))
    if not isinstance(mapping, DictValue) or len(set(names)) < len(names):
        raise Unsupported("a pattern for a mapping that is no dict, or with one key twice")
    found: list[Value] = []
    for key in frame.iterate(keys):
        if not frame.contains(mapping, key):
            frame.push(ConstantValue(None))
            return
        found.append(frame.subscript(mapping, key))
    frame.push(TupleValue(found))


@opcode("MATCH_CLASS")
def match_class(frame: Frame, ins: Instruction) -> None:
    names, cls_value, subject = frame.pop().constant(), frame.pop(), frame.pop()
    if not isinstance(cls_value, ClassValue):
        raise Unsupported(f"a class pattern with {cls_value.describe()}, which is no class")
    try:
        fits = is_instance(frame, subject, cls_value.cls)
    except TypeError as e:
        raise frame.raised_from(e) from None
    if not fits:
        frame.push(ConstantValue(None))
        return
    attributes, values = list[str](), list[Value]()
    if ins.arg:
        match_args = attribute_or_none(frame, cls_value, "__match_args__")
        if match_args is None and ins.arg == 1 and cls_value.cls.__flags__ & _MATCHES_SELF:
            values.append(subject)
        elif not isinstance(match_args, TupleValue) or match_args.cls is not tuple or len(match_args.items) < ins.arg:
            raise Unsupported(f"the positional patterns do not fit {cls_value.describe()}")
        else:
            attributes = frame.constants(match_args.items[: ins.arg])
    attributes += names
    if any(type(a) is not str for a in attributes) or len(set(attributes)) < len(attributes):
        raise Unsupported(f"a pattern with an attribute of {cls_value.describe()} twice, or with one that has no name")
    for name in attributes:
        found = attribute_or_none(frame, subject, name)
        if found is None:
            frame.push(ConstantValue(None))
            return
        values.append(found)
    frame.push(TupleValue(values))
