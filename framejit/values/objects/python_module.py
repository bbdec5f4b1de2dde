"""Imported Python modules (types.ModuleType)."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import AttrSource, DictSource, Source, key_source
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.containers.mapping import DictValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame


class PythonModuleValue(Value):
    source: Source

    def __init__(self, module: types.ModuleType, source: Source) -> None:
        self.module, self.source = module, source

    def python_type(self) -> type:
        return type(self.module)

    def describe(self) -> str:
        return f"module {self.module.__dict__.get('__name__')}"

    def constant(self) -> Any:
        return self.module

    def getattr(self, tx: Frame, name: str) -> Value:
        namespace = self.module.__dict__
        written = tx.capture.effects.globals_of(namespace)
        if name in written:
            found = written[name]
            if found is None:
                raise Unsupported(f"reading {self.module.__name__}.{name} after deleting it")
            return found
        known = tx.capture.known(namespace)
        if isinstance(known, DictValue):  # it was seen, and maybe changed, as a dict
            if name not in known.items:
                raise Unsupported(f"reading {self.module.__name__}.{name}, which its dict had not")
            return realize(tx, known.items[name])
        if name in namespace:
            return tx.wrap(namespace[name], key_source(DictSource(self.source), name))
        try:
            value = getattr(self.module, name)  # __getattr__ of the module, __dict__, __name__ ...
        except AttributeError as e:
            tx.capture.add_guard(DictSource(self.source), native.C_NO_KEY, name)
            raise tx.raised(AttributeError, str(e)) from None
        return tx.wrap(value, AttrSource(self.source, name))

    def setattr(self, tx: Frame, name: str, value: Value | None) -> None:
        namespace = self.module.__dict__
        kind = type(self.module)
        if kind.__setattr__ is not object.__setattr__ and kind.__setattr__ is not types.ModuleType.__setattr__ or hasattr(kind, name):
            raise Unsupported(f"setting attribute {name!r} of {self.describe()}")
        if isinstance(tx.capture.known(namespace), DictValue) or value is None and name not in namespace:
            raise Unsupported(f"setting or deleting attribute {name!r} of {self.describe()}")
        tx.capture.effects.set_global(namespace, name, value)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(self.module)
