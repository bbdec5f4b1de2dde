"""torch.compile beside framejit, in one program or one call of it.

While code that Dynamo compiles runs, Dynamo looks at each frame of its thread: at those of framejit's own Python, too,
which it would compile, with warnings of all that it does not know there. And what its hook passes on to ours is its own
code, or what it has left to Python.

Torch keeps Dynamo out of functions of its own by importing it, when one of them is first called. Methods of optimisers
are such, and so all programs that train wait for that import, 1.5 to 4 s. Scripts that framejit runs need not:
`call_without_dynamo`.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FunctionType
from typing import Any, Final

import torch

from framejit import _native

_WRAPPER: Final = "_disable_dynamo.<locals>.inner"
"""The name of the code that torch wraps around functions to keep Dynamo out."""
_STEP: Final = "_use_grad_for_differentiable.<locals>._use_grad"
"""The name of the code that torch wraps around the steps of its optimisers. It imports Dynamo, to have it break the
graph there."""
_IN_ITS_PLACE: Final = {"torch._dynamo": "torch", "_dynamo": "compiler", "graph_break": "is_dynamo_compiling"}
"""The names in that code, and those that it gets instead: it asks something that does nothing."""
_ITS_NAMES: Final = {
    *_IN_ITS_PLACE, "torch", "cast", "Optimizer", "is_grad_enabled", "set_grad_enabled", "defaults",
}
_KNOWN: Final = "__dynamo_disable"
"""The attribute of such a function in which torch keeps what to call in its place."""
_hook: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


_DYNAMO: Final = os.path.join(os.path.dirname(torch.__file__), "_dynamo")
_MARKING: Final = {
    "DisableContext.__call__.<locals>._fn": "is marked @torch.compiler.disable",
    "get_nonrecursive_disable_wrapper.<locals>.nonrecursive_disable_wrapper": "is marked @torch.compiler.disable",
    "_TorchDynamoContext.__call__.<locals>.compile_wrapper": "is compiled by torch.compile",
}
"""The names of the code that torch puts around functions of the program, and what that says of these."""


def said_to_dynamo(fn: FunctionType) -> str | None:
    """What the program has said to Dynamo of a function, by torch's own wrapper around it. What is kept out of Dynamo's
    graphs is never captured, as if it were marked `framejit.disable`."""
    said = _MARKING.get(fn.__code__.co_qualname)
    if said is None or not fn.__code__.co_filename.startswith(_DYNAMO):
        return None
    inner = fn.__dict__.get("_torchdynamo_orig_callable")
    inner = getattr(inner, "__func__", inner)  # of a method
    if "disable" in said and isinstance(inner, FunctionType):
        _native.skip_code(inner.__code__)
    return said


def kept_from_dynamo(code: CodeType) -> CodeType:
    """The code, whose frames, and all that these call, Dynamo passes by from now on."""
    if hasattr(_hook, "set_code_exec_strategy"):
        skip = _hook._FrameAction.SKIP
        _hook.set_code_exec_strategy(code, _hook._FrameExecStrategy(skip, skip))
    return code


def leave_frames_to_dynamo() -> None:
    """Have our hook pass by frames that Dynamo looks at."""
    if hasattr(_hook, "get_eval_frame_callback"):
        _native.ask_other_compiler(_hook.get_eval_frame_callback)


def call_without_dynamo() -> None:
    """Have these methods of optimisers called as they are, without an import of Dynamo, for as long as nothing else has
    imported it: it can't be at work then."""
    for wrapper in vars(torch.optim.Optimizer).values():
        if isinstance(wrapper, FunctionType) and wrapper.__code__.co_qualname == _WRAPPER:
            _call_as_it_is(wrapper)
    for each in vars(torch.optim).values():
        step = vars(each).get("step") if isinstance(each, type) else None
        if not isinstance(step, FunctionType) or step.__code__.co_qualname != _STEP:
            continue
        names = step.__code__.co_names
        if _ITS_NAMES.issuperset(names) and all(map(names.__contains__, _IN_ITS_PLACE)):  # or a torch that does more
            step.__code__ = step.__code__.replace(co_names=tuple(_IN_ITS_PLACE.get(name, name) for name in names))


def _call_as_it_is(wrapper: Any) -> None:
    function = wrapper.__wrapped__

    def as_it_is(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if getattr(function, _KNOWN, None) is as_it_is:
            delattr(function, _KNOWN)
        return wrapper(*args, **kwargs)  # which asks Dynamo now

    if not hasattr(function, _KNOWN):
        setattr(function, _KNOWN, as_it_is)
