"""Generates the replacement code of one entry: call the graph, rebuild values, replay side effects, leave."""
from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.bytecode.assemble import assemble_variant
from framejit.bytecode.emitter import PY312, TAIL, VALUE, Emitter, is_temporary
from framejit.bytecode.instr import Instr, Label, TryBegin, TryEnd
from framejit.capture.replacement.cycles import Cycles
from framejit.capture.replacement.graph_failure import Keeper
from framejit.capture.replacement.last_references import may_be_missed
from framejit.events.meter import Owner, meter
from framejit.guards.sources import ArgSource
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.lazy import LazyValue
from framejit.values.tensors.inference_modes import ModeChange
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.capture.capture import Capture, StateChange
    from framejit.guards.sources import Source


class Codegen:
    """Writes the replacement code of one entry: calls of the graph, loads of values (each that exists once is built
    once), and code that makes what does not exist yet."""

    def __init__(self, capture: Capture, line: int | None, owner: Owner) -> None:
        self.capture, self.owner = capture, owner
        # a circle would keep what the capture saw until the collector finds it
        made = weakref.WeakMethod(self.load_made)

        def load_instead(obj: Any) -> bool:
            load_made = made()
            return load_made is not None and load_made(obj)

        self.em = Emitter(line, load_instead)
        self.own_globals = capture.root.globals
        self.outputs: list[TensorValue] = []
        self.left_state: list[StateChange | ModeChange] = []
        """The calls behind the graph that change torch's state as the captured code has."""
        self._output_of: dict[int, str] = {}  # id(fake) -> temporary of the graph output
        self._kept: dict[int, str] = {}  # id(value) -> temporary
        self._alive: list[Value] = []  # ids above stay unique while these live
        self._cycles = Cycles()

    # ---- values -----------------------------------------------------------------------------------

    def load(self, value: Value) -> None:
        """Push a value of the captured program."""
        value = self.resolved(value)
        name = self._kept.get(id(value))
        if name is not None:
            self.em.load_fast(name)
        elif value.source is not None and (value.built_once or not isinstance(value, ConstantValue)):
            self.em.load_source(value.source)
        elif value.built_once and not (isinstance(value, TensorValue) and value.is_plain):
            self._alive.append(value)
            value.reconstruct(self)
            self._kept[id(value)] = name = self.em.new_temporary("v")
            self.em.copy()
            self.em.store_fast(name)
        else:
            value.reconstruct(self)

    def load_made(self, obj: Any) -> bool:
        """Push the real class in the place of one that stands for it while capturing; False for any other object."""
        made = self.capture.made_classes.get(obj) if isinstance(obj, type) else None
        if made is not None:
            self.load(made)
        return made is not None

    def holds_itself(self, container: Value) -> bool:
        """Whether a container that is being built is to be left empty, for its replay to fill: what goes into it holds
        it."""
        return self._cycles.begin_at(container)

    def resolved(self, value: Value) -> Value:
        """The value that a lazy value turned out to be, if anything looked at it; else the value itself."""
        while isinstance(value, LazyValue) and value.realized is not None:
            value = value.realized
        return value

    def keep(self, value: Value) -> None:
        """Have the value in a temporary from here on."""
        value = self.resolved(value)
        if id(value) in self._kept or isinstance(value, ConstantValue):
            return
        self.load(value)
        if id(value) in self._kept:
            self.em.pop()
            return
        self._alive.append(value)
        self._kept[id(value)] = name = self.em.new_temporary("v")
        self.em.store_fast(name)

    def is_kept(self, value: Value) -> bool:
        return id(value) in self._kept

    def is_output(self, tensor: TensorValue) -> bool:
        """Whether a tensor made in the graph leaves it."""
        return id(tensor.fake) in self._output_of

    def load_plain(self, container: Any) -> None:
        """Push the built-in part of a container object, as a fresh container."""
        container.reconstruct(self)

    def load_graph_output(self, tensor: TensorValue) -> None:
        key = id(tensor.fake)
        if key not in self._output_of:
            self._output_of[key] = self.em.new_temporary("out")
            self.outputs.append(tensor)
        self.em.load_fast(self._output_of[key])

    def load_globals(self, namespace: dict[str, Any]) -> None:
        """Push a namespace."""
        self.em.load_object(namespace)

    def call_function(self, function: Any, *args: Value) -> None:
        """Push the result of a function framejit holds."""
        self.em.call_object(function, lambda: [self.load(a) for a in args], len(args))

    def call_method(self, owner: Value, name: str, *args: Value) -> None:
        """Push the result of a method of `owner`."""

        def load_method() -> None:
            self.load(owner)
            self.em.load_attr(name)

        self.em.call(load_method, lambda: [self.load(a) for a in args], len(args))

    # ---- leaving ------------------------------------------------------------------------------------

    def finish_return(self, value: Value) -> None:
        """Side effects, then return `value`."""
        effects = self.capture.effects
        self.keep(value)
        effects.prepare(self)
        variables = self.capture.root.held_to_the_end() if self.capture.in_traceback else []
        held = self._hold_what_may_be_missed(variables)
        effects.replay(self)
        if any(held):
            # a list lets go of its last first
            kept = [variable for variable, is_held in zip(variables, held) if is_held][::-1]
            self.em.call_object(native.keep_variables, lambda: [self.load(variable) for variable in kept], len(kept))
            self.em.pop()
        self.load(value)
        self.em.return_value()

    def finish_tail_call(self, target: Callable[[list[bool]], Any], args: list[Value], dying: list[Value]) -> None:
        """Side effects, then leave through a tail call with `args`, and with those of `dying` whose end could be seen;
        `target` is told which these are."""
        effects, em = self.capture.effects, self.em
        with em.apart() as pushed:
            for arg in args:
                self.load(arg)
            effects.prepare(self)
            held = self._hold_what_may_be_missed(dying)
            effects.replay(self)
            kept = [value for value, is_held in zip(dying, held) if is_held]
            for value in kept:
                self.load(value)
        em.call_slot(target(held), TAIL, lambda: em.instructions.extend(pushed), len(args) + len(kept))
        em.return_value()

    def _hold_what_may_be_missed(self, values: list[Value]) -> list[bool]:
        """Have those of the values in temporaries whose end could be seen; which these are."""
        held = [False] * len(values)
        while True:  # what is built for one may be in another, too
            found = [
                i for i, value in enumerate(values) if not held[i] and may_be_missed(self, value) and self._hold(value)
            ]
            if not found:
                return held
            for i in found:
                held[i] = True
            self.capture.effects.prepare(self)

    def _hold(self, value: Value) -> bool:
        """Have a value in a temporary that only its being alive is wanted of; False for what can't be built."""
        if isinstance(self.resolved(value).source, ArgSource):
            return True  # it is in a variable of its own, which nothing writes
        take_back, kept = self.em.here(), dict(self._kept)
        outputs, output_of = list(self.outputs), dict(self._output_of)
        try:
            self.keep(value)
        except Unsupported:
            take_back()
            self._kept, self.outputs, self._output_of = kept, outputs, output_of
            return False
        return True

    # ---- assembling ---------------------------------------------------------------------------------

    def code(
        self,
        compiled: Callable[..., Any] | None,
        inputs: list[TensorValue],
        failure: Callable[..., Any] | None,
        keeper: Callable[..., Any] | None,
        rehearsal: Callable[..., Any] | None = None,
    ) -> CodeType:
        """The replacement: what was emitted so far, after the call of the compiled graph.

        `keeper` is called before the graph, if there is one, and `rehearsal` with its inputs; `failure` when either
        raises.
        """
        code, em = self.capture.root.code, self.em
        free = code.co_freevars
        n = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        arguments, handler = list(code.co_varnames[:n]), list[Any]()
        with em.apart(in_front=True) as beginning:
            if free:
                em.op("COPY_FREE_VARS", len(free))
            em.op("RESUME", 0)
            if meter.running:
                em.call_object(meter.entered, list, 0)
                em.pop()
            if compiled is not None:
                kept = None if keeper is None else self._keep(keeper)
                on_error = Label()
                region = TryBegin(on_error, push_lasti=False, stack_depth=0)
                em.instructions.append(region)
                self._run_graph(compiled, inputs, rehearsal)
                em.instructions.append(TryEnd(region))
                self._take_outputs()
                with em.apart() as handler:
                    self._leave_after_error(on_error, failure, kept, arguments, free)
            else:
                self._change_state()
        return assemble_variant(_returning_at_once(beginning + em.instructions) + handler, code, arguments, free=free)

    def _let_go_of_gradients(self, inputs: list[TensorValue]) -> None:
        """Before a graph that computes gradients, take those from leaves that captured code lets go of, where nothing
        reads them any more: they are not to live beside the new ones. Changes are replayed behind the graph otherwise.
        A call that raises in it is done again by plain Python, which has to come by the letting go before the operation
        that raises."""
        if not any(node.target is torch.autograd.grad for node in self.capture.graph.graph.nodes):
            return
        first = self._first_step_that_may_raise()
        read: set[Source] = set()
        for source in (*self.em.loaded, *(value.source for value in inputs)):
            while source is not None and source not in read:
                read.add(source)
                source = source.base
        for value in self.capture.effects.replayed():
            if (
                isinstance(value, TensorValue)
                and value.gave_up_gradient is not None
                and value.gave_up_gradient < first
                and value.gradient_source() not in read
            ):
                assert value.source is not None
                self.em.op("LOAD_CONST", None)
                self.em.load_source(value.source)
                self.em.op("STORE_ATTR", "grad")

    def _first_step_that_may_raise(self) -> float:
        """The first step of the capture with an operation that may raise, or warn where warnings are errors."""
        effects, origins = self.capture.graph_effects(), self.capture.graph.origins
        nodes = [effects.nodes[position] for position in (*effects.raising, *effects.warning)]
        return min((origins[node].seq if node in origins else 0 for node in nodes), default=math.inf)

    def _run_graph(
        self, compiled: Callable[..., Any], inputs: list[TensorValue], rehearsal: Callable[..., Any] | None
    ) -> None:
        em = self.em

        def load_inputs() -> None:
            for value in inputs:
                assert value.source is not None
                em.load_source(value.source)

        if rehearsal is not None:
            em.call_object(rehearsal, load_inputs, len(inputs))
            em.pop()
        self._let_go_of_gradients(inputs)
        if type(compiled) in (FunctionType, MethodType):
            # The interpreter enters a Python function it finds on the stack without a call in C.
            em.call(lambda: em.load_object(compiled), load_inputs, len(inputs))
        else:
            em.call_slot(compiled, VALUE, load_inputs, len(inputs))

    def _take_outputs(self) -> None:
        """Put the graph's outputs, which are on the stack, where the rest of the code finds them."""
        em = self.em
        self._change_state()
        names = [self._output_of[id(o.fake)] for o in self.outputs]
        if names:
            em.op("UNPACK_SEQUENCE", len(names))
            for name in names:
                em.store_fast(name)
        else:
            em.pop()
        if meter.running:
            em.call_object(partial(meter.ran_graph, self.owner), list, 0)
            em.pop()

    def _change_state(self) -> None:
        for change in self.left_state:
            if isinstance(change, ModeChange):
                change.carry_out(self)
                continue
            setter, values = change
            self.em.call_object(setter, partial(self._load_all, values), len(values))
            self.em.pop()

    def _load_all(self, objects: tuple[Any, ...]) -> None:
        for obj in objects:
            self.em.load_object(obj)

    def _keep(self, keeper: Callable[..., Any]) -> str:
        """Have kept what the graph may change before it raises; the name of the temporary."""
        sources = keeper.sources if isinstance(keeper, Keeper) else []
        if isinstance(keeper, Keeper) and keeper.is_where_shared:
            self.em.call_where_shared(keeper, lambda: [self.em.load_source(source) for source in sources], len(sources))
        else:
            self.em.call_object(keeper, lambda: [self.em.load_source(source) for source in sources], len(sources))
        name = self.em.new_temporary("kept")
        self.em.store_fast(name)
        return name

    def _leave_after_error(
        self, label: Label, failure: Callable[..., Any] | None, kept: str | None, arguments: list[str],
        free: tuple[str, ...],
    ) -> None:
        """The handler for the call of the graph. The exception does not become the one being handled: what happens next
        is to show no trace of it."""
        em, error, target, going_on = self.em, self.em.new_temporary("error"), self.em.new_temporary("target"), Label()
        em.place(label)
        em.store_fast(error)

        def load() -> None:
            em.load_fast(error)
            if kept is None:
                em.load_object(None)
            else:
                em.load_fast(kept)
            for name in free:
                em.load_closure(name)
            em.build("TUPLE", len(free))
            for name in arguments:
                em.load_fast(name)

        em.call_object(failure, load, 3 + len(arguments))
        em.store_fast(target)
        em.load_fast(target)
        em.op("POP_JUMP_IF_NONE" if PY312 else "POP_JUMP_FORWARD_IF_NONE", going_on)
        em.load_fast(target)
        em.return_value()
        em.place(going_on)
        em.load_fast(error)
        em.op("RERAISE", 0)


def _returning_at_once(instructions: list[Any]) -> list[Any]:
    """The instructions without the temporaries that take a value only for it to be returned."""
    left = list(instructions)
    while len(left) > 2 and all(isinstance(part, Instr) for part in left[-3:]):
        stored, loaded, last = left[-3:]
        name = stored.arg
        if (
            (stored.name, loaded.name, last.name) != ("STORE_FAST", "LOAD_FAST", "RETURN_VALUE")
            or loaded.arg != name
            or not is_temporary(name)
        ):
            break
        if sum(isinstance(part, Instr) and part.arg == name for part in left) > 2:
            break
        del left[-3:-1]
    return left
