"""The resume functions of an optimized function (`resume.py`), and what its captures share besides."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.bytecode.resume_code import Layout
    from framejit.capture.breaks.broken_frame import BrokenFrame
    from framejit.interpreter.provenance import Origins


@dataclass
class ResumePoints:
    """The resume functions that belong to one optimized function; they live and die with it."""

    on_miss: Callable[..., Any]
    options: Any
    owner: Callable[[], Any] = lambda: None
    """Gives what holds the entries of the function, where captures have begun in it."""
    parts: dict[FunctionType, tuple[int, int]] = field(default_factory=dict)
    """For what has been captured up to a break: how many operations, and of how many elements the largest result is."""
    functions: dict[Any, FunctionType] = field(default_factory=dict)
    dispatchers: dict[int, native.Dispatcher] = field(default_factory=dict)
    # keyed by ids of what the frames keep alive
    steps: dict[Any, tuple[native.Dispatcher, list[BrokenFrame]]] = field(default_factory=dict)
    entries: list[native.Entry] = field(default_factory=list)  # of steps, whose slots they own
    changing: set[str] = field(default_factory=set)  # variables holding numbers that differ from call to call
    tensor_steps: set[native.Dispatcher] = field(default_factory=set)  # those that carry out an operation on a tensor
    origins: Origins | None = None  # from the first capture of this process on
    raising: dict[tuple[int, int], tuple[CodeType, str]] = field(default_factory=dict)
    """Operations that raised when graphs ran them, by id of their code and index there, with the code and what was
    raised."""
    sizes_known: bool = False  # whether the backend has had to do without symbolic sizes
    raises_as_compiled: bool = False  # whether what a library does for a compiler has raised

    def function(
        self, frame: BrokenFrame, index: int, layout: Layout, inner: FunctionType | None = None
    ) -> FunctionType:
        """The function that goes on at instruction `index` of the frame's code.

        With `inner` it first finishes the call at `index`: it takes that inner resume function, and the arguments for
        it, and goes on behind the call with its result. Each inner function has an outer one of its own: what is
        assumed about arguments at one place says nothing about those at another.
        """
        code = frame.code
        key = (id(code), id(frame.globals), id(frame.builtins), index, layout, id(inner))
        found = self.functions.get(key)
        if found is None:
            from framejit.bytecode.resume_code import ResumeCode  # graphs that don't break need none of this
            from framejit.capture.breaks.resume import resume_code

            inner_args = None if inner is None else inner.__code__.co_argcount
            inner_fresh = () if inner is None else inner._framejit_resume.fresh  # type: ignore[attr-defined]
            made, indices, n_taking_over = resume_code(code, index, layout, inner_args)
            found = self.functions[key] = native.function_with_builtins(made, frame.globals, frame.builtins)
            found.__qualname__ = code.co_qualname
            fresh = self._fresh(layout, inner_fresh)
            resume = ResumeCode(layout, code, index, indices, fresh, n_taking_over, inner)
            found._framejit_resume = resume  # type: ignore[attr-defined]
        return found

    def interrupted(self, fn: FunctionType, error: BaseException) -> FunctionType:
        """A function that goes on as a resume function does, and raises an exception there, before anything else."""
        from framejit.capture.breaks.resume import raising_copy

        raising = raising_copy(fn)
        native.raise_later(error)
        return raising

    def interrupted_entry(self, fn: FunctionType, error: BaseException) -> native.Entry:
        """An entry for one call of a resume function, which raises an exception where that goes on."""
        raising = self.interrupted(fn, error)
        return native.Entry(raising.__code__, raising, native.GuardTree([]), (), native.RUNS_USER_CODE)

    def _fresh(self, layout: Layout, inner_fresh: tuple[int, ...]) -> tuple[int, ...]:
        from framejit.bytecode.resume_code import NOT_PASSED, StackSlot

        kinds = [k for k in layout.stack if k not in NOT_PASSED]
        own = tuple(i for i, k in enumerate(kinds) if k == StackSlot.RESULT)
        return own + tuple(len(layout.parameters()) + 1 + i for i in inner_fresh)

    def dispatcher(self, fn: FunctionType) -> native.Dispatcher:
        """The Dispatcher through which a resume function is captured."""
        found = self.dispatchers.get(id(fn))
        if found is None:
            found = self.dispatchers[id(fn)] = native.Dispatcher(fn, self.on_miss, self.options)
            found.resume_points = self
        return found
