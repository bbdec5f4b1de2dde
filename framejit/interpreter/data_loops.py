"""A loop that data ends: a `while` on data, or a `for` over a range with a `break` on data, becomes one node of the
graph, which repeats graphs of its own (`backends/data_loop.py`).

Nothing is computed that the program does not compute: the loop's code is captured from one decision to the next, with
stand-ins in the place of what a turn leaves to the next one, until a decision comes up again. So random numbers may be
drawn, and operations may raise: the call is run again as plain Python then, as ever.

Done where the code has no effect but its variables, and these hold tensors of the same metadata in each turn, numbers
of one type, or what never changes. Gradients would have to go back through each turn: a loop with any breaks the graph,
and so does one in a try block, which may be there for what ends an endless loop. Where anything else comes up on the
way, the capture starts again, and breaks at the jump.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch
from torch import fx

from framejit.backends.data_loop import DataLoop
from framejit.backends.may_raise import draws_numbers, is_collective, may_raise, may_warn
from framejit.bytecode.for_iterators import ITERATOR_SLOTS
from framejit.config import config
from framejit.fakes.arguments import tensors_in
from framejit.fakes.storages import storage_of
from framejit.interpreter.chosen_tensors import Choice, ChosenTensors, is_whole
from framejit.interpreter.frame import Returned
from framejit.interpreter.loop_parts import LoopParts, LoopPoint, carrying
from framejit.interpreter.loop_region import Region, first_done, loop_region
from framejit.interpreter.read_conditions import can_decide, condition_of
from framejit.signals import Raised, Selecting, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.iterator_values import RangeIterator
from framejit.values.objects.exception_values import NULL
from framejit.values.runtime_numbers.read_arithmetic import compute
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.sym_int import SIZE
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.copies import Copy, SameObject
from framejit.values.tensors.higher_order.nested_graph import operand_node
from framejit.values.tensors.higher_order.repeated_functions import existing_values
from framejit.values.tensors.tensor import NEEDS_DATA, TensorValue

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame

TIMES: Final = 8
"""How many times as many operations as the branches of an `if` a loop may have: it computes nothing in vain."""
_LARGEST: Final = 2**52
"""What ints that loops carry stay below, which are shown to grow by no more than _STEP in a turn: that many turns take
years."""
_STEP: Final = 2**10
_LARGEST_FIRST: Final = 2**40
_DTYPES: Final[dict[type, torch.dtype]] = {float: torch.float64, int: torch.int64, bool: torch.bool}
_BOUNDS: Final[dict[type, tuple[float, float]]] = {
    float: (-math.inf, math.inf), int: (-_LARGEST, _LARGEST), bool: (0, 1),
}
_COUNTER: Final = ""
"""The name, among variables, of the number that comes next out of a range."""
_PURE: Final = "while_loop"
"""The operation that a loop amounts to which neither raises, nor draws random numbers, nor warns."""


def loop_at_jump(frame: Frame, value: Value, index: int) -> int | None:
    """Where the code goes on behind the loop whose jump, by the truth of `value`, stands at `index`, once the loop is
    a node of the graph; None if the jump is of no such loop."""
    if not config.branch_operations or not can_decide(frame, value) or _is_in_try(frame):
        return None
    region = loop_region(frame, index)
    if region is None:
        return None
    if region.counted is None:
        return _Loop(frame, value, index, region, None).capture_whole()
    numbers = frame.stack[-ITERATOR_SLOTS]
    if not isinstance(numbers, RangeIterator) or not _is_small(numbers.rest):
        return None
    return _Loop(frame, value, index, region, numbers).capture_whole()


def _is_small(numbers: range) -> bool:
    return not numbers or max(abs(numbers[0]), abs(numbers[-1])) < _LARGEST_FIRST


def _is_in_try(frame: Frame) -> bool:
    """Whether the code stands in a try block, here or in a caller. The end of a `with` block is none."""
    for each in frame.chain():
        handler = each.instruction.handler
        if each.catches or handler is not None and not _ends_with_block(each, handler.target):
            return True
    return False


def _ends_with_block(frame: Frame, place: int) -> bool:
    names = [ins.name for ins in frame.instructions[place : place + 3]]
    return "WITH_EXCEPT_START" in names


class _Loop:
    """One loop that is captured."""

    def __init__(
        self, frame: Frame, value: Value, index: int, region: Region, counted: RangeIterator | None
    ) -> None:
        self.frame, self.capture, self.graph = frame, frame.capture, frame.capture.graph
        self.value, self.index, self.region, self.counted = value, index, region, counted
        self.place = frame.visible().place
        self.outer = self.capture.selecting
        code, hint = NEEDS_DATA["__bool__"]
        self.seq, self.refusal = frame.seq, Unsupported("bool() of a tensor needs its data", code, hint)
        if isinstance(value, ReadNumberValue):
            self.seq, self.refusal = value.seq, value.refusal
        self.assigned = {
            frame.instructions[place].arg for place in region.inside if frame.instructions[place].name == "STORE_FAST"
        }
        self.left = sorted(self.assigned & frame.decoded.live_at(region.exit.place))
        self.stack = frame.stack[:]
        self.points: list[LoopPoint] = []
        self.first: dict[str, Value] = {}
        """What the loop's variables hold before it, as it carries them."""
        self.condition: TensorValue | None = None
        """That of the first decision."""
        self.start = self.mark = self.graph.last_node()
        """The nodes before all that is taken out of the graph, and before those of the last point."""
        self.laid_out = set[int]()
        """The storages of which a part was copied."""
        self.counter: Value | None = None
        """What comes next out of the range, where the loop's code takes it."""
        if counted is not None and self._takes_numbers():
            self.counter = ConstantValue(counted.rest[0] if counted.rest else 0)

    def _takes_numbers(self) -> bool:
        """Whether anything is done with what comes out of the range."""
        frame, place = self.frame, self.region.counted
        assert place is not None
        store = frame.instructions[place + 1]
        return store.name != "STORE_FAST" or store.arg in frame.decoded.live_at(place + 2) or store.arg in self.left

    def refuse(self, why: str = "") -> NoReturn:
        if why and self.outer is None:
            self.refusal = Unsupported(f"{self.refusal.reason} ({why})", self.refusal.code, self.refusal.hint)
        self.capture.break_at(self.seq, self.refusal)

    # ---- the code --------------------------------------------------------------------------------------

    def capture_whole(self) -> int:
        """Capture the loop, and put the frame to where it goes on."""
        frame, capture, effects = self.frame, self.capture, self.capture.effects
        self._take_iterator()
        state, existing = capture.left_behind(), existing_values(frame, effects.kept())
        if id(self.counted) in existing:
            self.refuse()
        jump = frame.instructions[self.index]
        most = self.graph.n_ops + TIMES * config.branch_operations
        capture.selecting = self.outer or Selecting(self.seq, self.refusal, most)
        try:
            with self.graph.taken_out(), effects.changed_inside() as changed:
                again = self._reach(jump, condition_of(self.graph, self.value))
                while again is None:
                    again = self._run_on()
        except (Raised, Returned):
            self.refuse()
        finally:
            capture.selecting = self.outer
        if capture.left_behind() != state or any(id(value) in existing for value in changed):
            self.refuse()
        self._leave(again)
        return self.region.exit.place

    def _take_iterator(self) -> None:
        """Take the iterator of a `for` from the stack: its place is counted by the loop. Nothing else may hold it."""
        frame = self.frame
        if self.counted is not None:
            del frame.stack[-ITERATOR_SLOTS:]
            self.stack = frame.stack[:]
        frame.forget_saved_stack()

    def _run_on(self) -> int | None:
        """Capture the code from the last decision to the next: that one's number if it came up before."""
        frame = self.frame
        while True:
            ins = frame.instructions[frame.pc]
            if ins.index not in self.region.inside:
                self.refuse()
            if ins.index == self.region.counted:
                return self._reach(ins, None)
            # whose truth is taken by an instruction of its own from CPython 3.13 on
            jump = frame.instructions[ins.index + 1] if ins.name == "TO_BOOL" else ins
            if self.region.leads_out(jump) is not None:
                value = realize(frame, frame.stack[-1])
                if can_decide(frame, value):
                    frame.stack.pop()
                    return self._reach(jump, condition_of(self.graph, value))
            frame.step()

    def _reach(self, ins: Instruction, condition: TensorValue | None) -> int | None:
        """Come to a decision: its number if it came up before; else the code goes on behind it, with stand-ins."""
        frame, goes_on, stays = self.frame, ins.index + 1, None
        if len(frame.stack) != len(self.stack) or any(a is not b for a, b in zip(frame.stack, self.stack)):
            self.refuse()
        if condition is not None:
            stays = not self.region.leads_out(ins)
            if stays == ins.name.endswith("TRUE"):
                assert ins.target is not None
                goes_on = ins.target
        goes_on = first_done(frame, goes_on)
        places = [(point.place, point.stays) for point in self.points]
        known = places.index((goes_on, stays)) if (goes_on, stays) in places else None
        given = {name: self._carried(name) for name in self._names(goes_on)}
        if self.points:
            self.points[-1].end(self.graph.nodes_behind(self.mark), condition, given)
        else:
            self.first, self.condition, self.start = given, condition, self.graph.last_node()
            self._check_bounds(given, _LARGEST_FIRST)
        if known is not None:
            self._check_alike(self.points[known].stand_ins, given)
            return known
        stand_ins = {name: self._stand_in(value) for name, value in given.items()}
        self.points.append(LoopPoint(goes_on, stays, stand_ins))
        self.mark = self.graph.last_node()
        for name in self.assigned:
            frame.locals[name] = stand_ins.get(name, NULL)
        frame.pc = goes_on
        self.counter = stand_ins.get(_COUNTER)
        if condition is None:
            self._count(self.counter)
        return None

    def _names(self, goes_on: int) -> list[str]:
        """The variables that a loop carries which goes on there, or ends."""
        frame = self.frame
        live = self.assigned & (frame.decoded.live_at(goes_on) | {*self.left})
        names = sorted(name for name in live if frame.locals.get(name, NULL) is not NULL)
        if not {*self.left} <= {*names}:
            self.refuse()  # one that might be unbound behind the loop
        return names if self.counter is None else [*names, _COUNTER]

    def _count(self, counter: Value | None) -> None:
        """Take the next number of a range."""
        assert self.counted is not None
        self.frame.push(ConstantValue(0) if counter is None else counter)
        if counter is not None:
            self.counter = compute(self.frame, operator.add, counter, ConstantValue(self.counted.rest.step))

    # ---- what is carried -------------------------------------------------------------------------------

    def _carried(self, name: str) -> Value:
        """What a variable holds, as the loop carries it."""
        held = self.frame.locals[name] if name != _COUNTER else self.counter
        assert held is not None
        value = realize(self.frame, held)
        if isinstance(value, TensorValue):
            return self._carried_tensor(value)
        cls = value.python_type()
        if isinstance(value, ReadNumberValue) or cls not in (float, int, bool):
            return value
        if isinstance(value, ConstantValue) and (cls is not int or abs(value.value) < _LARGEST_FIRST):
            options: dict[str, Value] = {"dtype": ConstantValue(_DTYPES[cls])}
            made = self.graph.call(torch.full, [ConstantValue(()), value], options)
            assert isinstance(made, TensorValue)
            return self._number(made, (-math.inf, math.inf) if cls is float else (value.value, value.value))
        if isinstance(value, SymNumberValue) and cls is float:
            number = value.in_dtype(torch.float64)
            assert isinstance(number, TensorValue)
            return self._number(number, (-math.inf, math.inf))
        self.refuse()

    def _number(self, tensor: TensorValue, bounds: tuple[float, float]) -> ReadNumberValue:
        return ReadNumberValue(self.capture, tensor, self.seq, self.refusal, bounds, is_argument=False)

    def _carried_tensor(self, value: TensorValue) -> TensorValue:
        fake = value.fake
        if value.cls is not torch.Tensor or value.attrs:
            self.refuse()
        if fake.layout != torch.strided or fake._has_symbolic_sizes_strides:
            self.refuse()
        if fake.is_inference() != torch.is_inference_mode_enabled():  # turns give tensors of the other kind
            self.refuse()
        if fake.is_conj() or fake.is_neg():
            self.refuse()
        if fake.requires_grad:
            self.refuse("and gradients would go back through each turn of the loop")
        if self.points and value.node in self.graph.nodes_behind(self.mark):
            nodes = [node for node in self.graph.graph.nodes if node is not value.node]
            others = {storage for node in nodes for storage in _storages(node)}
            if storage_of(fake) in others or not is_whole(fake):
                return self._laid_out(value)
        return value

    def _laid_out(self, value: TensorValue) -> TensorValue:
        """A view of what a turn has made, in memory of its own; nothing that is there from before may lead to it. It
        is a copy of the view that the program has."""
        made_before = {
            storage
            for node in {*self.graph.graph.nodes}.difference(self.graph.nodes_behind(self.mark))
            for storage in _storages(node)
        }
        storage = storage_of(value.fake)
        if storage in made_before or storage in self.laid_out or value.copy_of is not None:
            self.refuse()
        self.laid_out.add(storage)
        made = self.graph.call("clone", [value], is_method=True)
        assert isinstance(made, TensorValue)
        if made.fake.stride() != value.fake.stride():
            self.refuse()
        made.copy_of = Copy(self.capture, self.seq, self.refusal, set())
        return made

    def _stand_in(self, value: Value) -> Value:
        tensor = carrying(value)
        if tensor is None:
            return value
        with self.graph.metadata.faking():
            made = _like(tensor.fake)
        stand_in = TensorValue(operand_node(self.graph.graph, made), made, torch.Tensor)
        if not isinstance(value, ReadNumberValue):  # which of several tensors it is, no turn knows
            stand_in.copy_of = SameObject(self.capture, self.seq, self.refusal, {storage_of(made)})
            stand_in.copy_of.candidates = None
            return stand_in
        return self._number(stand_in, _BOUNDS[value.cls])

    def _check_alike(self, before: dict[str, Value], now: dict[str, Value]) -> None:
        """What a turn leaves has to be what the loop carries."""
        if before.keys() != now.keys():
            self.refuse()
        # wherever the loop ends, what it leaves has to be of one kind
        first, *others = [point.stand_ins for point in self.points]
        if not all(_are_alike(first[name], other[name]) for other in others for name in self.left):
            self.refuse()
        if not all(_are_alike(a, now[name]) for name, a in before.items()):
            self.refuse()
        for point in self.points:
            self._check_bounds(point.given, _LARGEST + _STEP)

    def _check_bounds(self, values: dict[str, Value], most: int) -> None:
        for name, value in values.items():
            if isinstance(value, ReadNumberValue) and value.cls is int and name != _COUNTER:
                if max(map(abs, value.bounds)) > most:
                    self.refuse()

    # ---- the node --------------------------------------------------------------------------------------

    def _leave(self, again: int) -> None:
        """Take what was captured out of the graph, put the node there, and have the frame hold what it gives."""
        frame, taken = self.frame, self.graph.nodes_behind(self.start)
        if any(SIZE in node.meta for node in taken):
            self.refuse()
        inner = [node for point in self.points for node in point.nodes]
        left = [name for name in self.left if carrying(self.first[name]) is not None]
        parts = LoopParts(self.points, again, {*taken}, left)
        origins = {name: parts.origins(name, self.first) for name in left}
        if not parts.is_closed:
            self.refuse()
        operation = _PURE if all(map(_is_quiet, inner)) else None
        first = [tensor for value in self.first.values() if (tensor := carrying(value)) is not None]
        chosen = self._chosen([choice.tensor for found in origins.values() for choice in found], parts.has_copies)
        turns = 0 if self.counted is None else len(self.counted.rest)
        loop = DataLoop(parts.decisions, len(parts.outside), turns, operation)
        with self.graph.metadata.faking():
            fakes = [_like(tensor.fake) for name in parts.left if (tensor := carrying(self.first[name])) is not None]
        for node in reversed(taken):
            self.graph.graph.erase_node(node)
        assert self.condition is not None
        nodes = (self.condition.node, *(tensor.node for tensor in first), *parts.outside)
        made = list(self.graph.add(loop, nodes, tuple(fakes)).iterate(frame))
        for name in self.assigned:
            frame.locals[name] = self.first[name] if name in self.left else NULL
        for name, result in zip(parts.left, made):
            assert isinstance(result, TensorValue)
            frame.locals[name] = self._result(self.first[name], result, chosen, origins[name])
        chosen.check([*frame.locals.values(), *frame.stack])
        self.capture.selected.append((self.place, len(inner), "loop"))

    def _result(
        self, before: Value, made: TensorValue, chosen: ChosenTensors, origins: list[Choice]
    ) -> Value:
        if isinstance(before, ReadNumberValue):
            return self._number(made, _BOUNDS[before.cls])
        chosen.add(made, origins)
        return made

    def _chosen(self, origins: list[TensorValue], copied: bool) -> ChosenTensors:
        """The results are the objects that the program has, if none of these is a copy itself."""
        copied |= any(tensor.copy_of is not None and not isinstance(tensor.copy_of, SameObject) for tensor in origins)
        return ChosenTensors(self.frame, self.seq, self.refusal, Copy if copied else SameObject)


def _like(fake: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)


def _kind(tensor: TensorValue) -> tuple[Any, ...]:
    return tensor.fake.shape, tensor.fake.stride(), tensor.fake.dtype, tensor.fake.device


def _are_alike(a: Value, b: Value) -> bool:
    """Whether a loop may carry one value in the place of the other."""
    if isinstance(a, ReadNumberValue) and isinstance(b, ReadNumberValue):
        return a.cls is b.cls and a.tensor.fake.device == b.tensor.fake.device
    if isinstance(a, TensorValue) and isinstance(b, TensorValue):
        return _kind(a) == _kind(b)
    return a is b or _are_equal(a, b)


def _are_equal(a: Value, b: Value) -> bool:
    if not isinstance(a, ConstantValue) or not isinstance(b, ConstantValue) or type(a.value) is not type(b.value):
        return False
    return a.value is b.value or type(a.value) is str and a.value == b.value


def _storages(node: fx.Node) -> Iterator[int]:
    for fake in tensors_in((node.meta.get("val"),)):
        if fake.layout == torch.strided:
            yield storage_of(fake)


def _is_quiet(node: fx.Node) -> bool:
    """Whether a node surely neither raises, nor draws random numbers, nor warns, nor exchanges tensors with other
    processes."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    if node.target is operator.getitem and not isinstance(args[0], torch.Tensor):
        return True
    return not (
        may_raise(node.target, args, kwargs) or draws_numbers(node.target, args, kwargs)
        or may_warn(node.target, args, kwargs) or is_collective(node.target)
    )
