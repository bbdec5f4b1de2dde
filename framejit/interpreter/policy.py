"""Which Python functions are inlined, and which frames the hook leaves alone."""

from __future__ import annotations

import dis
import os
import sysconfig
from functools import cache
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from framejit.config import config
from framejit.signals import Unsupported
from framejit.values.builtins.c_functions import NUMPY_HINT, OUTPUT_HINT
from framejit.values.inspection import instance_dict, is_a
from framejit.values.objects.function_values import FunctionValue
from framejit.values.objects.model_values import is_model_namespace

if TYPE_CHECKING:
    from framejit.values.objects.function_values import CallableValue

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_STDLIB = sysconfig.get_paths()["stdlib"]

# Python code that works on the interpreter or on torch's own machinery; it runs for real.
_NEVER_INLINE = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch",
    "torch.autograd",
    "torch.utils.checkpoint",
    "torch.multiprocessing",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.jit",
    "torch.fx",
    "torch._subclasses",
    "threading",
    "logging",
    "warnings",
    "importlib",
    "traceback",
    "linecache",
    "asyncio",
    "concurrent",
    "multiprocessing",
    "subprocess",
    "unittest",
    "pytest",
    "_pytest",
    "numpy",
    "random",
    "pickle",
)
_YET_INLINED = (
    "torch.autograd.grad_mode", "torch.autograd.profiler", "torch._functorch.functional_call", "torch.fx.traceback",
)
_OUTPUT = ("logging", "warnings")
_FRAME_ATTRIBUTES = frozenset(("_getframe", "currentframe"))
_VARIABLE_READERS = frozenset(("locals", "eval"))
_FRAME_READERS = _VARIABLE_READERS | {"exec"} | _FRAME_ATTRIBUTES
_NAME_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")  # a method may be called `eval`
_READERS_WITHOUT_ARGUMENTS = frozenset(("vars", "dir"))


@cache
def _module_in(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(p + ".") for p in prefixes)


def refuse_inlining(fn: CallableValue, depth: int) -> Unsupported | None:
    """Why a function is called for real instead of inlined, or None."""
    module = fn.globals.get("__name__") or ""
    if isinstance(fn, FunctionValue) and getattr(fn.fn, "_framejit_disable", False):
        return Unsupported(
            f"{fn.describe()} is marked @framejit.disable",
            "FJ116",
            "remove the mark, or call it outside the compiled function",
        )
    if depth >= config.max_inline_depth:
        return Unsupported(
            f"more than {config.max_inline_depth} calls deep", "FJ116", "raise framejit.config.max_inline_depth"
        )
    if _module_in(module, _OUTPUT):
        return Unsupported(f"{fn.describe()} writes a message, which no graph can do", "FJ126", OUTPUT_HINT)
    if _module_in(module, ("numpy",)):
        return Unsupported(f"{fn.describe()} works on numpy arrays, which are no part of a graph", "FJ105", NUMPY_HINT)
    if _module_in(module, _NEVER_INLINE) and not _module_in(module, _YET_INLINED):
        machinery = module.split(".")[0]
        return Unsupported(
            f"{fn.describe()} belongs to {machinery}'s own machinery and is called as it is",
            "FJ116",
            "call it outside the compiled function",
        )
    if is_model_namespace(fn.globals):
        return None
    if fn.code.co_filename.startswith(_PACKAGE + os.sep):
        return Unsupported(f"{fn.describe()} is part of framejit", "FJ116")
    reader = frame_reader(fn.code, whole=True)
    return None if reader is None else Unsupported(reader, "FJ116", "call it outside the compiled function")


def frame_reader(code: CodeType, whole: bool = False) -> str | None:
    """Why code can't be moved into another frame, or None. With `whole`, why it can't even be captured as a whole."""
    used = _names_used(code, _FRAME_READERS - _VARIABLE_READERS if whole else _FRAME_READERS)
    if not used and not _READERS_WITHOUT_ARGUMENTS.isdisjoint(code.co_names):
        used = _called_without_arguments(code)
    return f"{code.co_qualname} uses {min(used)}(), which looks at its own frame" if used else None


def _names_used(code: CodeType, wanted: frozenset[str]) -> frozenset[str]:
    used = wanted.intersection(code.co_names)
    if not used:
        return used
    return used.intersection(
        ins.argval for ins in dis.get_instructions(code) if ins.opname in _NAME_LOADS or ins.argval in _FRAME_ATTRIBUTES
    )


def reads_variables(code: CodeType) -> bool:
    """Whether code asks for its variables by name, so that it is captured as a whole or not at all."""
    return bool(_names_used(code, _VARIABLE_READERS))


def _called_without_arguments(code: CodeType) -> frozenset[str]:
    """Which of vars and dir the code calls without arguments, which then speak of its frame."""
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("PRECALL", "PUSH_NULL", "CACHE")]
    pairs = zip(instructions, instructions[1:])
    called = {
        a.argval for a, b in pairs if a.opname in ("LOAD_GLOBAL", "LOAD_NAME") and b.opname == "CALL" and b.arg == 0
    }
    return _READERS_WITHOUT_ARGUMENTS & called


def may_hold_tensors(flat_args: tuple[Any, ...]) -> bool:
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


def makes_module(code: CodeType, flat_args: tuple[Any, ...]) -> bool:
    """Whether it is a constructor of modules."""
    return code.co_name == "__init__" and bool(flat_args) and is_a(flat_args[0], (torch.nn.Module,))


def may_capture(code: CodeType, globals: dict[str, Any]) -> bool:
    """Whether frames of `code`, seen by the hook, are worth and safe to capture."""
    name = globals.get("__name__") or ""
    file = code.co_filename
    if file.startswith("<") and not file.startswith("<ipython"):
        return False
    if file.startswith((_PACKAGE + os.sep, _STDLIB + os.sep)) and "site-packages" not in file:
        return False
    if _module_in(name, ("torch", "framejit", "numpy", "bytecode", "triton", "llvmlite", "_pytest", "pytest")):
        return False
    return frame_reader(code) is None and code.co_name != "<module>"
