"""Imported Python modules (types.ModuleType)."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import AttrSource, DictSource, Source, key_source
from framejit.values.base import Value

if TYPE_CHECKING:
    from framejit.capture.codegen import Codegen
    from framejit.interpreter.frame import Frame


class PythonModuleValue(Value):
    source: Source

    def __init__(self, module: types.ModuleType, source: Source) -> None:
        self.module, self.source = module, source

    def python_type(self) -> type:
        return type(self.module)

    def describe(self) -> str:
        return f"module {self.module.__name__}"

    def constant(self) -> Any:
        return self.module

    def getattr(self, tx: Frame, name: str) -> Value:
        written = tx.capture.effects.attribute(self, name)
        if written is not None:
            return written
        namespace = self.module.__dict__
        if name in namespace:
            if tx.capture.effects.globals_of(namespace).get(name) is not None:
                found = tx.capture.effects.globals_of(namespace)[name]
                assert found is not None
                return found
            return tx.wrap(namespace[name], key_source(DictSource(self.source), name))
        try:
            value = getattr(self.module, name)  # __getattr__ of the module, __dict__, __name__ ...
        except AttributeError as e:
            tx.capture.add_guard(DictSource(self.source), native.C_NO_KEY, name)
            raise tx.raised(AttributeError, str(e)) from None
        return tx.wrap(value, AttrSource(self.source, name))

    def setattr(self, tx: Frame, name: str, value: Value | None) -> None:
        tx.capture.effects.set_attribute(self, name, value)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(self.module)
