"""Which Python functions are inlined."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from framejit.config import config
from framejit.environment.torch_compile import said_to_dynamo
from framejit.interpreter.frame_policy import PACKAGE, frame_reader, module_in
from framejit.signals import Unsupported
from framejit.values.builtins.c_functions import NUMPY_HINT, OUTPUT_HINT
from framejit.values.objects.functions.function_values import FunctionValue
from framejit.values.objects.functions.model_values import is_model_namespace

if TYPE_CHECKING:
    from framejit.values.objects.functions.function_values import CallableValue

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
    "statistics",
    "pickle",
)
_YET_INLINED = (
    "torch.autograd.functional", "torch.autograd.grad_mode", "torch.autograd.profiler",
    "torch._functorch.functional_call", "torch._functorch.deprecated", "torch._functorch.make_functional",
    "torch.fx.traceback", "torch.fx._pytree",
)
_YET_INLINED_FUNCTIONS = {
    "torch.fx.graph_module": ("GraphModule.recompile.<locals>.call_wrapped", "_WrappedCall.__call__"),
    "torch.jit._trace": ("_script_if_tracing.<locals>.wrapper",),
    "torch.utils.checkpoint": (
        "checkpoint_sequential", "checkpoint_sequential.<locals>.run_function",
        "checkpoint_sequential.<locals>.run_function.<locals>.forward",
    ),
}
"""By their modules functions that do nothing but call what they stand in front of, or were given."""
_NEVER_INLINED_CLASSES = {"torch._ops": ("HigherOrderOperator",)}
"""By their modules classes whose methods look for what is registered for the kinds of the arguments."""
_OUTPUT = ("logging", "warnings")
_OF_PROCESSES = ("torch.distributed.fsdp", "torch.distributed._composable", "torch.nn.parallel")
_FORWARD_HINT = "nothing has to be done: the forward of modules inside, and its backward, are compiled by themselves"


def refuse_inlining(fn: CallableValue, depth: int) -> Unsupported | None:
    """Why a function is called for real instead of inlined, or None."""
    module = fn.globals.get("__name__") or ""
    if isinstance(fn, FunctionValue):
        said = "is marked @framejit.disable" if hasattr(fn.fn, "_framejit_disable") else said_to_dynamo(fn.fn)
        if said is not None:
            hint = "remove the mark, or call it outside the compiled function"
            return Unsupported(f"{fn.describe()} {said}", "FJ116", hint)
    if depth >= config.max_inline_depth:
        return Unsupported(
            f"more than {config.max_inline_depth} calls deep", "FJ116", "raise framejit.config.max_inline_depth"
        )
    if module_in(module, _OUTPUT):
        return Unsupported(f"{fn.describe()} writes a message, which no graph can do", "FJ126", OUTPUT_HINT)
    if module_in(module, ("numpy",)):
        return Unsupported(f"{fn.describe()} works on numpy arrays, which are no part of a graph", "FJ105", NUMPY_HINT)
    if fn.code.co_qualname.split(".")[0] in _NEVER_INLINED_CLASSES.get(module, ()) or (
        module_in(module, _NEVER_INLINE)
        and not module_in(module, _YET_INLINED)
        and fn.code.co_qualname not in _YET_INLINED_FUNCTIONS.get(module, ())
    ):
        if module_in(module, _OF_PROCESSES):
            return Unsupported(f"{fn.describe()} works with other processes, as it is", "FJ116", _FORWARD_HINT)
        machinery = module.split(".")[0]
        return Unsupported(
            f"{fn.describe()} belongs to {machinery}'s own machinery and is called as it is",
            "FJ116",
            "call it outside the compiled function",
        )
    if is_model_namespace(fn.globals):
        return None
    if fn.code.co_filename.startswith(PACKAGE + os.sep):
        return Unsupported(f"{fn.describe()} is part of framejit", "FJ116")
    reader = frame_reader(fn.code, whole=True)
    return None if reader is None else Unsupported(reader, "FJ116", "call it outside the compiled function")
