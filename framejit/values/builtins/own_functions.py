"""framejit's own functions, called from captured code."""
from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.marks import graph_break, is_compiling
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.handlers import HANDLERS

if TYPE_CHECKING:
    from framejit.values.context import Frame


def _graph_break(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported("framejit.graph_break() asks for it", "FJ100")


def _is_compiling(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(True)


HANDLERS[graph_break] = _graph_break
HANDLERS[is_compiling] = _is_compiling
