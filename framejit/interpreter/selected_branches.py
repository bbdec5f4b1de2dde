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
from framejit.interpreter.frame import Returned
from framejit.interpreter.raising_branches import asserted_truth
from framejit.signals import Raised, Selecting, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.sequence import TupleValue
from framejit.values.objects.exception_values import NULL
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.copies import Copy
from framejit.values.tensors.override_state import has_override
from framejit.values.tensors.tensor import NEEDS_DATA, TensorValue

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame


_STRAIGHT: Final = frozenset("""
    NOP RESUME CACHE EXTENDED_ARG NOT_TAKEN PUSH_NULL PRECALL KW_NAMES CALL CALL_KW LOAD_FAST LOAD_FAST_CHECK LOAD_CONST
    LOAD_GLOBAL LOAD_DEREF LOAD_ATTR LOAD_METHOD STORE_FAST POP_TOP COPY SWAP BINARY_OP BINARY_SUBSCR COMPARE_OP IS_OP
    UNARY_NEGATIVE UNARY_INVERT TO_BOOL BUILD_TUPLE UNPACK_SEQUENCE JUMP_FORWARD JUMP_BACKWARD
    POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE
    POP_JUMP_BACKWARD_IF_FALSE
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
_MOST_HELD: Final = 2000
"""How many values are looked through for one that holds a tensor."""


class _Outcome(NamedTuple):
    """What a branch leaves."""

    nodes: list[fx.Node]
    variables: dict[str, Value]
    stack: list[Value]
    result: Value | None


class Meeting(NamedTuple):
    """The instruction where both branches of an `if` meet."""

    place: int


def truth_at_jump(frame: Frame, value: Value, index: int) -> bool | Meeting:
    """Which way the jump at `index` goes by the truth of a value, or where it goes both ways to. Raises Returned if
    both branches return."""
    truth = asserted_truth(frame, value, index)
    if truth is None:
        place = select_at_jump(frame, value, index)
        return frame.truth(value) if place is None else Meeting(place)
    return truth


def select_at_jump(frame: Frame, value: Value, index: int) -> int | None:
    """Where the code goes on behind the `if` whose jump, by the truth of `value`, stands at `index`; None if it has to
    be known which way it goes. Raises Returned if both branches return."""
    jump = frame.instructions[index]
    if not config.branch_operations or jump.target is None or "POP_JUMP" not in jump.name:
        return None
    if not jump.name.endswith(("TRUE", "FALSE")) or not _can_decide(frame, value):
        return None
    region = _region(frame, index)
    return None if region is None else _Selection(frame, value, index).select(*region)


def _can_decide(frame: Frame, value: Value) -> bool:
    """Whether a graph can select by the truth of a value: a number read from a tensor, or a tensor of one element."""
    if frame.hidden or frame.whole or frame.shown is not None or frame.capture.transforms:
        return False
    if isinstance(value, ReadNumberValue):
        return True
    if not isinstance(value, TensorValue) or value.cls not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return False
    fake = value.fake
    if has_override(value.cls) or fake.layout != torch.strided or getattr(fake, "constant", None) is not None:
        return False
    return not fake._has_symbolic_sizes_strides and fake.numel() == 1 and not fake.is_inference()


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
            self.seq, self.refusal = value.seq, value.refusal
        self.known = set[int]()
        """The storages of what was there before the branches."""
        self.made: dict[tuple[int, int], Value] = {}
        self.led_to: dict[tuple[bool, int], list[TensorValue]] = {}
        """By branch, the first or not, and storage: what was selected from tensors in it."""
        self.copied: list[TensorValue] = []
        """What was selected from copies."""

    def refuse(self) -> NoReturn:
        self.capture.break_at(self.seq, self.refusal)

    def select(self, inside: set[int], meeting: int | None) -> int | None:
        jump = self.frame.instructions[self.index]
        assert jump.target is not None
        by_truth = {jump.name.endswith("TRUE"): jump.target, jump.name.endswith("FALSE"): self.index + 1}
        condition = self._condition()
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

    def _condition(self) -> TensorValue:
        tensor = self.value.tensor if isinstance(self.value, ReadNumberValue) else self.value
        assert isinstance(tensor, TensorValue)
        made: Value = tensor
        if tensor.fake.dim():
            made = self.graph.call("reshape", [made, ConstantValue(())], is_method=True)
        if tensor.fake.dtype != torch.bool:
            made = self.graph.call(torch.ne, [made, ConstantValue(0)])
        assert isinstance(made, TensorValue)
        return made

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
            self._check_copies([result])
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
        self._check_copies([*frame.locals.values(), *frame.stack])
        self._tell(nodes)
        return meeting

    def _tell(self, nodes: set[fx.Node]) -> None:
        self.capture.selected.append((self.place, len(nodes)))

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
        return ReadNumberValue(self.capture, made, self.seq, self.refusal, bounds, is_argument=False)

    def _tensor(self, a: TensorValue, b: TensorValue) -> Value:
        if not _are_alike(a, b) or a.fake.device != self.condition.fake.device:
            self.refuse()
        if a.fake.requires_grad and not self._has_same_gradients(a, b):
            self.refuse()
        made = self.graph.call(torch.where, [self.condition, a, b])
        assert isinstance(made, TensorValue)
        if made.fake.stride() != a.fake.stride() or made.fake.requires_grad != a.fake.requires_grad:
            self.refuse()
        of = {
            storage
            for value, outcome in ((a, self.on_true), (b, self.on_false))
            if not self._is_new(value, outcome)
            for storage in (value.copy_of.of if value.copy_of is not None else {_storage(value.fake)})
        }
        if of:
            made.copy_of = Copy(self.capture, self.seq, self.refusal, of)
        for is_first, value in ((True, a), (False, b)):
            self.led_to.setdefault((is_first, _storage(value.fake)), []).append(made)
        if a.copy_of is not None or b.copy_of is not None:
            self.copied.append(made)
        return made

    def _is_new(self, value: TensorValue, outcome: _Outcome) -> bool:
        """Whether a tensor is one that its branch has made, alone in memory of its own."""
        if value.source is not None or value.copy_of is not None or value.node not in outcome.nodes:
            return False
        storage = _storage(value.fake)
        sharing = {
            id(fake)
            for node in outcome.nodes
            for fake in tensors_in((node.meta.get("val"),))
            if fake.layout == torch.strided and _storage(fake) == storage
        }
        return storage not in self.known and sharing == {id(value.fake)} and _is_whole(value.fake)

    def _check_copies(self, left: list[Value]) -> None:
        """What stands for a tensor that was there before is as good as that tensor where nothing else holds it, nor a
        view of it: then it may leave captured code as if the `if` had made it."""
        for (_, storage), made in self.led_to.items():
            if len(made) > 1:  # which share memory if that branch is taken
                for value in made:
                    value.copy_of = value.copy_of or Copy(self.capture, self.seq, self.refusal, set())
                    value.copy_of.of.add(storage)
                self.copied += made
        copies = [v for v in self.made.values() if isinstance(v, TensorValue) and v.copy_of is not None]
        if not copies:
            return
        others = {_storage(value.fake) for value in self.graph.inputs} | self._of_views()
        held = self._held(left)
        hides = self.capture.weak_references or self.capture.generators or held is None
        for copy in copies:
            assert copy.copy_of is not None
            if hides or copy in self.copied or not copy.copy_of.of.isdisjoint({*others, *(held or ())}):
                self.graph.copies.append(copy.copy_of)
            else:
                copy.copy_of = None

    def _of_views(self) -> set[int]:
        """The storages of tensors that are not all of their memory."""
        return {
            _storage(fake)
            for node in self.graph.graph.nodes
            for fake in tensors_in((node.meta.get("val"),))
            if fake.layout == torch.strided and not _is_whole(fake)
        }

    def _held(self, left: list[Value]) -> set[int] | None:
        """The storages of the tensors that are held behind the branches; None if there is too much to look through."""
        frame = self.frame
        waiting = [*left, *frame.cells.values(), *self.capture.effects.kept()]
        for caller in frame.chain()[1:]:
            waiting += caller.held()
        seen, found = set[int](), set[int]()
        while waiting:
            value = waiting.pop()
            if id(value) in seen or value is NULL:
                continue
            seen.add(id(value))
            if len(seen) > _MOST_HELD:
                return None
            if isinstance(value, TensorValue):
                found.add(_storage(value.fake))
            waiting += value.children()
        return found

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
    if x.layout != torch.strided or x.is_inference() or y.is_inference() or x._has_symbolic_sizes_strides:
        return False
    if y._has_symbolic_sizes_strides or x.is_conj() or y.is_conj() or x.is_neg() or y.is_neg():
        return False
    return (x.shape, x.stride(), x.dtype, x.device, x.layout, x.requires_grad) == (
        y.shape, y.stride(), y.dtype, y.device, y.layout, y.requires_grad
    )


def _storage(fake: torch.Tensor) -> int:
    found: int = fake.untyped_storage()._cdata
    return found


def _storages(node: fx.Node) -> Iterator[int]:
    for fake in tensors_in((node.meta.get("val"),)):
        if fake.layout == torch.strided:
            yield _storage(fake)


def _is_whole(fake: torch.Tensor) -> bool:
    """Whether a tensor has all of its memory, as one that an operation has made."""
    size = fake.untyped_storage().nbytes()
    return not fake._is_view() and not fake.storage_offset() and size == fake.numel() * fake.element_size()
