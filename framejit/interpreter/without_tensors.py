"""Frames that the hook meets and that are not worth capturing. Told without the compiler."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import torch

from framejit.values.inspection import instance_dict, is_a


def why_not_worth_capturing(code: CodeType, flat_args: tuple[Any, ...]) -> str:
    """Why a frame that nobody named is left to Python: no tensor or module is in sight of it, or it makes a module,
    which is done once, and takes longer to compile. Empty for others."""
    if _makes_module(code, flat_args):
        return "a module is being made"
    return "" if _may_hold_tensors(flat_args) else "no tensor or module among the arguments"


def _may_hold_tensors(flat_args: tuple[Any, ...]) -> bool:
    """Whether a tensor or module is among the arguments, or one step inside them."""
    kinds = (torch.Tensor, torch.nn.Module)
    for arg in flat_args:
        if is_a(arg, kinds):
            return True
        inside = (
            arg.values()
            if type(arg) is dict
            else arg
            if type(arg) in (list, tuple)
            else (instance_dict(arg) or {}).values()
        )
        if any(is_a(x, kinds) for x in list(inside)):
            return True
    return False


def module_being_made() -> bool:
    """Whether a constructor of a module is running on this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__" and code.co_argcount:
            made = frame.f_locals.get(code.co_varnames[0])
            if is_a(made, (torch.nn.Module,)):
                return True
        frame = frame.f_back
    return False


def _makes_module(code: CodeType, flat_args: tuple[Any, ...]) -> bool:
    """Whether it is a constructor of modules."""
    return code.co_name == "__init__" and bool(flat_args) and is_a(flat_args[0], (torch.nn.Module,))
