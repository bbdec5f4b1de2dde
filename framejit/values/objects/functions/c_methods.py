"""Methods of built-in types, bound to a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.models.model_registry import is_modelled
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.inspection import is_a
from framejit.values.objects.functions.bound_descriptor import METHODS, BoundDescriptor
from framejit.values.objects.functions.signatures import checked
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame


class BuiltinMethodValue(BoundDescriptor):
    """Method `name` of a built-in type bound to `owner`; `static` is the descriptor when known. A class may have it
    under another name: `push = list.append`."""

    def __init__(self, owner: Value, name: str, static: Any = None) -> None:
        super().__init__(owner, static.__name__ if is_a(static, METHODS) else name)
        self.static = static

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return ConstantValue(self.name)
        if name == "__qualname__":
            return ConstantValue(f"{self.owner.python_type().__qualname__}.{self.name}")
        return frame.builtin_attribute(self, name)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        args, kwargs = [realize(frame, a) for a in args], {k: realize(frame, v) for k, v in kwargs.items()}
        static = self.static if self.static is not None else static_lookup(self.owner.python_type(), self.name, None)
        if is_a(static, METHODS):
            (_, *args), kwargs = checked(frame, static, [self.owner, *args], kwargs)
            if is_modelled(static):
                return frame.call(from_python(static), [self.owner, *args], kwargs)
        return self.owner.c_method(frame, self.name, self.static, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        if self.static is not None and static_lookup(self.owner.python_type(), self.name, None) is not self.static:
            # reached through super(): by its name the class has another one
            cg.em.call_object(
                type(self.static).__get__, lambda: (cg.em.load_object(self.static), cg.load(self.owner)), 2
            )
            return
        super().reconstruct(cg)
