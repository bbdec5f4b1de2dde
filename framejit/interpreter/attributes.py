"""Attributes, also through super(), and imports."""
from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from framejit.guards.sources import const_source
from framejit.interpreter.opcodes import opcode
from framejit.interpreter.variables import NULL_FIRST
from framejit.signals import Raised, Unsupported
from framejit.values.base import Value
from framejit.values.bound_descriptor import BoundDescriptor
from framejit.values.objects.classes import ClassValue, make_super
from framejit.values.objects.python_module import PythonModuleValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


def _push_callable(tx: Frame, value: Value) -> None:
    """Push a callable and its NULL, in the order of the running version."""
    if NULL_FIRST:
        tx.push_null()
    tx.push(value)
    if not NULL_FIRST:
        tx.push_null()


@opcode("LOAD_ATTR")
def load_attr(tx: Frame, ins: Instruction) -> None:
    method, name = ins.arg if isinstance(ins.arg, tuple) else (False, ins.arg)
    if method:
        _load_method(tx, name)
    else:
        tx.push(tx.pop().getattr(tx, name))


@opcode("LOAD_METHOD", until=(3, 11))
def load_method(tx: Frame, ins: Instruction) -> None:
    _load_method(tx, ins.arg)


def _load_method(tx: Frame, name: str) -> None:
    owner = tx.pop()
    found = owner.getattr(tx, name)
    if isinstance(found, BoundDescriptor) and found.owner is owner and found.name == name:
        found.loaded_to_call = True
    _push_callable(tx, found)


@opcode("LOAD_SUPER_ATTR", since=(3, 12))
def load_super_attr(tx: Frame, ins: Instruction) -> None:
    owner, start, function = tx.pop(), tx.pop(), tx.pop()
    flags = ins.arg if isinstance(ins.arg, tuple) else (False, ins.arg)
    method, name = flags[0], flags[-1]
    if not isinstance(function, ClassValue) or function.cls is not super:
        raise Unsupported("a global variable called super that is not Python's own")
    value = make_super(start, owner).getattr(tx, name)
    if method:
        _push_callable(tx, value)
    else:
        tx.push(value)


@opcode("STORE_ATTR")
def store_attr(tx: Frame, ins: Instruction) -> None:
    owner, value = tx.pop(), tx.pop_unseen()
    owner.setattr(tx, ins.arg, value)


@opcode("DELETE_ATTR")
def delete_attr(tx: Frame, ins: Instruction) -> None:
    tx.pop().setattr(tx, ins.arg, None)


@opcode("IMPORT_NAME")
def import_name(tx: Frame, ins: Instruction) -> None:
    from_list, level = tx.pop().constant(), tx.pop().constant()
    package = tx.globals.get("__package__") or tx.globals.get("__name__", "").rpartition(".")[0]
    name = importlib.util.resolve_name("." * level + ins.arg, package) if level else ins.arg
    module = sys.modules.get(name)
    if module is None:
        raise Unsupported(f"the first import of {name}", "FJ118", "import it at the top of the file")
    if from_list and hasattr(module, "__path__"):
        for part in from_list:
            if not hasattr(module, part):  # a module of the package, perhaps
                raise Unsupported(f"the first import of {name}.{part}", "FJ118", "import it at the top of the file")
    if not from_list and not level:
        module = sys.modules[name.partition(".")[0]]
    tx.push(PythonModuleValue(module, const_source(module, module.__name__)))


@opcode("IMPORT_FROM")
def import_from(tx: Frame, ins: Instruction) -> None:
    module = tx.peek(1)
    try:
        with tx.catching():
            tx.push(module.getattr(tx, ins.arg))
    except Raised:
        assert isinstance(module, PythonModuleValue)
        found = sys.modules.get(f"{module.module.__name__}.{ins.arg}")
        if found is None:
            raise
        tx.push(from_python(found))
