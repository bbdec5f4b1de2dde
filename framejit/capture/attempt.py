"""From a frame to an entry: attempts at capturing it, each of which may ask for another that breaks the graph earlier."""

from __future__ import annotations

import inspect

import torch

from framejit import _native as native
from framejit.capture.capture import Broken, Capture
from framejit.capture.dynamic_dims import DynamicDims
from framejit.capture.entry_assembly import codegen, compiled_entry, plain_entry
from framejit.capture.frame_compilation import FrameCompilation
from framejit.capture.graph_break import finish_at_break
from framejit.capture.recompile import changing_numbers, explain_recompile
from framejit.config import config
from framejit.events import emit
from framejit.interpreter.policy import frame_reader, may_hold_tensors
from framejit.values.signals import Restart, SkipFrame, Unsupported

MAX_RESTARTS = 200


def compile_frame(compilation: FrameCompilation) -> native.Entry | None:
    """Capture the frame and add an entry for it.

    Raises LimitReached, SkipFrame or Unsupported when it stays with plain Python, GraphBreakError under fullgraph, and BackendError.
    """
    fn, flat_args = compilation.fn, compilation.flat_args
    emit("capture_started", **compilation.place, fn=fn, flat_args=flat_args)
    changing = changing_numbers(compilation, explain_recompile(compilation))
    dynamic = DynamicDims.of_compilation(compilation)
    _check_capturable(compilation)
    forced: dict[int, Unsupported] = {}
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
        # Operations mean something else here; the entry is guarded by this state.
        outside = Capture(fn, flat_args, forced)
        try:
            return plain_entry(compilation, outside, "a torch dispatch mode or functorch transform is active")
        finally:
            outside.close()
    for _ in range(MAX_RESTARTS):
        capture = Capture(fn, flat_args, forced, changing | compilation.points.changing, dynamic)
        try:
            return _attempt(compilation, capture)
        except Restart as again:
            if again.seq in forced:
                raise SkipFrame(again.reason.reason, again.reason.code) from None
            forced[again.seq] = again.reason
        finally:
            capture.close()
    raise SkipFrame("too many restarts", "FJ205")


def _check_capturable(compilation: FrameCompilation) -> None:
    code = compilation.fn.__code__
    reader = frame_reader(code)
    if reader is not None:
        raise SkipFrame(reader, "FJ201")
    if not isinstance(compilation.owner, native.Dispatcher) and not may_hold_tensors(compilation.flat_args):
        raise SkipFrame("no tensor or module among the arguments", "FJ207")
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise SkipFrame("a generator or coroutine, whose frame runs in pieces", "FJ208")


def _attempt(compilation: FrameCompilation, capture: Capture) -> native.Entry | None:
    try:
        result = capture.root.run()
    except Broken as broken:
        return finish_at_break(compilation, capture, broken)
    if compilation.resume is None and capture.graph.n_ops == 0:
        return plain_entry(compilation, capture, "no tensor operations")
    if compilation.resume is None and capture.graph.n_ops < config.min_graph_size:
        return plain_entry(compilation, capture, f"fewer tensor operations than config.min_graph_size: {capture.graph.n_ops}")
    cg = codegen(compilation, capture, compilation.fn.__code__.co_firstlineno)
    cg.finish_return(result)
    return compiled_entry(compilation, capture, cg, "compiled", "")
