"""`float(tensor)`, `int(tensor)` and `tensor.item()`: a Python number that nobody knows before the graph runs, as a
tensor without dimensions.

Arithmetic with it stays in the graph: of floats in float64, which is what Python computes in; of ints in int64, with
bounds that show that nothing overflows, or else a number that the graph asserts to be small. Results are handed out as
Python's. Whatever else asks for the number starts the capture again, and breaks the graph where the tensor is read.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.backends.may_raise import operation_name
from framejit.guards.thread_questions import has_saved_tensor_hooks
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.runtime_numbers.kept_counts import answer_of_count
from framejit.values.sym_number import ELEMENTWISE
from framejit.values.tensors.held_numbers import HeldNumber
from framejit.values.tensors.tensor import NEEDS_DATA, TensorValue

if TYPE_CHECKING:
    from torch import fx

    from framejit.values.context import Capture, Codegen, Frame


_INT_BOUNDS: Final = {
    torch.bool: (0, 1), torch.uint8: (0, 2**8 - 1), torch.int8: (-(2**7), 2**7 - 1), torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1), torch.int64: (-(2**63), 2**63 - 1),
}
"""What the ints of a dtype lie between."""
_DTYPES: Final[dict[type, torch.dtype]] = {float: torch.float64, int: torch.int64, bool: torch.bool}
_MESSAGE: Final = "a number read from a tensor is one that Python or torch raises for, or too large for int64"
_FLOATS: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_HOLD: Final[dict[type, tuple[torch.dtype, ...]]] = {
    float: _FLOATS, int: (torch.int64, torch.float32, torch.float64), bool: (torch.bool, torch.int64, *_FLOATS)
}
"""The dtypes that torch makes of a number by a plain cast, where it is not too large for them."""
LARGEST_EXACT: Final = 2**53
"""Up to here all ints are floats, too."""
_COMPUTE_WITH_NUMBERS: Final = frozenset("""
    add sub mul div true_divide pow float_power clamp clamp_min clamp_max fill lerp addcmul addcdiv batch_norm
""".split())
"""Operations that only compute with the floats they are given: none of them decides about shapes or dtypes, and none is
refused."""
_DIVISIONS: Final = frozenset((operator.truediv, operator.itruediv))
_FLOORED: Final = frozenset((operator.floordiv, operator.ifloordiv, operator.mod, operator.imod))
_REFUSED_TO_BOOLS: Final = frozenset((operator.sub, operator.isub))
"""What torch does not do with bools."""
MOST_LISTED: Final = 16
"""Lists of more numbers break the graph."""
_STAND_IN: Final = 0.5
"""The number that fakes of such operations are made with."""


class ReadNumberValue(HeldNumber):
    """A number read from a tensor by step `seq` of the capture.

    `tensor` is a copy of the number, without dimensions: of a float in float64, of an int in int64, of a bool in bool.
    `refusal` is why the graph breaks where the number must be known. `bounds`: what it surely lies between.
    `is_argument`: whether operations that take nothing but a number get one, which the graph reads: backends can't fuse
    such a graph, and otherwise it breaks in two that they can. `digits`: the dtype that holds it as it is, where it was
    read from one; None for what was computed. `is_either`: whether it may be an int instead, of the same value, as
    `max(number, 1)` may. `was_read`: whether the tensor has what was read, with nothing computed of it. `base`: of an
    int that is a sum of another one and a constant or a size, the other one, and `ahead` what is added. `is_choice`:
    whether an `if` on data left it, as a flag that turns of a loop may set; a branch by it breaks the graph where it
    stands, for behind the last `if` that set the flag there may be much more that can be captured.
    """

    built_once = True

    def __init__(
        self, capture: Capture, tensor: TensorValue, seq: int, refusal: Unsupported,
        bounds: tuple[float, float] = (-math.inf, math.inf), is_argument: bool = True,
        digits: torch.dtype | None = None, is_either: bool = False, was_read: bool = False,
    ) -> None:
        self.capture, self.tensor, self.seq, self.refusal = capture, tensor, seq, refusal
        self.bounds, self.is_argument, self.digits, self.is_either = bounds, is_argument, digits, is_either
        self.cls = next(cls for cls, dtype in _DTYPES.items() if dtype is tensor.fake.dtype)
        self.one_of_each = self.cls is not float
        self.was_read = was_read
        self.size: Any = None  # that it was taken for, as a SymInt
        self.below: dict[int, fx.Node] = {}  # by what it is asserted to be below
        self.base: ReadNumberValue | None = None
        self.ahead: Any = 0
        self.is_choice = False
        self._read: fx.Node | None = None

    def python_type(self) -> type:
        return type(self.must_be_known()) if self.is_either else self.cls

    def describe(self) -> str:
        return f"{self.cls.__name__} read from a tensor"

    def children(self) -> Iterator[Value]:
        return iter((self.tensor,))

    def must_be_known(self) -> Any:
        self.capture.break_at(self.seq, self.refusal)

    def known_content(self, frame: Frame) -> Any:
        return self.must_be_known()

    def proxy(self) -> Any:
        return self.must_be_known()

    def truth(self, frame: Frame) -> bool:
        answer = self.answer(frame)
        if answer is None and self.is_choice and self.capture.selecting is None:
            raise self.refusal.again()
        return bool(self.must_be_known()) if answer is None else answer

    def answer(self, frame: Frame) -> bool | None:
        """Its truth, where that is known without running the graph."""
        return answer_of_count(frame, self.tensor)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        wanted = {"__float__": float, "__int__": int}.get(name)
        if not args and wanted is float:
            made = self.in_dtype(torch.float64)
            assert isinstance(made, TensorValue)
            return self.like(made, self.bounds, self.digits)
        if not args and wanted is int:
            return self.rounded(torch.trunc)
        found: Value = self.must_be_known()
        return found

    def rounded(self, function: Callable[..., Any]) -> ReadNumberValue:
        """The number as an int. Python raises for nan and infinite ones, and has no bound, where the graph has one."""
        if self.cls is not float:
            whole = self.in_dtype(torch.int64)
            assert isinstance(whole, TensorValue)
            return self.like(whole, self.bounds)
        graph = self.capture.graph
        is_small = graph.call(torch.le, [graph.call(torch.abs, [self.tensor]), ConstantValue(float(LARGEST_EXACT))])
        self.check(is_small)
        made = graph.call("to", [graph.call(function, [self.tensor]), ConstantValue(torch.int64)], is_method=True)
        assert isinstance(made, TensorValue)
        return self.like(made, (-LARGEST_EXACT, LARGEST_EXACT))

    def is_true(self) -> ReadNumberValue:
        """`bool()` of it."""
        made = self.capture.graph.call(torch.ne, [self.tensor, ConstantValue(self.cls(0))])
        assert isinstance(made, TensorValue)
        return self.like(made, (0, 1))

    def check(self, condition: Value) -> None:
        """Have the graph raise unless a condition on numbers holds. On a GPU a failed assertion would end the process's
        use of it, so that the graph breaks where the number is read."""
        if self.tensor.fake.device.type != "cpu":
            self.must_be_known()
        self.capture.graph.call(torch._assert_async, [condition, ConstantValue(_MESSAGE)])

    def like(
        self, tensor: TensorValue, bounds: tuple[float, float], digits: torch.dtype | None = None,
        is_either: bool = False,
    ) -> ReadNumberValue:
        """A number that was computed from this one."""
        made = ReadNumberValue(
            self.capture, tensor, self.seq, self.refusal, bounds, self.is_argument, digits, is_either
        )
        made.is_choice = self.is_choice
        return made

    def held_by(self, tensor: TensorValue) -> ReadNumberValue:
        return self.like(tensor, self.bounds, self.digits, self.is_either)

    def argument_of(self, target: Any) -> Any:
        """The number as an argument of an operation: read where the graph runs."""
        if operation_name(target) not in _COMPUTE_WITH_NUMBERS or not self.is_argument or self.cls is not float:
            self.must_be_known()
        if not is_there(self._read):
            self._read = self.capture.graph.number_in(self.tensor, _STAND_IN)
        return self._read

    def beside(self, function: Callable[..., Any], tensor: TensorValue) -> Value:
        """The operand that `function(tensor, number)` is given in place of the number: a tensor where that gives equal
        results (`SymNumberValue.as_tensor` says where), so that the operation can be fused."""
        dtype, fake = tensor.fake.dtype, tensor.fake
        on_cpu = fake.device.type == "cpu"
        if (
            function not in ELEMENTWISE and not (function in _FLOORED and dtype.is_floating_point and on_cpu)
            or self.cls is bool and function in _REFUSED_TO_BOOLS
            or self.is_either and not dtype.is_floating_point
            or dtype not in (torch.float32, torch.float64)
            and (dtype is not torch.int64 or self.cls is float or function in _DIVISIONS)
            or fake.device != self.tensor.fake.device
        ):
            return self
        if tensor.cls not in (torch.Tensor, torch.nn.Parameter):
            return self
        return self.in_dtype(dtype)

    def fitting(self, dtype: torch.dtype, may_be_infinite: bool = False) -> Value | None:
        """The number as a tensor without dimensions; where it is too large for the dtype, the graph raises, as torch
        does, but for what makes it infinite then. None for dtypes that hold it in another way."""
        if dtype not in _HOLD[self.cls]:
            return None
        if self.cls is float and not may_be_infinite and not self._fits(dtype):
            graph, most = self.capture.graph, torch.finfo(dtype).max
            magnitude = graph.call(torch.abs, [self.tensor])
            fits = graph.call(torch.le, [magnitude, ConstantValue(most)])
            is_other = graph.call(torch.logical_not, [graph.call(torch.isfinite, [self.tensor])])
            self.check(graph.call(torch.logical_or, [fits, is_other]))
        return self.in_dtype(dtype)

    def _fits(self, dtype: torch.dtype) -> bool:
        """Whether a float is surely none that is too large for a dtype."""
        most = torch.finfo(dtype).max
        if dtype is torch.float64 or self.digits is not None and torch.finfo(self.digits).max <= most:
            return True
        return -most <= self.bounds[0] <= self.bounds[1] <= most

    def distance_from(self, other: ReadNumberValue) -> Any:
        """How much greater than another one the number is, an int or a SymInt, where no data decides that; else
        None."""
        same = self.cls is int and (self.base or self) is (other.base or other)
        return self.ahead - other.ahead if same else None

    def in_dtype(self, dtype: torch.dtype) -> Value:
        """The number as a tensor without dimensions."""
        if dtype is self.tensor.fake.dtype:
            return self.tensor
        return self.capture.graph.call("to", [self.tensor, ConstantValue(dtype)], is_method=True)

    def reconstruct(self, cg: Codegen) -> None:
        if self.is_either:
            self.must_be_known()
        cg.em.call_object(torch.Tensor.item, lambda: cg.load(self.tensor))


def read_float(
    frame: Frame, tensor: TensorValue, bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Value | None:
    """`float(tensor)`; None where a graph can't read it, and with a gradient (torch warns)."""
    return None if tensor.fake.requires_grad else read_number(frame, tensor, float, "float()", bounds)


def read_item(frame: Frame, tensor: TensorValue, asked_by: str = ".item()") -> Value | None:
    """`tensor.item()`; None where a graph can't read it."""
    known = tensor.known_result(frame)
    if known is not None and known.numel() == 1:
        return ConstantValue(known.item())
    dtype = tensor.fake.dtype
    return read_number(
        frame, tensor, _class_of_items(tensor), asked_by, _INT_BOUNDS.get(dtype, (-math.inf, math.inf))
    )


def read_list(frame: Frame, tensor: TensorValue) -> Value | None:
    """`tensor.tolist()` of a few elements; None where a graph can't read them."""
    if not are_readable(frame, tensor, _class_of_items(tensor), ".tolist()") or tensor.fake.numel() > MOST_LISTED:
        return None
    graph = frame.capture.graph
    if tensor.fake.requires_grad:
        detached = graph.call("detach", [tensor], is_method=True)
        assert isinstance(detached, TensorValue)
        tensor = detached
    return listed(frame, tensor, lambda number: read_item(frame, number, ".tolist()"))


def listed(frame: Frame, tensor: TensorValue, read: Callable[[TensorValue], Value | None]) -> Value | None:
    """What `tolist()` gives of what `read` makes of elements; None where that is None of one."""
    if not tensor.fake.dim():
        return read(tensor)
    items = []
    for place in range(tensor.fake.shape[0]):
        row = frame.capture.graph.call("select", [tensor, ConstantValue(0), ConstantValue(place)], is_method=True)
        item = listed(frame, row, read) if isinstance(row, TensorValue) else None
        if item is None:
            return None
        items.append(item)
    return ListValue(items)


def _class_of_items(tensor: TensorValue) -> type:
    dtype = tensor.fake.dtype
    return float if dtype.is_floating_point else bool if dtype is torch.bool else int


def read_int(frame: Frame, tensor: TensorValue) -> Value | None:
    """`int(tensor)`; None where a graph can't read it, and with a gradient (torch warns)."""
    if tensor.fake.requires_grad:
        return None
    bounds = _INT_BOUNDS.get(tensor.fake.dtype)
    if bounds is not None:
        return read_number(frame, tensor, int, "int()", bounds)
    number = read_number(frame, tensor, float, "int()", (-math.inf, math.inf))
    return number.rounded(torch.trunc) if isinstance(number, ReadNumberValue) else None


def read_bool(frame: Frame, value: Value) -> ReadNumberValue | None:
    """`bool(value)` of a number that was read from a tensor, or of a tensor; None of everything else, and where a graph
    can't read it."""
    if isinstance(value, ReadNumberValue):
        return value.is_true()
    if not isinstance(value, TensorValue) or frame.capture.overrides.modes:
        return None
    number = read_number(frame, value, bool, "bool()", (0, 1))
    assert number is None or isinstance(number, ReadNumberValue)
    return number


def negated(frame: Frame, value: Value) -> Value:
    """`not value`."""
    truth = read_bool(frame, value)
    if truth is None:
        return ConstantValue(not frame.truth(value))
    made = truth.capture.graph.call(torch.logical_not, [truth.tensor])
    assert isinstance(made, TensorValue)
    return truth.like(made, (0, 1))


def are_readable(frame: Frame, tensor: TensorValue, cls: type, asked_by: str) -> bool:
    """Whether a graph can read the numbers in a tensor, as `cls`: none of a program's class, nor of a dtype whose
    numbers `cls` can't hold; and not under hooks on what autograd saves, which would see the tensors that stand for the
    numbers."""
    fake = tensor.fake
    return (
        not has_saved_tensor_hooks(torch)
        and tensor.cls in (torch.Tensor, torch.nn.Buffer, torch.nn.Parameter)
        and not fake.is_complex()
        and fake.device.type in ("cpu", "cuda")
        and fake.layout == torch.strided
        and (cls is float or fake.dtype in _INT_BOUNDS or asked_by == "bool()")
        and not fake._has_symbolic_sizes_strides
        and not frame.capture.transforms
        and getattr(fake, "constant", None) is None
        and tensor.known_result(frame) is None
    )


def read_number(
    frame: Frame, tensor: TensorValue, cls: type, asked_by: str, bounds: tuple[float, float]
) -> Value | None:
    """The number in a tensor, as `cls`; None where a graph can't read it, and of more than one element (torch
    refuses)."""
    fake = tensor.fake
    if not are_readable(frame, tensor, cls, asked_by) or fake.numel() != 1:
        return None
    graph = frame.capture.graph
    if fake.requires_grad:
        detached = graph.call("detach", [tensor], is_method=True)
        assert isinstance(detached, TensorValue)
        tensor = detached
    number = graph.call("reshape", [tensor, ConstantValue(())], is_method=True) if fake.dim() else tensor
    frame.capture.reads_numbers = True
    copied = graph.call("to", [number, ConstantValue(_DTYPES[cls])], {"copy": ConstantValue(True)}, is_method=True)
    assert isinstance(copied, TensorValue)
    code, hint = NEEDS_DATA["__bool__" if asked_by == "bool()" else "item"]
    refusal = Unsupported(f"{asked_by} of a tensor needs its data", code, hint)
    is_argument = asked_by == "float()" or graph.metadata.finds_sizes()
    digits = fake.dtype if fake.is_floating_point() else None
    return ReadNumberValue(frame.capture, copied, frame.seq, refusal, bounds, is_argument, digits, was_read=True)


def is_there(node: fx.Node | None) -> bool:
    """Whether a node is still in the graph: those of a function that became a graph of its own (a branch of torch.cond,
    the body of a loop) were taken out, and need not run."""
    return node is not None and not node._erased
