"""One attempt to capture a frame: the graph, guards and side effects it gathers, and how it ends."""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CellType, CodeType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from framejit import _native as native
from framejit.capture.alike.layers_alike import LayersAlike
from framejit.capture.alike.repeated_lookups import RepeatedLookups
from framejit.capture.assumed import Assumed
from framejit.capture.budget import Budget, OverBudget
from framejit.capture.class_lookups import ClassLookups
from framejit.capture.distinct_objects import DistinctObjects
from framejit.capture.dynamic_dims import (
    ANY_INDEX,
    DynamicDims,
    among_alike,
    ever_new,
    is_item,
    is_of_container,
    keys_of,
    length_of,
)
from framejit.capture.graph.graph_builder import GraphBuilder, Origin
from framejit.capture.input_sizes import InputSizes
from framejit.capture.own_changes import LOOKED_AT_EARLY, FoundOwnChanges, changed_numbers, changed_sizes
from framejit.capture.replacement.graph_effects import GraphEffects
from framejit.capture.side_effects import SideEffects
from framejit.environment.signal_handlers import look_for_signals
from framejit.events.place import Place
from framejit.fakes.metadata import label
from framejit.guards.answers import still_unrelated
from framejit.guards.guard import Guard
from framejit.guards.sources import (
    ArgSource,
    AttrSource,
    CallSource,
    CellArgSource,
    CellContentsSource,
    ClosureCellSource,
    ConstSource,
    GlobalSource,
    Source,
    StateSource,
    const_source,
)
from framejit.guards.strong_paths import Holder, NotHeldError, holders
from framejit.interpreter.dropped_generators import check_may_be_dropped
from framejit.interpreter.frame import Frame
from framejit.signals import Restart, Selecting, SkipFrame, Unsupported
from framejit.values.arrays.ndarray import NumberValue
from framejit.values.base import Value
from framejit.values.context import TorchState
from framejit.values.inspection import is_class_of_program, mro_of
from framejit.values.journal import Assumed as AssumedNumber
from framejit.values.journal import FollowedNumber, Journal
from framejit.values.lazy import LazyValue
from framejit.values.objects.classes import is_python_class
from framejit.values.objects.functions.function_values import CellValue
from framejit.values.tensors.override_state import OverrideState, has_override
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import wrap

if TYPE_CHECKING:
    from framejit.bytecode.resume_code import ResumeCode
    from framejit.values.objects.functions.generators import GeneratorValue


def storage_offset(tensor: torch.Tensor) -> int:
    """Where in its storage a tensor begins."""
    with torch._C.DisableTorchFunctionSubclass():
        return int(tensor.storage_offset())


StateChange = tuple[Callable[..., Any], tuple[Any, ...]]
"""A setter of torch's state, and what to call it with."""
MANY_PAIRS = 100  # of objects that must differ: beyond, one guard for all, though it assumes more


class Broken(Exception):
    """The graph breaks at the current instruction of `frame`."""

    def __init__(self, frame: Frame, reason: Unsupported) -> None:
        self.frame, self.reason = frame, reason


def exception_handled_now(module: Any) -> BaseException | None:
    """What the running frame, or a caller of it, is handling; `module` is sys."""
    found: BaseException | None = module.exception()
    return found


_PLAIN = (int, float, complex, bool, str, bytes, type(None))
_NAMES_OF_ASSUMED: dict[int, Callable[[str], str]] = {
    native.C_EQUALS: str, native.C_LEN: length_of, native.C_KEYS: keys_of,
}
"""By the check of a guard, under which name what it assumes of a source is among what changes."""


def _number_of(guard: Guard) -> str:
    name_of = _NAMES_OF_ASSUMED.get(guard.check)
    return "" if name_of is None else name_of(guard.source.name())


class Capture:
    """The state shared by all frames of one attempt.

    `forced` maps steps to the reasons the graph must break there, learnt from earlier attempts. `changing` names the
    sources of numbers that differed between calls, `dynamic` the dimensions whose sizes are left open, `raising` the
    operations (by id of the code and index) that raised when graphs ran them. `says_compiling` is what a library is
    told that asks torch whether it is being compiled. `takes_gradients`: the backend takes graphs that ask for
    gradients.
    """

    def __init__(
        self,
        fn: FunctionType,
        flat_args: tuple[Any, ...],
        forced: dict[int, Unsupported],
        changing: frozenset[str] = frozenset(),
        dynamic: DynamicDims | None = None,
        budget: Budget | None = None,
        raising: Mapping[tuple[int, int], tuple[CodeType, str]] = MappingProxyType({}),
        says_compiling: bool = True,
        takes_gradients: bool = True,
    ) -> None:
        self.fn, self.flat_args, self.forced = fn, flat_args, forced
        self.name = fn.__qualname__
        self.graph = GraphBuilder(self)
        self.effects = SideEffects(self._look_early)
        self.overrides = OverrideState()
        self.frame: Frame | None = None
        self.seq = 0
        self.changing, self.raising = changing, raising
        self._ever_new_items = any(ANY_INDEX in name for name in changing if name.startswith(ever_new("")))
        self.assumed_again = 0  # how often what was seen to change was assumed nevertheless
        self.says_compiling, self.said_compiling = says_compiling, False
        self.takes_gradients = takes_gradients
        self.whole_functions: set[type] = set()
        """Those `autograd.Function`s whose calls are not traced."""
        self.functions_inlined = 0  # how many of their calls were, that make no node of autograd
        self.transforms = 0  # how many function transforms the code being captured is inside
        self.budget = budget or Budget()
        self._initial_state: TorchState = {}
        self.mode_changes: list[Any] = []  # inference modes entered and left that are so still
        self._state_getters: dict[tuple[Callable[..., Any], tuple[Any, ...]], Callable[..., Any]] = {}
        # questions about torch's state that captured code has given the answer to
        self.set_here: set[tuple[Callable[..., Any], tuple[Any, ...]]] = set()
        self.dynamic = dynamic or DynamicDims(never=True)
        self.sizes = InputSizes(self)
        self.generators: list[GeneratorValue] = []  # all that were made
        # those without a callback, by the ids of what they lead to, which they keep unique
        self.weak_references: dict[int, Value] = {}
        self.caught_warnings: list[Any] = []  # the `catch_warnings` that captured code is in
        self.called_back: list[Value] = []  # what captured code has made weak references with callbacks to
        self.scalar_inputs: dict[Any, TensorValue] = {}
        self.generators_made = 0  # of random numbers, by the graph
        self.reads_numbers = False  # whether a number was read from a tensor, and stays one in the graph
        self.selecting: Selecting | None = None
        self.selected: list[tuple[Place, int, str]] = []
        """The `if`s of which both branches are in the graph, and the loops: where, with how many operations, and which
        of the two."""
        self.assumed = Assumed()
        self.class_lookups = ClassLookups(self)
        self.made_classes: dict[type, Value] = {}  # those that captured code makes, by what stands for them
        self.ids_taken = False  # whether the captured code called id()
        self.has_open_keys = False  # whether an int that is left open was looked for in a dict
        self._guards: dict[Any, Guard] = {}
        self._numbers_followed: set[Source] = set()
        self._memo: dict[int, tuple[Any, Value]] = {}
        self._real: dict[int, tuple[Value, Any]] = {}  # values by their ids, with the objects that they stand for
        self._looked_at: set[int] = set()  # ids of changed values that were looked at for changes of sizes
        self._cells: dict[int, CellValue] = {}
        self._undo: list[Callable[[], Any]] = []
        self._place_texts: dict[tuple[str, int, str], str] = {}
        self._graph_effects: GraphEffects | None = None
        self._distinct_done: set[tuple[Source, Source]] = set()
        self.distinct = DistinctObjects(self)
        self.journal = Journal()
        self.layers = LayersAlike(self)
        self.lookups = RepeatedLookups(self)
        self._caller_handles = sys.exception()
        self._stands_for: tuple[str, int] | None = None
        self.root: Frame = self._make_root()
        self.in_traceback = self.root.resume is not None and native.is_in_traceback()
        self.add_guard(StateSource(), native.C_STATE, native.snapshot_state())

    def _make_root(self) -> Frame:
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
        self._arguments = dict(variables)
        for name in code.co_cellvars if resume is None else ():
            cells[name] = CellValue(variables.pop(name, None))
        for i, (name, cell) in enumerate(zip(code.co_freevars, self.fn.__closure__ or ())):
            cells[name] = self.cell(cell, ClosureCellSource(i, name), name)
        return Frame(self, code, self.fn.__globals__, None, variables, cells, None, True, resume, self.fn)

    # ---- steps ------------------------------------------------------------------------------------

    def next_step(self) -> int:
        look_for_signals()
        self.seq += 1
        if self.selecting is not None and self.graph.n_ops > self.selecting.most_operations:
            self.break_at(self.seq, self.selecting.refusal)
        self.spend(1)
        return self.seq

    def spend(self, steps: int) -> None:
        """Count what the capture costs. Past the budget the outermost call that runs is made for real, or the frame is
        left to plain Python."""
        try:
            self.budget.spend(steps, self.graph)
        except OverBudget as e:
            if self.frame is None or self.frame is self.root:
                raise SkipFrame(e.reason, e.code) from None
            raise Restart(self.root.seq, e) from None

    def leave_recursion(self, refusal: Unsupported, arguments: Iterable[Value]) -> None:
        """Code on plain numbers calls itself deeper than can be inlined: the outermost call is made for real. To break
        here would take as many frames apart, at each call that returns."""
        if self.budget.since_operation < self.seq - self.root.seq or self.frame is self.root:
            return
        if all(argument.python_type() in _PLAIN for argument in arguments):
            raise Restart(self.root.seq, refusal)

    def progress(self) -> tuple[int, int, int]:
        """Changes when an instruction had an effect that can't be taken back, or assumed what it need not: a call that
        is made for real looks at its arguments itself."""
        return self.graph.n_ops, self.effects.version, self.assumed_again

    def break_graph(self, frame: Frame, reason: Unsupported) -> NoReturn:
        for guard in reason.assumes:
            self.add_guard(*guard)
        raise Broken(frame, reason)

    def refuse_what_raised(self, code: CodeType, index: int) -> None:
        """Break the graph before an instruction that raised when a graph did what it does."""
        if (id(code), index) in self.raising:
            raise Unsupported(
                f"this raised when a graph ran it ({self.raising[id(code), index][1].splitlines()[0]})", "FJ162"
            )

    def break_at(self, seq: int, reason: Unsupported) -> NoReturn:
        """Start again and break at an earlier step."""
        if self.selecting is not None and seq > self.selecting.seq:
            raise Restart(self.selecting.seq, self.selecting.refusal)
        raise Restart(seq, reason)

    def note_inner_break(self, frame: Frame, reason: Unsupported) -> None:
        """A break inside a call that is then made as a whole: say where it really was."""
        if reason.hint is None:
            where = f"{frame.code.co_filename}:{frame.instruction.line}"
            reason.reason = reason.reason if "(in " in reason.reason else f"{reason.reason} (in {frame.name}, {where})"

    # ---- guards -----------------------------------------------------------------------------------

    def add_guard(self, source: Source, check: int, payload: Any = None, also: tuple[Source, ...] = ()) -> None:
        if self.made_classes and self._is_of_made_class(source):
            return
        self.take_guard(Guard(source, check, payload, also, self.user_line()))

    def follow_number(self, number: int, source: Source) -> FollowedNumber:
        """An int that is read at `source`, which a layer alike may have another one of."""
        guard = Guard(source, native.C_EQUALS, number, (), self.user_line())
        if self._guards.setdefault(guard.key(), guard) is guard:
            self._numbers_followed.add(source)
        elif source not in self._numbers_followed:  # who assumes it may still hold what was read then
            self.journal.add(AssumedNumber(source))
        return self.journal.named(number, source)

    def guards_so_far(self) -> list[Guard]:
        return list(self._guards.values())

    @contextlib.contextmanager
    def guards_apart(self) -> Iterator[list[Guard]]:
        """The guards that are added in the block, known or not; they are filled in at its end."""
        before, self._guards = self._guards, {}
        found: list[Guard] = []
        self.lookups.forget()  # those that are known add no guards
        try:
            yield found
        finally:
            found += self._guards.values()
            self._guards = before | {key: guard for key, guard in self._guards.items() if key not in before}

    def take_guard(self, guard: Guard) -> None:
        """Add a guard."""
        if guard.check == native.C_EQUALS and self.journal.is_kept:
            self.journal.add(AssumedNumber(guard.source))
        if self.changing and _number_of(guard) in self.changing:
            self.assumed_again += 1
        self._guards.setdefault(guard.key(), guard)

    def _is_of_made_class(self, source: Source) -> bool:
        """Whether a source leads through a class that captured code makes: what stands for it never changes."""
        root = source
        while root.base is not None:
            root = root.base
        return (
            isinstance(root, ConstSource) and isinstance(root.ref.value, type) and root.ref.value in self.made_classes
        )

    def guard_same(self, a: Source, b: Source) -> None:
        self.add_guard(a, native.C_SAME, None, (b,))

    def guard_distinct(self, a: Source, b: Source) -> None:
        if (a, b) not in self._distinct_done and (b, a) not in self._distinct_done:
            self._distinct_done.add((a, b))
            self.add_guard(a, native.C_DISTINCT, None, (b,))

    def guard_no_attribute(self, source: Source, name: str) -> None:
        self.add_guard(source, native.C_NO_ATTR, name)

    def guard_bases(self, cls: type) -> None:
        """Guards from which classes a class is derived, and in which order: a program may give its own others."""
        if is_python_class(cls) and is_class_of_program(cls):
            self.add_guard(AttrSource(const_source(cls), "__mro__"), native.C_ID, mro_of(cls))

    def guard_relation(self, cls: type, target: type, answer: bool) -> None:
        """Guards that a class, if so, is none of an abstract class's: it may be registered at any time, and nothing
        takes that back. Only what Python and libraries say of their own classes stays."""
        is_guarded = answer or (id(cls), id(target)) in self.assumed.relations
        if not is_guarded and any(is_python_class(c) and is_class_of_program(c) for c in (cls, target)):
            self.add_guard(const_source(issubclass), native.C_PY, still_unrelated(cls, target))
        self.assumed.is_related(cls, target, answer)

    def guards(self) -> list[Guard]:
        """All guards, with those aliasing of written inputs needs."""
        self._guard_aliasing()
        return [*self._guards.values(), *self.distinct.guards()]

    def _guard_aliasing(self) -> None:
        """What was written must not be reachable as another input that was taken for a different object."""
        made = {*map(id, self.scalar_inputs.values())}  # of a number, anew at each call
        inputs = [value for value in self.graph.inputs if id(value) not in made]
        self._guard_apart(list(self.effects.written_tensors.values()), inputs)
        changed: dict[tuple[type, type], list[Value]] = {}
        for value in [v for v in self.effects.replayed() if v.source is not None]:
            changed.setdefault((type(value), value.python_type()), []).append(value)
        for kind, values in changed.items():
            others = [
                known
                for _, known in self._memo.values()
                if known.mutable and type(known) is kind[0] and known.python_type() is kind[1]
            ]
            self._guard_apart(values, others)

    def _guard_apart(self, changed: Sequence[Value], others: Sequence[Value]) -> None:
        """None of the changed values is one of the others. Where that makes many pairs, all are told apart at once."""
        changed, others = [v for v in changed if v.source is not None], [v for v in others if v.source is not None]
        if len(changed) * len(others) > MANY_PAIRS:
            for value in (*changed, *others):
                self.distinct.tell_apart(changed[0], value)
            return
        for value in changed:
            for other in others:
                if other is not value and value.source is not None and other.source is not None:
                    self.guard_distinct(value.source, other.source)

    def hands_over(self, tensors: Iterable[TensorValue]) -> bool:
        """Whether torch would hand an operation on these tensors to a `__torch_function__` of the program, or to a mode
        that it has entered."""
        if self.overrides.modes:
            return True
        return self.overrides.met and self.overrides.enabled and any(has_override(tensor.cls) for tensor in tensors)

    def is_ever_new(self, name: str) -> bool:
        """Whether a number, or the length of a list, is known to be another one in each call."""
        return ever_new(name) in self.changing

    def check_item(self, source: Source, item: int | bool) -> None:
        """Break the graph at an int or bool in a list whose items were others in entry after entry: there are more
        combinations of them than entries."""
        if not self._ever_new_items or not is_item(source.name()):
            return
        if self.is_ever_new(among_alike(source.name())):
            raise Unsupported(
                f"{type(item).__name__} {source.name()!r}, an item of a list whose items are others in each call, has "
                "to be known",
                "FJ121", "keep the items in a tensor, or use them outside the compiled function",
            )

    def tensor_written(self, tensor: TensorValue) -> None:
        """An operation of the graph writes into `tensor`."""
        self.effects.tensor_written(tensor)

    def plain_number(self, number: NumberValue) -> Value:
        """One of numpy's numbers as Python's."""
        assert self.frame is not None
        return number.plain(self.frame)

    def guard_place(self, tensor: TensorValue) -> None:
        """Guard where in its storage an input begins, for something that depends on it."""
        if tensor.source is not None:
            self.add_guard(
                CallSource(tensor.source, storage_offset), native.C_EQUALS, storage_offset(self.real_object(tensor))
            )

    def guard_places_of_symbolic_inputs(self) -> None:
        """Torch's compilers write the offset of an input into what they make."""
        for tensor in self.graph.inputs:
            if tensor.fake._has_symbolic_sizes_strides and not isinstance(tensor.source, CallSource):
                self.guard_place(tensor)

    # ---- what captured code changes from call to call ---------------------------------------------

    def _look_early(self, holder: Value) -> None:
        """Start again where an object that was changed holds a tensor of another size now."""
        if len(self._looked_at) < LOOKED_AT_EARLY and id(holder) not in self._looked_at:
            self._looked_at.add(id(holder))
            found = changed_sizes(self, holder)
            if found:
                raise FoundOwnChanges(found)

    def look_for_own_changes(self) -> None:
        """Start again where captured code changes what it assumes; asked when it has come to its end."""
        holders = self.effects.replayed()
        found = [change for holder in holders for change in changed_sizes(self, holder)]
        found += changed_numbers(self, holders)
        if found:
            raise FoundOwnChanges(found)

    # ---- layers alike -----------------------------------------------------------------------------

    def may_stamp(self) -> bool:
        """Whether all that captured code can ask of tensors and numbers is known and will not change."""
        return not (
            not all(map(is_of_container, self.changing))  # that those are open is seen where one is asked for
            or self.transforms
            or self.made_classes
            or self.sizes.leaves
            or self.overrides.met
            or self.overrides.modes
            or self.ids_taken
            or self.graph.metadata.mode.data_sizes is not None
            or self.frame is None
            or self.frame.handled_exception() is not None
        )

    def left_behind(self) -> tuple[Any, ...]:
        """Counts and objects that differ after captured code that did more than look at things and compute with
        tensors; equal ones say that it did not. What code does to objects of its own is not in it."""
        return (
            len(self._undo), len(self._initial_state), len(self.set_here), len(self.generators),
            len(self.weak_references), len(self.called_back), len(self.caught_warnings), len(self.scalar_inputs),
            len(self.made_classes), self.ids_taken, self.distinct.told, self.effects.outside,
            len(self.effects.cached_calls), len(self.graph.finite_checks), self.graph.n_known, self.graph.graph,
            self.overrides.met, len(self.sizes.leaves), len(self.graph.leaves),
        )

    # ---- objects ----------------------------------------------------------------------------------

    def known(self, obj: Any) -> Value | None:
        """The value an object was wrapped as before, so that one object is one value."""
        found = self._memo.get(id(obj))
        if found is None:
            return None
        if found[1].source is not None:
            self.layers.reached(found[1].source)
        return found[1]

    def has_met(self, obj: Any) -> bool:
        """Whether captured code has looked at an object, or at what a cell holds."""
        return id(obj) in self._memo

    def remember(self, obj: Any, value: Value) -> None:
        self._memo[id(obj)] = (obj, value)
        self._real.setdefault(id(value), (value, obj))

    def real(self, value: Value) -> Any:
        """The object that a value stands for, if it existed before the capture; else None."""
        if isinstance(value, TensorValue):
            return next(
                (example for known, example in zip(self.graph.inputs, self.graph.examples) if known.fake is value.fake),
                None,
            )
        found = self._real.get(id(value))
        return getattr(value, "obj", None) if found is None else found[1]

    def objects(self) -> list[tuple[Any, Value]]:
        """The objects that were wrapped, with their values."""
        return list(self._memo.values())

    def real_object(self, value: TensorValue) -> torch.Tensor:
        """The real tensor behind a graph input."""
        example = self.graph.example_of(value)
        if example is None:
            raise Unsupported(f"{value.describe()} was made in the graph")
        return example

    def cell(self, cell: CellType, source: Source, name: str) -> CellValue:
        found = self._cells.get(id(cell))
        if found is None:
            try:
                contents: Value | None = LazyValue(cell.cell_contents, CellContentsSource(source))
            except ValueError:
                contents = None
            found = self._cells[id(cell)] = CellValue(contents, source)
            self.remember(cell, found)
        elif found.source is not None:
            self.layers.reached(found.source)
        return found

    def exception_of_caller(self) -> Value:
        """The exception, or None, that the caller of the captured function is handling; guarded."""
        return wrap(self, self._caller_handles, CallSource(const_source(sys), exception_handled_now))

    def may_have_dropped(self, source: Source) -> bool:
        """Whether the captured code may have let go of the last reference to the object at `source`, which the
        replacement code still holds."""
        anything = self.effects.any() or any(name.startswith("__stack") for name in self._arguments)
        if not anything and all(map(self._has_argument, self._arguments)):
            return False
        try:
            path = holders(source, self._root_object)
        except NotHeldError:
            return True
        return any(map(self._has_changed, path))

    def _has_argument(self, name: str) -> bool:
        """Whether the captured frame still has an argument that it was called with."""
        root = self.root
        held = root.locals.get(name) or name in root.cells and root.cells[name].contents
        return held is self._arguments[name]

    def _root_object(self, source: Source) -> tuple[Any, list[Holder]]:
        """The object at a root, and what of the program holds it."""
        if isinstance(source, GlobalSource) and source.var in self.root.globals:
            return self.root.globals[source.var], [(self.root.globals, source.var)]
        if isinstance(source, ArgSource) and self._has_argument(source.arg):
            return self.flat_args[source.index], []
        raise NotHeldError(str(source))

    def _has_changed(self, holder: Holder) -> bool:
        """Whether captured code may have changed what an object holds under a name."""
        obj, name = holder
        known = self.known(obj)
        return self.effects.changes_name(obj, name) or known is not None and self.effects.has_changed(known)

    def check_modes(self) -> None:
        """Where captured code ends inside of a function mode, or a block of caught warnings, that it has entered, plain
        Python enters it."""
        if self.overrides.modes:
            self.break_at(
                self.overrides.entered[0],
                Unsupported("a function mode that captured code enters and does not leave", "FJ119"),
            )
        if self.caught_warnings:
            self.break_at(
                self.caught_warnings[0].made_at,
                Unsupported("a graph break inside of warnings.catch_warnings(), or one that is not left", "FJ119"),
            )

    def check_generators(self) -> None:
        for generator in self.generators:
            check_may_be_dropped(generator)

    # ---- torch's state ----------------------------------------------------------------------------

    def change_state(
        self, setter: Callable[..., Any], getter: Callable[..., Any], values: tuple[Any, ...], n_keys: int
    ) -> None:
        """Change the thread's torch state now, for what follows in the capture, and when the graph runs."""
        keys = values[:n_keys]
        before = getter(*keys)
        self.set_here.add((getter, keys))
        self.keep_state(setter, getter, *keys)
        setter(*values)
        self.run_state_change(setter, values, lambda: setter(*keys, before))

    def keep_state(self, setter: Callable[..., Any], getter: Callable[..., Any], *keys: Any) -> None:
        """Note what holds before the first change. What holds before later ones may be the doing of a mode, which ends
        by itself where the graph raises."""
        self._state_getters[setter, keys] = getter
        self._initial_state.setdefault((setter, keys), (*keys, getter(*keys)))

    @property
    def initial_state(self) -> list[StateChange]:
        """Calls that put back the torch state that was changed."""
        return [(setter, values) for (setter, _), values in self._initial_state.items()]

    @property
    def state_before(self) -> TorchState:
        """The torch state that was changed, as it was before."""
        return dict(self._initial_state)

    def state_now(self) -> TorchState:
        """The same as the captured code has made it."""
        return {(setter, keys): (*keys, getter(*keys)) for (setter, keys), getter in self._state_getters.items()}

    def run_state_change(self, function: Callable[..., Any], args: tuple[Any, ...], undo: Callable[[], Any]) -> Any:
        """Have the graph call `function`, whose effect on the thread's state the capture already had; `undo` ends
        that."""
        self._undo.append(undo)
        self.effects.version += 1
        return self.graph.state_change(function, args)

    @property
    def state_changed(self) -> bool:
        """Whether the captured code changed the thread's torch state."""
        return bool(self._undo)

    @contextlib.contextmanager
    def state_apart(self) -> Iterator[None]:
        """The block captures a function that torch calls under modes of its own, which have ended by the time that the
        captured code goes on: what the function changes of torch's state is put back while they last. Raises
        Unsupported where it leaves anything changed."""
        before, n_modes = (
            (len(self._undo), self._state_getters, self._initial_state, self.set_here), len(self.mode_changes)
        )
        self._state_getters, self._initial_state, self.set_here = {}, {}, {*self.set_here}
        try:
            yield
            leaves_changed = self.state_now() != self._initial_state or len(self.mode_changes) != n_modes
        finally:
            n_undo, self._state_getters, self._initial_state, self.set_here = before
            self.restore_state(n_undo)
        if leaves_changed:
            raise Unsupported("a function that torch calls, and that leaves torch's state changed", "FJ119")

    def nest_autocast(self, by: int) -> int:
        change, back = (
            (torch.autocast_increment_nesting, torch.autocast_decrement_nesting)
            if by > 0
            else (torch.autocast_decrement_nesting, torch.autocast_increment_nesting)
        )
        self.run_state_change(change, (), back)
        return change()

    @contextlib.contextmanager
    def inside_transform(self) -> Iterator[None]:
        """While the function is captured that a function transform is given: operations run under the transform
        later."""
        self.transforms += 1
        try:
            yield
        finally:
            self.transforms -= 1

    def close(self) -> None:
        """Let go of the user's objects, which the cycles among frames and values would keep until a collection."""
        self.restore_state()
        self.overrides.close()
        self.layers.close()
        self.lookups.forget()
        self.graph.close()
        self.sizes.close()
        self.effects.close()
        for value in self.generators:
            value.close()
        self.root.close()
        self.__dict__.clear()

    def restore_state(self, until: int = 0) -> None:
        """Undo what was changed of torch's state behind the first `until` changes."""
        while len(self._undo) > until:
            self._undo.pop()()

    def graph_effects(self) -> GraphEffects:
        """The effects that the captured operations may have besides giving results; asked when all of them are
        there."""
        if self._graph_effects is None:
            self._graph_effects = GraphEffects(self.graph.graph, self.graph.inputs, self.graph.examples)
        return self._graph_effects

    def break_before_final(self) -> None:
        """Start again and break the graph at an operation that may raise after something that can't be taken back, if
        there is one."""
        effects = self.graph_effects()
        node = effects.precautions().final or effects.refused_after_warning
        if node is not None and node in self.graph.origins:
            self.break_at(
                self.graph.origins[node].seq,
                Unsupported(
                    f"{label(node.target)} may raise, and what was done before it could not be taken back then",
                    "FJ163",
                ),
            )

    # ---- where we are -----------------------------------------------------------------------------

    def user_line(self) -> tuple[str, int] | None:
        """File and line of the innermost captured instruction."""
        if self._stands_for is not None:
            return self._stands_for
        frame = None if self.frame is None else self.frame.visible()
        return None if frame is None else (frame.code.co_filename, frame.instruction.line or frame.code.co_firstlineno)

    @contextlib.contextmanager
    def standing_for(self, line: tuple[str, int] | None) -> Iterator[None]:
        """Put down to this line what is assumed in the block."""
        self._stands_for = line
        try:
            yield
        finally:
            self._stands_for = None

    def user_origin(self) -> Origin | None:
        """The innermost captured instruction."""
        return None if self.frame is None else Origin(self.frame.seq, *self.frame.origin)

    def user_place(self) -> Place | None:
        """The expression of the innermost captured instruction."""
        return None if self.frame is None else self.frame.visible().place

    def user_stack(self) -> list[tuple[str, int, str]]:
        frames = [] if self.frame is None else self.frame.chain()
        return [(f.code.co_filename, f.instruction.line or 0, f.name) for f in reversed(frames) if not f.hidden]

    def user_stack_text(self) -> str:
        """The user's stack in the form fx keeps in `stack_trace`."""
        return "".join(map(self._place_text, self.user_stack()))

    def _place_text(self, place: tuple[str, int, str]) -> str:
        text = self._place_texts.get(place)
        if text is None:
            file, line, name = place
            text = self._place_texts[place] = (
                f'  File "{file}", line {line}, in {name}\n    {linecache.getline(file, line).strip()}\n'
            )
        return text
