"""torch.compile beside framejit, in one program or one call of it.

While code that Dynamo compiles runs, Dynamo looks at each frame of its thread: at those of framejit's own Python, too,
which it would compile, with warnings of all that it does not know there. And what its hook passes on to ours is its own
code, or what it has left to Python.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

import torch

from framejit import _native

_hook: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


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
