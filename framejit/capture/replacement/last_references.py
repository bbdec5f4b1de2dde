"""Variables that nothing reads again may hold the last reference to an object, whose end weak references and finalizers
see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.guards.sources import BuiltinSource, ConstSource
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.objects.python_module import PythonModuleValue
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen


def may_be_missed(cg: Codegen, value: Value) -> bool:
    """Whether letting go of a value could be seen by others: they may know the objects that existed before, and those
    that leave the captured code.

    Objects that only the captured code has known end unseen, but for what is in them. Classes with a finalizer are not
    made in captured code.
    """
    seen: set[int] = set()
    todo = [value]
    while todo:
        found = cg.resolved(todo.pop())
        if id(found) in seen or isinstance(found, (ConstantValue, SymNumberValue, SymIntValue, PythonModuleValue)):
            continue
        seen.add(id(found))
        if found.source is not None and not isinstance(found.source, (ConstSource, BuiltinSource)):
            return True
        if cg.is_kept(found) or isinstance(found, TensorValue) and cg.is_output(found):
            return True
        todo += found.children()
    return False
