"""Imported Python modules (types.ModuleType)."""
from __future__ import annotations

import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import AttrSource, DictSource, Source, const_source, key_source, static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.mapping import DictValue
from framejit.values.inspection import is_a, is_of_torch
from framejit.values.wrap import makes, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame


class PythonModuleValue(Value):
    """A module of Python: an attribute is read from its dict, and guarded there."""

    source: Source

    def __init__(self, module: types.ModuleType, source: Source) -> None:
        self.module, self.source = module, source

    def python_type(self) -> type:
        return type(self.module)

    def describe(self) -> str:
        return f"module {self.module.__dict__.get('__name__')}"

    def constant(self) -> Any:
        return self.module

    def getattr(self, frame: Frame, name: str) -> Value:
        self._check_filters(frame, name)
        namespace = self.module.__dict__
        written = frame.capture.effects.globals_of(namespace)
        if name in written:
            found = written[name]
            if found is None:
                raise Unsupported(f"reading {self.module.__name__}.{name} after deleting it")
            return found
        known = frame.capture.known(namespace)
        if isinstance(known, DictValue):  # it was seen, and maybe changed, as a dict
            if name not in known.items:
                raise Unsupported(f"reading {self.module.__name__}.{name}, which its dict had not")
            return realize(frame, known.items[name])
        static = static_lookup(type(self.module), name, None)
        if is_a(static, (property, types.FunctionType, classmethod, staticmethod)) and (
            is_a(static, property) or name not in namespace
        ):
            frame.capture.add_guard(self.source, native.C_TYPE, type(self.module))
            return frame.class_attribute(self, type(self.module), name)
        if name in namespace:
            return frame.wrap(namespace[name], key_source(DictSource(self.source), name))
        own = namespace.get("__getattr__")
        if (
            is_a(own, types.FunctionType)
            and not is_of_torch(namespace.get("__name__"))
            and static is None
        ):
            frame.capture.add_guard(DictSource(self.source), native.C_NO_KEY, name)
            frame.capture.add_guard(self.source, native.C_TYPE, type(self.module))
            return frame.wrap(own, key_source(DictSource(self.source), "__getattr__")).call(
                frame, [ConstantValue(name)], {}
            )
        try:
            value = getattr(self.module, name)  # __getattr__ of the module, __dict__, __name__ ...
        except AttributeError as e:
            for missing in (name, "__getattr__"):
                if missing not in namespace:
                    frame.capture.add_guard(DictSource(self.source), native.C_NO_KEY, missing)
            frame.capture.add_guard(self.source, native.C_TYPE, type(self.module))
            raise frame.raised(AttributeError, str(e)) from None
        return frame.wrap(value, AttrSource(self.source, name))

    def _check_filters(self, frame: Frame, name: str) -> None:
        """What a block of caught warnings changes of `warnings`, and changes back, is not kept."""
        caught = frame.capture.caught_warnings
        if caught and self.module is warnings and name in ("filters", "showwarning"):
            frame.capture.break_at(
                caught[0].made_at, Unsupported(f"warnings.{name} inside of warnings.catch_warnings()", "FJ126")
            )

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        self._check_filters(frame, name)
        namespace = self.module.__dict__
        kind = type(self.module)
        if (
            kind.__setattr__ is not object.__setattr__
            and kind.__setattr__ is not types.ModuleType.__setattr__
            or hasattr(kind, name)
        ):
            raise Unsupported(f"setting attribute {name!r} of {self.describe()}")
        if isinstance(frame.capture.known(namespace), DictValue) or value is None and name not in namespace:
            raise Unsupported(f"setting or deleting attribute {name!r} of {self.describe()}")
        frame.capture.effects.set_global(namespace, name, value)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(self.module)


@wraps(types.ModuleType, subclasses=True)
def _existing_module(capture: Capture, obj: types.ModuleType, source: Source) -> Value:
    if static_lookup(type(obj), "__getattribute__") is not types.ModuleType.__getattribute__:
        raise Unsupported(f"a module of the class {type(obj).__qualname__}, whose __getattribute__ is its own")
    capture.add_guard(source, native.C_ID, obj)
    return PythonModuleValue(obj, source)


@makes(types.ModuleType, subclasses=True)
def _made_module(obj: types.ModuleType) -> Value:
    return PythonModuleValue(obj, const_source(obj))


if sys.version_info >= (3, 15):

    @wraps(types.LazyImportType)
    def _not_imported_yet(capture: Capture, obj: Any, source: Source) -> Value:
        """Python itself imports what a global names by `lazy import`, when it is first read, and puts it in the place
        of this object."""
        capture.add_guard(source, native.C_TYPE, type(obj))
        raise Unsupported(
            f"the first use of {source.name()}, which is imported lazily", "FJ118", "import it at the top of the file"
        )
