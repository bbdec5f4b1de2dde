"""A short `if` on data: both branches are captured, and the graph computes both and selects.

Done where nobody can tell: the branches are straight code that has no effect but its results, of few operations that
are cheap, neither raise nor draw random numbers, and end in tensors that are alike (shape, strides, dtype, device),
numbers of one type, or the same object. Where a result is needed as what it is in the program, a tensor that was there
before or a known number, or where anything else comes up on the way, the capture starts again, and breaks at the jump.

With gradients, the branch that is not taken gives zeros where the program computes nothing. That is the same only if
both branches lead to the same tensors, by operations that make zeros of zeros: sums, and products with known numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import torch
from torch import fx

from framejit.backends.may_raise import draws_numbers, may_raise, may_warn, operation_name
from framejit.bytecode.liveness import NO_FALL_THROUGH, RETURNS
from framejit.config import config
from framejit.fakes.arguments import tensors_in
from framejit.fakes.storages import storage_of
from framejit.interpreter.chosen_tensors import Choice, ChosenTensors, is_whole
from framejit.interpreter.data_loops import loop_at_jump
from framejit.interpreter.frame import Returned
from framejit.interpreter.raising_branches import asserted_truth
from framejit.interpreter.read_conditions import can_decide, condition_of
from framejit.signals import Raised, Selecting, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.objects.exception_values import NULL
from framejit.values.runtime_numbers.kept_counts import answer_of_count
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.asserted_truth import can_be_asserted
from framejit.values.tensors.tensor import NEEDS_DATA, TensorValue

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame


_STRAIGHT: Final = frozenset("""
    NOP RESUME CACHE EXTENDED_ARG NOT_TAKEN PUSH_NULL PRECALL KW_NAMES CALL CALL_KW LOAD_FAST LOAD_FAST_CHECK LOAD_CONST
    LOAD_GLOBAL LOAD_DEREF LOAD_ATTR LOAD_METHOD STORE_FAST POP_TOP COPY SWAP BINARY_OP BINARY_SUBSCR BINARY_SLICE
    BUILD_SLICE COMPARE_OP IS_OP CONTAINS_OP UNARY_NEGATIVE UNARY_INVERT UNARY_NOT TO_BOOL BUILD_TUPLE UNPACK_SEQUENCE
    FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE BUILD_STRING JUMP_FORWARD JUMP_BACKWARD
    POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE
    POP_JUMP_BACKWARD_IF_FALSE
    POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
    POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
""".split()) | RETURNS
_LONGEST: Final = 200
"""How many instructions both branches may have."""
_CHEAP: Final = frozenset("""
    abs absolute acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or
    bitwise_xor ceil clamp clamp_max clamp_min clip copysign cos cosh deg2rad div divide elu eq erf erfc exp exp2 expm1
    fix floor fmax fmin frac ge gelu greater greater_equal gt hardsigmoid hardswish hardtanh isfinite isinf isnan le
    leaky_relu lerp less less_equal log log10 log1p log2 logical_and logical_not logical_or logical_xor logsigmoid lt
    maximum minimum mish mul multiply nan_to_num ne neg negative not_equal pos positive pow rad2deg reciprocal relu
    relu6 round rsqrt rsub selu sgn sigmoid sign silu sin sinh softplus softsign sqrt square sub subtract tan tanh
    true_divide truediv trunc where masked_fill all amax amin any argmax argmin max mean min sum prod norm std var
    softmax log_softmax to float double half bfloat16 int long bool clone detach contiguous expand expand_as reshape
    select squeeze unsqueeze t transpose permute view flatten full full_like zeros zeros_like ones ones_like
    scalar_tensor getitem and or xor invert not flip stack cat
""".split())
"""What is computed in about one pass over its operands."""
_LINEAR: Final = frozenset("add sub subtract neg negative mul multiply div divide truediv true_divide where".split())


class _Outcome(NamedTuple):
    """What a branch leaves."""

    nodes: list[fx.Node]
    variables: dict[str, Value]
    stack: list[Value]
    result: Value | None


class Meeting(NamedTuple):
    """The instruction where both branches of an `if` meet, or which comes behind a loop."""

    place: int


def truth_at_jump(frame: Frame, value: Value, index: int) -> bool | Meeting:
    """Which way the jump at `index` goes by the truth of a value, or where the graph goes on that takes both ways, or
    repeats one. Raises Returned if both branches return."""
    truth = _known_truth(frame, value)
    if truth is None:
        truth = asserted_truth(frame, value, index)
    if truth is not None:
        return truth
    for capture in (loop_at_jump, select_at_jump):
        place = capture(frame, value, index)
        if place is not None:
            return Meeting(place)
    return frame.truth(value)


def _known_truth(frame: Frame, value: Value) -> bool | None:
    """The truth of a number, or of a tensor of one, where that is known without running the graph."""
    if isinstance(value, ReadNumberValue):
        return value.answer(frame)
    known = value.known_result(frame) if isinstance(value, TensorValue) else None
    if known is not None and known.numel() == 1:
        return bool(known)
    return answer_of_count(frame, value) if isinstance(value, TensorValue) and can_be_asserted(value) else None


def select_at_jump(frame: Frame, value: Value, index: int) -> int | None:
    """Where the code goes on behind the `if` whose jump, by the truth of `value`, stands at `index`; None if it has to
    be known which way it goes. Raises Returned if both branches return."""
    jump = frame.instructions[index]
    if not config.branch_operations or jump.target is None or "POP_JUMP" not in jump.name:
        return None
    if not jump.name.endswith(("TRUE", "FALSE")) or not can_decide(frame, value):
        return None
    region = _region(frame, index)
    return None if region is None else _Selection(frame, value, index).select(*region)


def _region(frame: Frame, index: int) -> tuple[set[int], int | None] | None:
    """The instructions of both branches of the jump at `index`, and the one where they meet (None if both return); None
    for branches that are no straight code."""
    target = frame.instructions[index].target
    assert target is not None
    waiting, inside, returns = {index + 1, target}, set[int](), False
    while len(waiting) > 1 or returns and waiting:
        place = min((place for place in waiting if place > index), default=None)
        if place is None or len(inside) > _LONGEST:
            return None
        waiting.remove(place)
        ins = frame.instructions[place]
        if ins.name not in _STRAIGHT:
            return None
        inside.add(place)
        if ins.name in RETURNS:
            returns = True
        if ins.target is not None:
            if index < ins.target <= place:
                return None  # a loop
            waiting.add(ins.target)
        if ins.name not in NO_FALL_THROUGH:
            waiting.add(place + 1)
    return inside, next(iter(waiting), None)


class _Selection:
    """One `if` that is captured both ways."""

    def __init__(self, frame: Frame, value: Value, index: int) -> None:
        self.frame, self.capture, self.graph = frame, frame.capture, frame.capture.graph
        self.value, self.index, self.seq = value, index, frame.seq
        self.place = frame.visible().place
        code, hint = NEEDS_DATA["__bool__"]
        self.refusal = Unsupported("bool() of a tensor needs its data", code, hint)
        if isinstance(value, ReadNumberValue):
            self.seq, self.refusal = self.seq if value.is_choice else value.seq, value.refusal.again()
        self.known = set[int]()
        """The storages of what was there before the branches."""
        self.made: dict[tuple[int, int], Value] = {}
        self.chosen = ChosenTensors(frame, self.seq, self.refusal)

    def refuse(self) -> NoReturn:
        self.capture.break_at(self.seq, self.refusal)

    def select(self, inside: set[int], meeting: int | None) -> int | None:
        jump = self.frame.instructions[self.index]
        assert jump.target is not None
        by_truth = {jump.name.endswith("TRUE"): jump.target, jump.name.endswith("FALSE"): self.index + 1}
        condition = condition_of(self.graph, self.value)
        before, outer = self.graph.last_node(), self.capture.selecting
        most = self.graph.n_ops + config.branch_operations
        self.capture.selecting = outer or Selecting(self.seq, self.refusal, most)
        try:
            on_true = self._run(by_truth[True], inside, meeting)
            on_false = self._run(by_truth[False], inside, meeting)
        except Raised:
            self.refuse()
        finally:
            self.capture.selecting = outer
        nodes = self.graph.nodes_behind(before)
        if len(nodes) > config.branch_operations or not all(map(_is_cheap, nodes)):
            self.refuse()
        return self._merge(condition, on_true, on_false, meeting, {*nodes})

    def _run(self, place: int, inside: set[int], meeting: int | None) -> _Outcome:
        """Capture a branch, and put the frame back to where it stood."""
        frame, before = self.frame, self.graph.last_node()
        stack, variables = frame.stack[:], dict(frame.locals)
        state = self.capture.effects.version, self.capture.left_behind()
        result = None
        try:
            frame.pc = place
            while frame.pc != meeting:
                if frame.pc not in inside:
                    self.refuse()  # in a handler of an exception
                frame.step()
        except Returned as done:
            result = done.value
        if (self.capture.effects.version, self.capture.left_behind()) != state:
            self.refuse()
        outcome = _Outcome(self.graph.nodes_behind(before), dict(frame.locals), frame.stack[:], result)
        frame.stack[:] = stack
        frame.locals.clear()
        frame.locals.update(variables)
        return outcome

    # ---- what is behind the branches ------------------------------------------------------------------

    def _merge(
        self, condition: TensorValue, on_true: _Outcome, on_false: _Outcome, meeting: int | None, nodes: set[fx.Node]
    ) -> int | None:
        frame = self.frame
        self.condition, self.on_true, self.on_false = condition, on_true, on_false
        self.known = {storage for node in self.graph.graph.nodes if node not in nodes for storage in _storages(node)}
        if meeting is None:
            assert on_true.result is not None and on_false.result is not None
            result = self._either(on_true.result, on_false.result)
            self.chosen.check([result])
            self._tell(nodes)
            raise Returned(result)
        if len(on_true.stack) != len(on_false.stack):
            self.refuse()
        live = frame.decoded.live_at(meeting)
        for name in {**on_true.variables, **on_false.variables}:
            a, b = on_true.variables.get(name, NULL), on_false.variables.get(name, NULL)
            if a is b:
                frame.locals[name] = a
            elif name in live:
                frame.locals[name] = self._either(a, b)
            else:
                frame.locals[name] = NULL
        frame.stack[:] = [self._either(a, b) for a, b in zip(on_true.stack, on_false.stack)]
        self.chosen.check([*frame.locals.values(), *frame.stack])
        self._tell(nodes)
        return meeting

    def _tell(self, nodes: set[fx.Node]) -> None:
        self.capture.selected.append((self.place, len(nodes), "if"))

    def _either(self, a: Value, b: Value) -> Value:
        """What stands for `a` where the condition holds, and for `b` where it does not."""
        if a is b:
            return a
        if a is NULL or b is NULL:
            self.refuse()
        a, b = realize(self.frame, a), realize(self.frame, b)
        if a is b:
            return a
        key = (id(a), id(b))
        if key not in self.made:
            self.made[key] = self._selected(a, b)
        return self.made[key]

    def _selected(self, a: Value, b: Value) -> Value:
        if isinstance(a, TensorValue) and isinstance(b, TensorValue):
            return self._tensor(a, b)
        if isinstance(a, TupleValue) and isinstance(b, TupleValue):
            if a.python_type() is b.python_type() is tuple and len(a.items) == len(b.items):
                if a.source is None and b.source is None:
                    return TupleValue([self._either(one, other) for one, other in zip(a.items, b.items)])
        if isinstance(a, ConstantValue) and isinstance(b, ConstantValue) and type(a.value) is type(b.value):
            if a.value is b.value or type(a.value) in (int, str) and a.value == b.value:
                return a
        return self._number(a, b)

    def _number(self, a: Value, b: Value) -> Value:
        numbers, limits = list[Value](), list[tuple[float, float]]()
        cls = a.python_type()
        if cls is not b.python_type() or cls not in (float, int, bool):
            self.refuse()
        for value in (a, b):
            if isinstance(value, ReadNumberValue):
                numbers.append(value.tensor)
                limits.append(value.bounds)
            elif isinstance(value, ConstantValue) and (cls is float or abs(value.value) < 2**53):
                dtype = {float: torch.float64, int: torch.int64, bool: torch.bool}[cls]
                device = ConstantValue(self.condition.fake.device)
                options: dict[str, Value] = {"dtype": ConstantValue(dtype), "device": device}
                numbers.append(self.graph.call(torch.full, [ConstantValue(()), value], options))
                limits.append((-math.inf, math.inf) if cls is float else (value.value, value.value))
            else:
                self.refuse()
        if any(n.fake.device != self.condition.fake.device for n in numbers if isinstance(n, TensorValue)):
            self.refuse()
        made = self.graph.call(torch.where, [self.condition, *numbers])
        assert isinstance(made, TensorValue)
        bounds = min(low for low, _ in limits), max(high for _, high in limits)
        number = ReadNumberValue(self.capture, made, self.seq, self.refusal, bounds, is_argument=False)
        number.is_choice = True
        return number

    def _tensor(self, a: TensorValue, b: TensorValue) -> Value:
        if not _are_alike(a, b) or a.fake.device != self.condition.fake.device:
            self.refuse()
        if a.fake.requires_grad and not self._has_same_gradients(a, b):
            self.refuse()
        made = self.graph.call(torch.where, [self.condition, a, b])
        assert isinstance(made, TensorValue)
        if made.fake.stride() != a.fake.stride() or made.fake.requires_grad != a.fake.requires_grad:
            self.refuse()
        ways = ((True, a, self.on_true), (False, b, self.on_false))
        self.chosen.add(made, [Choice(way, value, self._is_new(value, outcome)) for way, value, outcome in ways])
        return made

    def _is_new(self, value: TensorValue, outcome: _Outcome) -> bool:
        """Whether a tensor is one that its branch has made, alone in memory of its own."""
        if value.source is not None or value.copy_of is not None or value.node not in outcome.nodes:
            return False
        storage = storage_of(value.fake)
        sharing = {
            id(fake)
            for node in outcome.nodes
            for fake in tensors_in((node.meta.get("val"),))
            if fake.layout == torch.strided and storage_of(fake) == storage
        }
        return storage not in self.known and sharing == {id(value.fake)} and is_whole(value.fake)

    # ---- gradients --------------------------------------------------------------------------------------

    def _has_same_gradients(self, a: TensorValue, b: TensorValue) -> bool:
        of_a, of_b = _led_from(a.node, {*self.on_true.nodes}), _led_from(b.node, {*self.on_false.nodes})
        return of_a is not None and of_a == of_b


def _led_from(node: fx.Node, branch: set[fx.Node]) -> set[fx.Node] | None:
    """The tensors with gradients from before a branch that lead to a node of it; None if zeros might not stay zeros on
    the way back."""
    found, waiting = set[fx.Node](), [node]
    while waiting:
        node = waiting.pop()
        if not any(fake.requires_grad for fake in tensors_in((node.meta.get("val"),))):
            continue
        if node not in branch:
            found.add(node)
            continue
        name = operation_name(node.target)
        others = [arg for arg in node.args if not isinstance(arg, fx.Node)]
        numbers = [arg for arg in others if isinstance(arg, (int, float)) and math.isfinite(arg)]
        if name not in _LINEAR or node.kwargs or len(numbers) < len(others):
            return None
        tensors = [arg for arg in node.args if isinstance(arg, fx.Node)]
        if name in ("mul", "multiply", "div", "divide", "truediv", "true_divide"):
            if len(tensors) != 1 or node.args[0] is not tensors[0] and name not in ("mul", "multiply"):
                return None
            if not all(abs(n) > 1e-30 for n in numbers):
                return None
        waiting += tensors
    return found


def _is_cheap(node: fx.Node) -> bool:
    """Whether a node computes no more than a pass or so over its operands, and has no effect but its result."""
    if node.op == "placeholder":
        return True
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    if node.op not in ("call_function", "call_method") or node.meta.get("written"):
        return False
    if operation_name(node.target) not in _CHEAP:
        return False
    is_item = operation_name(node.target) == "getitem" and not isinstance(args[0], torch.Tensor)
    return is_item or not (
        may_raise(node.target, args, kwargs) or draws_numbers(node.target, args, kwargs)
        or may_warn(node.target, args, kwargs)
    )


def _are_alike(a: TensorValue, b: TensorValue) -> bool:
    """Whether two tensors differ in nothing but their numbers."""
    x, y = a.fake, b.fake
    if a.cls is not torch.Tensor or b.cls is not torch.Tensor or a.attrs or b.attrs:
        return False
    if x.layout != torch.strided or x._has_symbolic_sizes_strides:
        return False
    if not x.is_inference() == y.is_inference() == torch.is_inference_mode_enabled():  # as what is selected will be
        return False
    if y._has_symbolic_sizes_strides or x.is_conj() or y.is_conj() or x.is_neg() or y.is_neg():
        return False
    return (x.shape, x.stride(), x.dtype, x.device, x.layout, x.requires_grad) == (
        y.shape, y.stride(), y.dtype, y.device, y.layout, y.requires_grad
    )


def _storages(node: fx.Node) -> Iterator[int]:
    for fake in tensors_in((node.meta.get("val"),)):
        if fake.layout == torch.strided:
            yield storage_of(fake)
