"""What becomes of a call whose graph raises: it is run as plain Python, from the start of its frame.

Nothing that the program can see has changed when a graph raises: side effects are replayed after it, and what it
changed itself is put back. So the program's own code does it all again up to the operation that raises, which now does
so in its own place: below the program's frames, inside its try and with blocks, after the side effects that come before
it. Should that happen again, later captures break the graph at that operation, so that it is not run twice any more.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import CellType, FunctionType
from typing import Any, Final, NamedTuple, cast

import torch
from torch import fx

from framejit import _native as native
from framejit.backends.autocast_nesting import NESTING, nest, nesting
from framejit.backends.data_loop import DataLoop
from framejit.backends.draws.program_generators import program_generators
from framejit.backends.may_raise import is_collective
from framejit.bytecode.assemble import assemble_variant
from framejit.bytecode.emitter import Emitter
from framejit.bytecode.flattened import flattened
from framejit.capture.capture import Capture, StateChange
from framejit.capture.frame_compilation import FrameCompilation
from framejit.capture.graph.graph_builder import Origin
from framejit.capture.graph.written_tensors import memory_written_by
from framejit.capture.replacement.graph_effects import Precautions, may_draw
from framejit.capture.replacement.kept_inputs import Copied, copies_where_shared, memory_of, put_back
from framejit.environment.signal_handlers import SignalsWait, handlers_part
from framejit.events import emit, warn
from framejit.fakes.dropped_warnings import without_warnings
from framejit.fakes.storages import storage_of
from framejit.guards.saved_tensor_hooks import without_saved_tensor_hooks
from framejit.guards.sources import Source
from framejit.values.tensors.tensor import TensorValue

PATIENCE: Final = 2
"""How often an entry's graph may fail until the operation that raises is no part of graphs any more."""
MOST_PLACES: Final = 8
"""How many operations of a function are kept out of graphs because they raise; after that calls whose graphs raise are
always run twice."""


class Kept(NamedTuple):
    """The state of the world before a graph ran, as far as the graph's precautions go."""

    tensors: list[Copied]
    generators: list[tuple[Any, torch.Tensor]]
    nesting: int | None
    put_back: Callable[[], None] | None = None
    """Has the entry serve again that kept this, where another one has taken its place."""
    memory: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()
    """Inputs that the graph gives other memory, with aliases where they lay before."""

    def restore(self) -> None:
        for tensor, alias in self.memory:
            tensor.data = alias
        put_back(self.tensors)
        for generator, state in self.generators:
            generator.set_state(state)
        if self.nesting is not None:
            nest(self.nesting)
            torch.clear_autocast_cache()
        if self.put_back is not None:
            self.put_back()


class Keeper:
    """Called before a graph that has precautions to take, with the inputs that have to be kept; with all inputs, those
    that have to be kept first, if others have to be kept where inputs share memory."""

    def __init__(
        self, graph: fx.Graph, taken: Precautions, where_shared: Sequence[Source] = (), inputs: Sequence[Source] = ()
    ) -> None:
        self.sources = [value.source for value in taken.inputs if value.source is not None]
        self._always = len(self.sources)
        moved = [value.source for value in taken.moved if value.source is not None]
        self.sources += [source for source in (*moved, *inputs) if source not in self.sources]
        self._moved = [self.sources.index(source) for source in moved]
        self._where_shared = [self.sources.index(source) for source in where_shared]
        self._generators = _generators(graph) if taken.random else []
        self._nests = taken.nesting

    @property
    def is_where_shared(self) -> bool:
        """Whether it keeps anything only where inputs share memory."""
        is_more = self._always or self._moved or self._generators or self._nests
        return bool(self._where_shared) and not is_more

    @property
    def told(self) -> list[Any]:
        """What it keeps, as plain data: the devices of generators, whether the depth of autocast's nesting, how many of
        the tensors that it is given, and the positions of those that it keeps where some share memory. Graphs that move
        tensors are not asked: other processes do not find them."""
        devices = [str(generator.device) for generator in self._generators]
        return [devices, self._nests, self._always, self._where_shared]

    def __call__(self, *tensors: torch.Tensor) -> Kept:
        copies = copies_where_shared(tensors, self._always, self._where_shared)
        states = [(generator, generator.get_state()) for generator in self._generators]
        with torch._C.DisableTorchFunctionSubclass():
            memory = [(tensors[position], tensors[position].detach()) for position in self._moved]
        return Kept(copies, states, nesting() if self._nests else None, memory=memory)


class Rehearsal:
    """Called with the graph's inputs before its first run: tries, on copies of what it writes, whether its operations
    raise.

    Most do so only for certain numbers, and that is provided for (graph_effects.py). Some always do, and fakes let them
    pass: a kernel that does not exist for a dtype. These show here, before anything is changed, and though a backend
    may leave them out or do without what they check.
    """

    def __init__(self, compilation: FrameCompilation, capture: Capture, module: fx.GraphModule) -> None:
        self._module, self._initial_state, self._owner = module, capture.initial_state, weakref.ref(compilation.owner)
        self.proper: native.Entry | None = None
        """The entry that serves from the second run on, without a rehearsal."""
        self.keep: Callable[[str], None] | None = None
        """Keeps the entry for other processes, which try nothing; or, given a reason not to, tells it."""

    def __call__(self, *inputs: torch.Tensor) -> None:
        why_not = ""
        try:
            with SignalsWait():
                rehearse(self._module, self._module.forward, inputs, self._initial_state)
        except Exception as error:
            if not _is_out_of_memory(error):
                raise
            # it may be the copies that there is no memory for: the graph runs untried, here only
            why_not = "memory ran out while its graph was tried on copies"
        if self.keep is not None:
            self.keep(why_not)
        owner = self._owner()
        _exchange(owner, owned_entry(owner, self), self.proper)


class FirstKeeper(Keeper):
    """Keeps more than later runs need before the first run of a graph that can't be tried, whose operations may turn
    out to raise always: it calls more than operations of torch, or writes nothing and draws random numbers."""

    def __init__(self, compilation: FrameCompilation, graph: fx.Graph, taken: Precautions) -> None:
        super().__init__(graph, replace(taken, random=True))
        self._owner = weakref.ref(compilation.owner)
        self.proper: native.Entry | None = None
        """The entry that serves from the second run on."""

    def __call__(self, *tensors: torch.Tensor) -> Kept:
        kept, owner = super().__call__(*tensors), self._owner()
        first = owned_entry(owner, self)
        _exchange(owner, first, self.proper)
        return kept._replace(put_back=partial(_exchange, owner, self.proper, first))


def _exchange(owner: native.EntryCache | None, old: native.Entry | None, new: native.Entry | None) -> None:
    """Have an entry serve in place of another."""
    if owner is not None and old is not None and new is not None and old in owner.entries:
        owner.remove_entry(old)
        owner.add_entry(new)


def owned_entry(owner: native.EntryCache | None, part: object) -> native.Entry | None:
    """The entry in service that has `part` in one of its slots."""
    return (
        next((e for e in owner.entries if any(slot.target is part for slot in e.slots)), None)
        if owner is not None
        else None
    )


def rehearse_entry(entry: native.Entry, fn: FunctionType, flat_args: tuple[Any, ...]) -> None:
    """Try an entry that is to be tried before its first run, on the frame that it was made for. Raises what its graph
    raises."""
    parts = [slot.target for slot in entry.slots]
    for rehearsal in (part for part in parts if isinstance(part, Rehearsal)):
        failure, = (part for part in parts if isinstance(part, GraphFailure))
        rehearsal(*failure.inputs(fn.__closure__ or (), flat_args))


def rehearse(
    module: fx.GraphModule, run: Callable[..., Any], inputs: Sequence[torch.Tensor], initial_state: list[StateChange],
    quiet: bool = True
) -> Any:
    """Run a graph once for trial, and give its results: on copies of the inputs that it writes into, and with aliases
    of the others. `run` does what the nodes of the module say. All is left as it was, and what operations warn of is
    dropped if `quiet`. Raises what the graph raises."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    written = memory_written_by([node for node in module.graph.nodes if node.op != "placeholder"])
    nests = any(node.target in NESTING for node in module.graph.nodes)
    # other threads may draw meanwhile, and are not to get the same numbers twice
    drawn_from = _generators(module.graph) if may_draw(module.graph) else []
    generators = [(generator, generator.get_state()) for generator in drawn_from]
    kept = Kept([], generators, nesting() if nests else None)
    caches = torch.is_autocast_cache_enabled()
    copies: dict[int, torch.UntypedStorage] = {}
    with torch.enable_grad(), torch._C.DisableTorchFunctionSubclass():
        # inputs that shared no memory when the graph was captured may do so now
        memory = {
            memory_of(tensor) for node, tensor in zip(placeholders, inputs) if storage_of(node.meta["val"]) in written
        }
        stand_ins = [_stand_in(tensor, memory_of(tensor) in memory, copies) for tensor in inputs]
    try:
        torch.set_autocast_cache_enabled(False)  # the program's casts stay, without the trial's
        with (
            without_saved_tensor_hooks(),
            torch._C.DisableTorchFunctionSubclass(),
            without_warnings() if quiet else contextlib.nullcontext(),
        ):
            return run(*stand_ins)
    finally:
        torch.set_autocast_cache_enabled(caches)
        for setter, values in initial_state:
            setter(*values)
        kept.restore()


def _stand_in(tensor: torch.Tensor, written: bool, copies: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    """A tensor with the numbers of this one. What is to be written has memory of its own, laid out, and shared with
    other stand-ins, as the tensor's is."""
    stand_in = tensor.detach()
    if tensor.requires_grad:
        stand_in.requires_grad_()
    if not written:
        return stand_in
    is_plain = tensor.layout is torch.strided and not tensor.is_conj() and not tensor.is_neg()
    if not is_plain or tensor.requires_grad and not tensor.is_leaf:
        return _expanded_copy(stand_in) if is_plain else stand_in.clone()
    storage = tensor.untyped_storage()
    if storage._cdata not in copies:
        copies[storage._cdata] = storage.clone()
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
        copies[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride()
    )
    return made.requires_grad_(tensor.requires_grad)  # of a leaf it may be what the write raises for


def _expanded_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that is expanded as the tensor is: no kernel writes into one of which an element stands in several
    places."""
    once = tuple(
        slice(0, 1) if stride == 0 and size > 1 else slice(None) for size, stride in zip(tensor.shape, tensor.stride())
    )
    return tensor[once].clone().expand(tensor.shape)


class GraphFailure:
    """Stands by in the replacement code of an entry for when its graph raises."""

    def __init__(
        self, compilation: FrameCompilation, capture: Capture, module: fx.GraphModule, inputs: list[TensorValue]
    ) -> None:
        fn: Any = compilation.fn  # what mypy keeps of the type of functions between two runs has no __builtins__
        self._code, self._globals, self._builtins = flattened(fn.__code__), fn.__globals__, fn.__builtins__
        self._resumed = compilation.fn if compilation.resume is not None else None
        self._owner, self._points, self._place = weakref.ref(compilation.owner), compilation.points, compilation.place
        self._may_break, self._backend = not compilation.options.fullgraph, compilation.options.backend_name
        self._module, self._sources = module, [value.source for value in inputs]
        self._origins: dict[str, Origin] = {node.name: origin for node, origin in capture.graph.origins.items()}
        # a place where this capture should have broken; another capture would be no better
        self._known = frozenset(capture.raising)
        self._initial_state = capture.initial_state
        self._has_effects = capture.graph_effects().any
        self._may_never_end = any(isinstance(node.target, DataLoop) for node in module.graph.nodes)
        self._failures = 0
        self.forget: Callable[[], None] | None = None
        """Drops what other processes could find of the entry: a graph that raises would not be captured so again."""

    def __call__(self, error: BaseException, kept: Kept | int | None, cells: tuple[CellType, ...], *args: Any) -> Any:
        """The tail call that runs the program's own code; None where the error is to go on as it is."""
        if isinstance(kept, int):  # what `nesting` kept
            kept = Kept([], [], kept)
        signals = SignalsWait()
        try:
            call = None
            with signals:
                call = self._call_instead(error, kept, cells, args)
        except BaseException as e:
            if e is not signals.raised or call is None:
                raise
            native.raise_later(e)
        return call

    def _call_instead(
        self, error: BaseException, kept: Kept | None, cells: tuple[CellType, ...], args: tuple[Any, ...]
    ) -> Any:
        if not isinstance(error, Exception) or handlers_part(error) is not None:
            return self._interrupted(error, kept, cells, args)
        if (self._has_effects and kept is None and _is_out_of_memory(error)) or _hooks_saw_the_graph():
            return None  # nobody knows what was done before memory ran out, or may be done again with hooks
        text = f"{type(error).__name__}: {error}"
        error.__traceback__ = None  # frees what the graph had computed, and ends modes that it had entered
        for setter, values in self._initial_state:
            setter(*values)
        try:
            if kept is not None:
                kept.restore()
        except RuntimeError:
            return None
        if not _is_out_of_memory(error):
            self._learn(text, isinstance(error, Warning), cells, args)
        plain = native.Dispatcher(self._plain(cells), _never)
        plain.skip = True
        return native.tail_call(plain, *args)

    def _interrupted(
        self, error: BaseException, kept: Kept | None, cells: tuple[CellType, ...], args: tuple[Any, ...]
    ) -> Any:
        """A handler of a signal has raised in the midst of the graph, which interpreted Python runs.

        All is done again if that can be, and then the error is raised where the program goes on, as it is for graphs
        that look for no signals. A graph whose changes can't be undone stays as it is, and the error is raised where
        its part of the frame begins; so it is for a graph with a loop on data.
        """
        error.__traceback__ = handlers_part(error)
        for setter, values in self._initial_state:
            setter(*values)
        entry = self._entry()
        if (
            entry is not None
            and not self._has_effects
            and not self._may_never_end  # a loop that was interrupted may be an endless one
            and not _hooks_saw_the_graph()
            and native.raise_later(error)  # once: signals may come quicker than the graph runs
        ):
            again = native.Dispatcher(self._plain(cells), _never)
            again.add_entry(entry)
            return native.tail_call(again, *args)
        try:
            if kept is not None:
                kept.restore()
        except RuntimeError:
            return None
        if self._resumed is None:
            return None
        raising = native.Dispatcher(self._points.interrupted(self._resumed, error), _never)
        raising.skip = True
        return native.tail_call(raising, *args)

    def _entry(self) -> native.Entry | None:
        """The entry that this is part of."""
        return owned_entry(self._owner(), self)

    def _plain(self, cells: tuple[CellType, ...]) -> FunctionType:
        return native.function_with_builtins(self._code, self._globals, self._builtins, cells)

    def _learn(self, text: str, was_warning: bool, cells: tuple[CellType, ...], args: tuple[Any, ...]) -> None:
        if self.forget is not None:
            self.forget()
            self.forget = None
        self._failures += 1
        if self._failures > PATIENCE:
            return
        outcome, origin, owner = "the call was run again as plain Python", None, self._owner()
        try:
            node = rehearse(
                self._module, partial(_raising_node, self._module), self.inputs(cells, args), self._initial_state,
                quiet=not was_warning,
            )
            faultless = node is None
            origin = self._origins.get(node.name) if node is not None else None
        except Exception:  # a backend may change the graph it is given; nothing can be learnt from it then
            faultless = False
        if self._failures == PATIENCE:
            if faultless and owner is not None:
                owner.skip = True
                outcome = "the function runs as plain Python from now on"
            elif origin is not None and self._break_at(origin, text):
                outcome = "from now on graphs break at the operation that raises"
        emit("graph_raised", **self._place, error=text, outcome=outcome)
        if faultless:
            warn(
                f"the graph that the backend {self._backend!r} made of {self._place['function']} raised {text}, and "
                f"its operations don't raise: {outcome}",
                (self._place["file"], self._place["line"]),
            )

    def _break_at(self, origin: Origin, text: str) -> bool:
        """Have graphs break at an operation that raised in them, if they may."""
        place = id(origin.code), origin.position
        if (
            not self._may_break
            or origin.position < 0
            or place in self._known
            or len(self._points.raising) >= MOST_PLACES
            or not self._give_up_entry()
        ):
            return False
        self._points.raising[place] = origin.code, text
        return True

    def _give_up_entry(self) -> bool:
        """Take the entry this belongs to out of service, so that the next call is captured anew."""
        owner = self._owner()
        entry = owned_entry(owner, self)
        if owner is None or entry is None:
            return False
        owner.raising = self._points.raising  # whoever compiles for the owner next may not find these points any more
        owner.remove_entry(entry)
        return True

    def inputs(self, cells: tuple[CellType, ...], args: tuple[Any, ...]) -> Sequence[torch.Tensor]:
        """The graph's inputs, read as replacement code reads them."""
        code, em = self._code, Emitter()
        if code.co_freevars:
            em.op("COPY_FREE_VARS", len(code.co_freevars))
        em.op("RESUME", 0)
        for source in self._sources:
            assert source is not None
            em.load_source(source)
        em.build("TUPLE", len(self._sources))
        em.return_value()
        reader = assemble_variant(
            em.instructions, code, list(code.co_varnames[: code.co_argcount]), free=code.co_freevars
        )
        found: tuple[torch.Tensor, ...] = native.function_with_builtins(reader, self._globals, self._builtins, cells)(
            *args
        )
        return found


def _never(owner: Any, fn: Any, args: Any) -> None:
    return None


def _hooks_saw_the_graph() -> bool:
    """Whether the program has hooks on what autograd saves: they ran, and may be what raised (recomputing in
    checkpointing ends so)."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error)


def _generators(graph: fx.Graph) -> list[Any]:
    """The generators of random numbers that operations of a graph may draw from."""
    devices = {node.meta["val"].device for node in graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)}
    found: list[Any] = [torch.default_generator]
    if torch.cuda.is_initialized():
        found += [torch.cuda.default_generators[device.index or 0] for device in devices if device.type == "cuda"]
    return [*found, *program_generators(graph)]


def _raising_node(module: fx.GraphModule, *tensors: torch.Tensor) -> fx.Node | None:
    """The node of a graph that raises when it is run node by node. Tensors are not exchanged with other processes once
    more: where nothing before that raises, it is what did."""
    values: dict[fx.Node, Any] = {}
    given = iter(tensors)
    for node in module.graph.nodes:
        if node.op == "call_function" and is_collective(node.target):
            return cast(fx.Node, node)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        try:
            match node.op:
                case "placeholder":
                    values[node] = next(given)
                case "call_function":
                    values[node] = node.target(*args, **kwargs)
                case "call_method":
                    values[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
                case "get_attr":
                    values[node] = getattr(module, node.target)
                case _:
                    break
        except Exception:
            return cast(fx.Node, node)
    return None
