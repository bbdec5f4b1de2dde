"""Attributes, also through super(), and imports."""
from __future__ import annotations

import builtins
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from framejit import _native as native
from framejit.guards.sources import BuiltinSource, const_source, key_source
from framejit.interpreter.handlers.variables import NULL_FIRST
from framejit.interpreter.opcodes import opcode
from framejit.signals import LooksAtFrame, Raised, Unsupported
from framejit.values.base import Value
from framejit.values.builtins.reflection import attribute_or_none
from framejit.values.inspection import is_a, is_of_torch
from framejit.values.objects.classes import ClassValue, make_super
from framejit.values.objects.functions.bound_descriptor import BoundDescriptor
from framejit.values.objects.python_module import PythonModuleValue

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


def _push_callable(frame: Frame, value: Value) -> None:
    """Push a callable and its NULL, in the order of the running version."""
    if NULL_FIRST:
        frame.push_null()
    frame.push(value)
    if not NULL_FIRST:
        frame.push_null()


@opcode("LOAD_ATTR")
def load_attr(frame: Frame, ins: Instruction) -> None:
    method, name = ins.arg if isinstance(ins.arg, tuple) else (False, ins.arg)
    if method:
        _load_method(frame, name)
    else:
        frame.push(frame.pop().getattr(frame, name))


@opcode("LOAD_METHOD", until=(3, 11))
def load_method(frame: Frame, ins: Instruction) -> None:
    _load_method(frame, ins.arg)


def _load_method(frame: Frame, name: str) -> None:
    owner = frame.pop()
    found = owner.getattr(frame, name)
    if isinstance(found, BoundDescriptor) and found.owner is owner and found.name == name:
        found.loaded_to_call = True
    _push_callable(frame, found)


@opcode("LOAD_SUPER_ATTR", since=(3, 12))
def load_super_attr(frame: Frame, ins: Instruction) -> None:
    owner, start, function = frame.pop(), frame.pop(), frame.pop()
    method, has_arguments, name = ins.arg
    if not isinstance(function, ClassValue) or function.cls is not super:
        said = "a global variable called super that is not Python's own"
        # code that goes on elsewhere names both arguments
        raise Unsupported(said) if has_arguments else LooksAtFrame(said)
    value = make_super(start, owner).getattr(frame, name)
    if method:
        _push_callable(frame, value)
    else:
        frame.push(value)


@opcode("STORE_ATTR")
def store_attr(frame: Frame, ins: Instruction) -> None:
    owner, value = frame.pop(), frame.pop_unseen()
    owner.setattr(frame, ins.arg, value)


@opcode("DELETE_ATTR")
def delete_attr(frame: Frame, ins: Instruction) -> None:
    frame.pop().setattr(frame, ins.arg, None)


@opcode("IMPORT_NAME")
def import_name(frame: Frame, ins: Instruction) -> None:
    from_list, level = frame.pop().constant(), frame.pop().constant()
    if frame.builtins.get("__import__") is not builtins.__import__:
        raise Unsupported("an import in a namespace with an __import__ of its own", "FJ115")
    frame.wrap(builtins.__import__, BuiltinSource("__import__"))
    package = frame.globals.get("__package__") or frame.globals.get("__name__", "").rpartition(".")[0]
    name = importlib.util.resolve_name("." * level + ins.arg, package) if level else ins.arg
    module = _imported(frame, name)
    value = PythonModuleValue(module, const_source(module, module.__name__))
    if not from_list:
        frame.push(
            value
            if level
            else PythonModuleValue(
                front := _imported(frame, name.partition(".")[0]), const_source(front, front.__name__)
            )
        )
        return
    lazy = "__getattr__" in vars(module) and not is_of_torch(name)
    if "__path__" in vars(module):
        for part in from_list:
            if part not in vars(module) and (lazy or not hasattr(module, part)):  # a module of the package, perhaps
                raise Unsupported(f"the first import of {name}.{part}", "FJ118", "import it at the top of the file")
    elif lazy:
        attribute_or_none(frame, value, "__path__")
    frame.push(value)


def _imported(frame: Frame, name: str) -> ModuleType:
    """The module that `sys.modules` has under a name, which is guarded: the program may put another there."""
    module = sys.modules.get(name)
    if module is None:
        raise Unsupported(f"the first import of {name}", "FJ118", "import it at the top of the file")
    if is_of_torch(name):
        return module
    if not is_a(module, ModuleType):
        raise Unsupported(f"an import of {name}, which is a {native.type_name(type(module))}, not a module")
    frame.wrap(module, key_source(const_source(sys.modules, "sys.modules"), name))
    return module


@opcode("IMPORT_FROM")
def import_from(frame: Frame, ins: Instruction) -> None:
    module = frame.peek(1)
    try:
        with frame.catching():
            frame.push(module.getattr(frame, ins.arg))
    except Raised as e:
        if not issubclass(e.value.cls, AttributeError):
            raise
        name = f"{module.module.__name__}.{ins.arg}" if isinstance(module, PythonModuleValue) else ""
        if name not in sys.modules:
            raise Unsupported(f"an import of {ins.arg}, which {module.describe()} has not") from None
        found = _imported(frame, name)
        frame.push(PythonModuleValue(found, const_source(found, found.__name__)))
