"""torch.nn.Module instances: parameters, buffers and submodules from their tables, hooks honoured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_module

from framejit import _native as native
from framejit.guards.sources import (
    MODULE_TABLES,
    AttrSource,
    DictSource,
    Source,
    const_source,
    key_source,
    static_lookup,
)
from framejit.originals import ClassOfOriginal, original_of
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue
from framejit.values.objects.user_object import ObjectValue
from framejit.values.wrap import from_python, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame

Module = torch.nn.Module
_SLICED = (torch.nn.ModuleList.__getitem__, torch.nn.Sequential.__getitem__)
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_HOOKS = (*_BACKWARD_HOOKS, "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks", "_global_forward_pre_hooks",
)


class ModuleValue(ObjectValue):
    """An existing module.  Its tables keep torch's own invariant: a name stands in at most one of them."""

    obj: Module

    def generic_getattr(self, frame: Frame, name: str) -> Value:
        if name == "__class__" and _is_optimized(self.cls):
            return from_python(type(original_of(self.obj)))
        return super().generic_getattr(frame, name)

    def claims_another_class(self) -> bool:
        if _is_optimized(self.cls):
            return type(original_of(self.obj)) not in self.cls.__mro__
        return super().claims_another_class()

    def missing(self, frame: Frame, name: str) -> Value:
        if static_lookup(self.cls, "__getattr__") is not Module.__getattr__ or self.source is None:
            return super().missing(frame, name)
        own = DictSource(self.source)
        for table in MODULE_TABLES:
            entries = self.attrs.get(table) or frame.capture.known(self.obj.__dict__.get(table))
            if isinstance(entries, DictValue):  # the captured code has seen, and may have changed, this table
                if name in entries.items:
                    return entries.items[name]
            elif name in self.obj.__dict__.get(table, ()):
                return frame.wrap(self.obj.__dict__[table][name], key_source(key_source(own, table), name))
        for table in MODULE_TABLES:
            frame.capture.add_guard(key_source(own, table), native.C_NO_KEY, name)
        raise frame.raised(AttributeError, f"{native.type_name(self.cls)!r} object has no attribute {name!r}")

    def instance_attribute(self, frame: Frame, name: str, shadowing: bool = False) -> Value | None:
        if (
            not shadowing
            and name not in self.attrs
            and name not in self.obj.__dict__
            and any(name in self.obj.__dict__.get(t, ()) for t in MODULE_TABLES)
        ):
            return None  # found in a table: setattr keeps the instance dict and the tables apart
        return super().instance_attribute(frame, name, shadowing)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.forwards_directly(frame):
            return self.getattr(frame, "forward").call(frame, args, kwargs)
        return super().call(frame, args, kwargs)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        key = args[0] if name == "__getitem__" and len(args) == 1 else None
        if (
            isinstance(key, ConstantValue)
            and isinstance(key.value, slice)
            and any(static_lookup(self.cls, name) is own for own in _SLICED)
        ):
            whole = super().call_method(frame, "__iter__", [], {})
            return ModuleSliceValue(self, key.value, list(frame.iterate(whole))[key.value])
        return super().call_method(frame, name, args, kwargs)

    def forwards_directly(self, frame: Frame) -> bool:
        """Whether calling the module is calling its forward, there being no hooks; guarded if so."""
        stock = (
            (_is_of_module(self.cls, "__call__", "_wrapped_call_impl") or _is_call_of_graph_module(self.cls))
            and _is_of_module(self.cls, "_call_impl", "_call_impl")
            and "_call_impl" not in self.obj.__dict__
        )
        return stock and self.source is not None and not self._has_hooks(frame)

    def _has_hooks(self, frame: Frame) -> bool:
        """Whether Module.__call__ would do more than forward; guarded when it would not."""
        own = self.obj.__dict__
        if (
            own.get("_compiled_call_impl") is not None
            or any(own.get(h) for h in _HOOKS)
            or any(getattr(torch_module, h) for h in _GLOBAL_HOOKS)
            or any(h in self.attrs for h in _HOOKS)
        ):
            if any(_is_of_torch_distributed(hook) for name in _HOOKS for hook in (own.get(name) or {}).values()):
                # not in the midst of nn.Module.__call__: there each module would need an entry of its own, by the
                # numbers of its hooks; `forward`, which the frame hook meets, has one for all modules alike
                raise Unsupported(
                    f"{self.describe()} has hooks of torch.distributed, which work with other processes",
                    "FJ116", "nothing has to be done: its forward and backward are compiled by themselves",
                )
            has_backward_hooks = any(own.get(name) for name in _BACKWARD_HOOKS)
            if torch.is_grad_enabled() and has_backward_hooks and not self._may_cut_histories(frame):
                # they hang on nodes of autograd's, which no graph makes: the call would fall into a part for each of
                # the six times that torch asks for one
                raise Unsupported(
                    f"{self.describe()} has hooks of its backward, which torch calls",
                    "FJ116", "nothing has to be done: its forward and backward are compiled by themselves",
                )
            return True
        assert self.source is not None
        where: Source = DictSource(self.source)
        tables: list[tuple[object, Source]] = [(own.get(hook), key_source(where, hook)) for hook in _HOOKS]
        for hook in _GLOBAL_HOOKS:
            table = getattr(torch_module, hook)
            tables.append((table, const_source(table, hook)))
        for table, source in tables:
            known = frame.capture.known(table)
            if isinstance(known, DictValue) and known.items:  # which captured code has registered
                return True
            frame.capture.add_guard(source, native.C_LEN, 0)
        if "_compiled_call_impl" in own:
            frame.capture.add_guard(key_source(where, "_compiled_call_impl"), native.C_ID, None)
        return False

    def _may_cut_histories(self, frame: Frame) -> bool:
        """Whether hooks of the backward may be called in the graph: a backward may yet come that leads to them."""
        graph = frame.capture.graph
        is_full = self.obj.__dict__.get("_is_full_backward_hook") is not False
        return is_full and graph.cuts_for is not None and not graph.is_apart


def _is_of_torch_distributed(hook: Any) -> bool:
    module = getattr(hook, "__module__", None)
    return isinstance(module, str) and module.startswith("torch.distributed.")


def _is_optimized(cls: type) -> bool:
    """Whether it is the class of optimized modules, which say that they are of the class they were made from."""
    return type(static_lookup(cls, "__class__")) is ClassOfOriginal


def _is_of_module(cls: type, name: str, written: str) -> bool:
    """Whether a class has under `name` what torch.nn.Module defines as `written`, and nobody has put anything else in
    its place, in torch.nn.Module either."""
    code = getattr(static_lookup(cls, name), "__code__", None)
    return (
        code is not None and code.co_qualname == f"Module.{written}" and code.co_filename == torch_module.__file__
    )


def _is_call_of_graph_module(cls: type) -> bool:
    """Whether `__call__` is what torch.fx gives the classes of its modules, which calls nn.Module's and tells more of
    exceptions."""
    if not issubclass(cls, torch.fx.GraphModule):
        return False
    code = getattr(static_lookup(cls, "__call__"), "__code__", None)
    wrapped = static_lookup(cls, "_wrapped_call", None)
    return (
        code is not None
        and code.co_qualname == "GraphModule.recompile.<locals>.call_wrapped"
        and getattr(wrapped, "cls_call", True) is None
    )


class ModuleSliceValue(ListValue):
    """A slice of a ModuleList or Sequential: read like a list here, made by slicing again outside."""

    def __init__(self, whole: ModuleValue, key: slice, items: list[Value]) -> None:
        super().__init__(items)
        self.whole, self.key = whole, key

    def python_type(self) -> type:
        return self.whole.cls

    def change(self, frame: Frame, items: list[Value]) -> None:
        raise Unsupported(f"changing a slice of {self.whole.describe()}")

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not issubclass(self.whole.cls, torch.nn.Sequential) or kwargs or len(args) != 1:
            return super().call(frame, args, kwargs)
        value = args[0]
        for module in self.items:
            value = frame.call(module, [value], {})
        return value

    def getattr(self, frame: Frame, name: str) -> Value:
        raise Unsupported(f"attribute {name!r} of a slice of {self.whole.describe()}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.load(self.whole)
        cg.load(ConstantValue(self.key))
        cg.em.subscript()


@wraps(Module, subclasses=True)
def _existing_module(capture: Capture, obj: Module, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, type(obj))
    if _is_optimized(type(obj)):
        original = AttrSource(AttrSource(source, "__call__"), "__self__")
        capture.add_guard(original, native.C_TYPE, type(original_of(obj)))
    return ModuleValue(type(obj), obj, source)
