"""What stands for an int where one is wanted: an index, a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.signals import NotConstant, Unsupported
from framejit.values.base import Value, is_user_object, realize
from framejit.values.inspection import runs_code

if TYPE_CHECKING:
    from framejit.values.context import Frame


def as_index(frame: Frame, value: Value) -> Any:
    """The int that `__index__` of an object gives; anything else as it is known."""
    value = realize(frame, value)
    if is_user_object(value) and issubclass(value.cls, int):
        return value.proxy()  # CPython does not ask an int
    if is_user_object(value) and static_lookup(value.cls, "__index__", None) is not None:
        value = realize(frame, value.call_method(frame, "__index__", [], {}))
        if value.python_type() is not int:
            raise Unsupported(f"__index__ that returns {value.describe()}", "FJ122")
    try:
        found = value.constant()
    except NotConstant:
        found = None
    if found is None and not value.is_constant() or runs_code(found):
        raise Unsupported(f"{value.describe()} as an index", "FJ122")
    return found
