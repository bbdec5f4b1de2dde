"""One attempt to capture a frame: the graph, guards and side effects it gathers, and how it ends."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from framejit import _native as native
from framejit.capture.dynamic_dims import DynamicDims
from framejit.capture.graph_builder import GraphBuilder
from framejit.capture.input_sizes import InputSizes
from framejit.capture.side_effects import SideEffects
from framejit.events.place import Place
from framejit.guards.guard import Guard
from framejit.guards.sources import ArgSource, CellArgSource, CellContentsSource, ClosureCellSource, Source, StateSource
from framejit.values.base import Value
from framejit.values.functions import CellValue
from framejit.values.lazy import LazyValue
from framejit.values.signals import Restart, Unsupported
from framejit.values.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.capture.resume import ResumeCode
    from framejit.interpreter.frame import Frame


class Broken(Exception):
    """The graph breaks at the current instruction of `frame`."""

    def __init__(self, frame: Frame, reason: Unsupported) -> None:
        self.frame, self.reason = frame, reason


class Capture:
    """The state shared by all frames of one attempt.

    `forced` maps steps to the reasons the graph must break there, learnt from earlier attempts.  `changing` names
    the sources of numbers that differed between calls, `dynamic` the dimensions whose sizes are left open.
    """

    def __init__(
        self,
        fn: FunctionType,
        flat_args: tuple[Any, ...],
        forced: dict[int, Unsupported],
        changing: frozenset[str] = frozenset(),
        dynamic: DynamicDims | None = None,
    ) -> None:
        self.fn, self.flat_args, self.forced = fn, flat_args, forced
        self.name = fn.__qualname__
        self.graph = GraphBuilder()
        self.graph.user_frame, self.graph.user_place = self.user_stack_text, self.user_place
        self.effects = SideEffects()
        self.graph.on_write = self.effects.tensor_written
        self.frame: Frame | None = None
        self.seq = 0
        self.changing = changing
        self.dynamic = dynamic or DynamicDims(never=True)
        self.sizes = InputSizes(self)
        self.scalar_inputs: dict[Any, TensorValue] = {}
        self._guards: dict[Any, Guard] = {}
        self._memo: dict[int, tuple[Any, Value]] = {}
        self._cells: dict[int, CellValue] = {}
        self._undo: list[Callable[[], Any]] = []
        self._distinct_done: set[tuple[Source, Source]] = set()
        self.root: Frame = self._make_root()
        self.add_guard(StateSource(), native.C_STATE, native.snapshot_state())

    def _make_root(self) -> Frame:
        from framejit.interpreter.frame import Frame

        code = self.fn.__code__
        n = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        variables: dict[str, Value] = {}
        cells: dict[str, CellValue] = {}
        resume: ResumeCode | None = getattr(self.fn, "_framejit_resume", None)
        cell_arguments = resume.layout.cells if resume is not None else ()
        for i, (name, obj) in enumerate(zip(code.co_varnames[:n], self.flat_args)):
            if name in cell_arguments:
                cells[name] = self.cell(obj, CellArgSource(i, name), name)
            else:
                variables[name] = LazyValue(obj, ArgSource(i, name))
        for name in code.co_cellvars:
            if name not in cells:
                cells[name] = CellValue(variables.pop(name, None))
        for i, (name, cell) in enumerate(zip(code.co_freevars, self.fn.__closure__ or ())):
            cells[name] = self.cell(cell, ClosureCellSource(i, name), name)
        return Frame(self, code, self.fn.__globals__, None, variables, cells, None, True, resume)

    # ---- steps ------------------------------------------------------------------------------------

    def next_step(self) -> int:
        self.seq += 1
        return self.seq

    def progress(self) -> tuple[int, int]:
        """Changes when an instruction had an effect that can't be taken back."""
        return self.graph.n_ops, self.effects.version

    def break_graph(self, frame: Frame, reason: Unsupported) -> NoReturn:
        for guard in reason.assumes:
            self.add_guard(*guard)
        raise Broken(frame, reason)

    def break_at(self, seq: int, reason: Unsupported) -> NoReturn:
        """Start again and break at an earlier step."""
        raise Restart(seq, reason)

    def note_inner_break(self, frame: Frame, reason: Unsupported) -> None:
        """A break inside a call that is then made as a whole: say where it really was."""
        if reason.hint is None:
            where = f"{frame.code.co_filename}:{frame.instruction.line}"
            reason.reason = reason.reason if "(in " in reason.reason else f"{reason.reason} (in {frame.name}, {where})"

    # ---- guards -----------------------------------------------------------------------------------

    def add_guard(self, source: Source, check: int, payload: Any = None, also: tuple[Source, ...] = ()) -> None:
        guard = Guard(source, check, payload, also, self.user_line())
        self._guards.setdefault(guard.key(), guard)

    def guard_same(self, a: Source, b: Source) -> None:
        self.add_guard(a, native.C_SAME, None, (b,))

    def guard_distinct(self, a: Source, b: Source) -> None:
        if (a, b) not in self._distinct_done and (b, a) not in self._distinct_done:
            self._distinct_done.add((a, b))
            self.add_guard(a, native.C_DISTINCT, None, (b,))

    def guard_no_attribute(self, source: Source, name: str) -> None:
        self.add_guard(source, native.C_NO_ATTR, name)

    def guards(self) -> list[Guard]:
        """All guards, with those aliasing of written inputs needs."""
        self._guard_aliasing()
        return list(self._guards.values())

    def _guard_aliasing(self) -> None:
        """What was written must not be reachable as another input that was taken for a different object."""
        written = [t for t in self.effects.written_tensors.values() if t.source is not None]
        for tensor in written:
            for other in self.graph.inputs:
                if other is not tensor and other.source is not None and tensor.source is not None:
                    self.guard_distinct(tensor.source, other.source)
        for value in [v for v in self.effects.replayed() if v.source is not None]:
            for _, known in list(self._memo.values()):
                alike = type(known) is type(value) and known.mutable and known.python_type() is value.python_type()
                if alike and known is not value and known.source is not None and value.source is not None:
                    self.guard_distinct(value.source, known.source)

    # ---- objects ----------------------------------------------------------------------------------

    def known(self, obj: Any) -> Value | None:
        """The value an object was wrapped as before, so that one object is one value."""
        found = self._memo.get(id(obj))
        return None if found is None else found[1]

    def remember(self, obj: Any, value: Value) -> None:
        self._memo[id(obj)] = (obj, value)

    def objects(self) -> list[tuple[Any, Value]]:
        """The objects that were wrapped, with their values."""
        return list(self._memo.values())

    def real_object(self, value: TensorValue) -> torch.Tensor:
        """The real tensor behind a graph input."""
        for known, example in zip(self.graph.inputs, self.graph.examples):
            if known is value:
                return example
        raise Unsupported(f"{value.describe()} was made in the graph")

    def cell(self, cell: CellType, source: Source, name: str) -> CellValue:
        found = self._cells.get(id(cell))
        if found is None:
            try:
                contents: Value | None = LazyValue(cell.cell_contents, CellContentsSource(source))
            except ValueError:
                contents = None
            found = self._cells[id(cell)] = CellValue(contents, source)
            self.remember(cell, found)
        return found

    # ---- torch's state ----------------------------------------------------------------------------

    def change_state(self, setter: Callable[..., Any], getter: Callable[..., Any], values: tuple[Any, ...], n_keys: int) -> None:
        """Change the thread's torch state now, for what follows in the capture, and when the graph runs."""
        keys = values[:n_keys]
        before = getter(*keys)
        setter(*values)
        self.run_state_change(setter, values, lambda: setter(*keys, before))

    def run_state_change(self, function: Callable[..., Any], args: tuple[Any, ...], undo: Callable[[], Any]) -> Any:
        """Have the graph call `function`, whose effect on the thread's state the capture already had; `undo` ends that."""
        self._undo.append(undo)
        self.effects.version += 1
        return self.graph.state_change(function, args)

    @property
    def state_changed(self) -> bool:
        """Whether the captured code changed the thread's torch state."""
        return bool(self._undo)

    def nest_autocast(self, by: int) -> int:
        change, back = (
            (torch.autocast_increment_nesting, torch.autocast_decrement_nesting)
            if by > 0
            else (torch.autocast_decrement_nesting, torch.autocast_increment_nesting)
        )
        self.run_state_change(change, (), back)
        return change()

    def close(self) -> None:
        """Let go of the user's objects, which the cycles among frames and values would keep until a collection."""
        self.restore_state()
        self.flat_args = ()
        self._memo.clear()
        self._cells.clear()
        self._guards.clear()
        self.graph.examples.clear()
        self.sizes.close()
        for part in (self.root.locals, self.root.cells, self.root.stack):
            part.clear()

    def restore_state(self) -> None:
        while self._undo:
            self._undo.pop()()

    # ---- where we are -----------------------------------------------------------------------------

    def user_line(self) -> tuple[str, int] | None:
        """File and line of the innermost captured instruction."""
        frame = self.frame
        return None if frame is None else (frame.code.co_filename, frame.instruction.line or frame.code.co_firstlineno)

    def user_place(self) -> Place | None:
        """The expression of the innermost captured instruction."""
        return None if self.frame is None else self.frame.place

    def user_stack(self) -> list[tuple[str, int, str]]:
        frames = [] if self.frame is None else self.frame.chain()
        return [(f.code.co_filename, f.instruction.line or 0, f.name) for f in reversed(frames)]

    def user_stack_text(self) -> str:
        """The user's stack in the form fx keeps in `stack_trace`."""
        return "".join(f'  File "{file}", line {line}, in {name}\n    {linecache.getline(file, line).strip()}\n' for file, line, name in self.user_stack())
