"""What classes of torch.distributions give for their lazy properties.

`Distribution.__init__` looks at each of them to find out which parameters it was not given (`Categorical.probs` where
there are logits). Each time it is a new object, whose class is all that there is to ask of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from framejit.values.base import Value
from framejit.values.constant import is_none
from framejit.values.handlers import handles

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_utils: Any = torch.distributions.utils
_Made: type | None = getattr(_utils, "_lazy_property_and_property", None)


class LazyPropertyValue(Value):
    """`_lazy_property_and_property(wrapped)`."""

    built_once = True

    def __init__(self, cls: type, wrapped: Value) -> None:
        self.cls, self.wrapped = cls, wrapped

    def python_type(self) -> type:
        return self.cls

    def children(self) -> Any:
        return iter((self.wrapped,))

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(self.cls, lambda: cg.load(self.wrapped))


@handles(_utils.lazy_property.__get__)
def _looked_up(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if _Made is None or kwargs or len(args) != 3 or not is_none(args[1]):
        return None
    return LazyPropertyValue(_Made, args[0].getattr(frame, "wrapped"))
