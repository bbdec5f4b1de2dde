"""Arrays and numbers of numpy inside graphs: a tensor over the same memory stands for each.

Only what is known to give numpy's very result becomes tensor operations (`ufuncs.py`, `array_indexing.py`, and what
`array_functions.py` calls): type, dtype, shape, strides, memory that is shared or not, and the warnings of
floating-point errors (`float_errors.py`). Everything else breaks the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import BuiltinMethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framejit import _native as native
from framejit.guards.sources import CallSource
from framejit.signals import Unsupported
from framejit.values.arrays.array_memory import (
    DTYPES,
    NUMBERS,
    ViewOf,
    number_of,
    own_array,
    plain_number,
    tensor_of_number,
    tensor_over,
)
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.objects.functions.bound_descriptor import NamedMethod
from framejit.values.runtime_numbers.read_number import read_item
from framejit.values.tensors.tensor import METHODS as TENSOR_METHODS
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import from_python, wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Codegen, Frame

HINT = "use torch operations in place of numpy's"
METHODS: dict[str, Callable[[Frame, list[Value], dict[str, Value]], Value]] = {}
"""Methods of arrays and numbers, by their names."""
VIEWS: dict[str, Callable[[Frame, ArrayValue], Value]] = {}
"""Attributes that are views of the array."""
_SIZES = ("ndim", "size", "itemsize", "nbytes")


def refused(what: str) -> Unsupported:
    """Something of numpy that no graph does."""
    return Unsupported(f"{what} works on numpy arrays, and is not known to give the same on tensors", "FJ105", HINT)


class NumpyValue(Value):
    """An array or a number of numpy while capturing; the base class of both. `tensor` holds the content."""

    tensor: TensorValue

    @property
    def fake(self) -> torch.Tensor:
        return self.tensor.fake

    @property
    def dtype(self) -> np.dtype[Any]:
        return DTYPES[self.tensor.fake.dtype]

    def children(self) -> Iterator[Value]:
        return iter((self.tensor,))

    def proxy(self) -> Any:
        raise refused(f"a tensor operation with {self.describe()}")

    def getattr(self, frame: Frame, name: str) -> Value:

        if name == "dtype":
            return ConstantValue(self.dtype)
        if name == "shape":
            return from_python(tuple(self.fake.shape))
        if name == "strides":
            return from_python(
                tuple(stride * self.fake.itemsize for stride in self.fake.stride())
                if isinstance(self, ArrayValue)
                else ()
            )
        if name in _SIZES:
            numel, itemsize = self.fake.numel(), self.fake.itemsize
            return from_python(
                {"ndim": self.fake.dim(), "size": numel, "itemsize": itemsize, "nbytes": numel * itemsize}[name]
            )
        if name in VIEWS and isinstance(self, ArrayValue):
            return VIEWS[name](frame, self)
        if name == "__class__":
            return from_python(self.python_type())
        if not any(name in vars(cls) for cls in self.python_type().__mro__):  # numbers lack some of an array's methods
            raise frame.raised(AttributeError, f"{type_of(self)} object has no attribute {name!r}")
        if name in METHODS:
            return NumpyMethodValue(self, name)
        raise refused(f"attribute {name!r} of {self.describe()}")

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        method = METHODS.get(name)
        if method is None:
            raise refused(f"method {name!r} of {self.describe()}")
        return method(frame, [self, *args], kwargs)

    def truth(self, frame: Frame) -> bool:
        raise Unsupported(f"bool() of {self.describe()} needs its data", "FJ106", "use np.where")


def type_of(value: NumpyValue) -> str:
    """How messages name the class."""
    return "'numpy.ndarray'" if isinstance(value, ArrayValue) else f"'numpy.{value.python_type().__name__}'"


class ArrayValue(NumpyValue):
    """A numpy.ndarray. It was given (`source`), is `owner.numpy()`, the view of another array that `steps` make, or the
    result of a function."""

    mutable = True

    def __init__(
        self,
        tensor: TensorValue,
        source: Source | None = None,
        owner: TensorValue | None = None,
        base: ArrayValue | None = None,
        steps: tuple[Callable[[Any], Any], ...] = (),
    ) -> None:
        self.tensor, self.source, self.owner, self.base, self.steps = tensor, source, owner, base, steps
        self.layout = (tensor.fake.shape, tensor.fake.stride())
        self.shown_as_tensor = False

    def python_type(self) -> type:
        return np.ndarray

    def describe(self) -> str:
        where = f" {self.source.name()!r}" if self.source is not None else ""
        return f"array{where} ({self.dtype}{list(self.fake.shape)})"

    def children(self) -> Iterator[Value]:
        return iter([value for value in (self.tensor, self.owner, self.base) if value is not None])

    def view(self, tensor: TensorValue, step: Callable[[Any], Any]) -> ArrayValue:
        """The view of this array that `step` makes of a real one; `tensor` lies over the same memory."""
        root = self if self.base is None else self.base
        return ArrayValue(tensor, base=root, steps=(*self.steps, step))

    def iterate(self, frame: Frame) -> Iterator[Value]:
        if not self.fake.dim():
            raise frame.raised(TypeError, "iteration over a 0-d array")
        for place in range(int(self.fake.shape[0])):
            yield frame.subscript(self, ConstantValue(place))

    def reconstruct(self, cg: Codegen) -> None:
        if self.base is not None:
            base = self.base
            cg.em.call_object(ViewOf(self.steps), lambda: cg.load(base))
        elif self.owner is not None:
            if (self.owner.fake.shape, self.owner.fake.stride()) != self.layout:
                raise Unsupported("an array over a tensor that got other sizes or strides in place", "FJ130")
            owner = self.owner
            cg.em.call_object(torch.Tensor.numpy, lambda: cg.load(owner))
        else:
            cg.em.call_object(torch.Tensor.numpy if self.shown_as_tensor else own_array, lambda: cg.load(self.tensor))


class NumberValue(NumpyValue):
    """One of numpy's numbers, as np.float64."""

    def __init__(self, tensor: TensorValue, source: Source | None = None, known: Any = None) -> None:
        self.tensor, self.source, self.known = tensor, source, known
        self.one_of_each = self.dtype.type is np.bool_

    def python_type(self) -> type:
        return self.dtype.type

    def describe(self) -> str:
        return f"{self.dtype} number" + (f" {self.source.name()!r}" if self.source is not None else "")

    def iterate(self, frame: Frame) -> Iterator[Value]:
        raise frame.raised(TypeError, f"{type_of(self)} object is not iterable")

    def plain(self, frame: Frame) -> Value:
        """The number as Python's: of one that was given, which may be assumed, or read from the graph."""
        if self.known is not None:
            return ConstantValue(plain_number(self.known))
        if self.source is not None:
            return frame.wrap(
                plain_number(number_of(frame.capture.real_object(self.tensor))), CallSource(self.source, plain_number)
            )
        read = read_item(frame, self.tensor)
        if read is None:
            raise Unsupported(
                f"{self.describe()} must be known before the program runs",
                "FJ101",
                "keep it an array, or compute it outside",
            )
        return read

    def written_by(self, frame: Frame, conversion: str) -> Value:
        kinds = "iu" if conversion == "d" else "iuf" if conversion in "eEfFgG" else ""
        return self.plain(frame) if self.dtype.kind in kinds else self

    def known_content(self, frame: Frame) -> Any:
        return self.plain(frame).constant()

    def proxy(self) -> Any:
        if type(self.known) is np.int64 or type(self.known) is np.float64:  # which torch takes for Python's own
            return plain_number(self.known)
        return super().proxy()

    def truth(self, frame: Frame) -> bool:
        if self.known is None and self.source is None:
            return super().truth(frame)
        return self.plain(frame).truth(frame)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(number_of, lambda: cg.load(self.tensor))


class NumpyMethodValue(NamedMethod):
    """A method bound to an array or number."""

    def python_type(self) -> type:
        return BuiltinMethodType


@wraps(np.ndarray)
def _existing_array(capture: Capture, obj: Any, source: Source) -> Value:
    """An array that is given."""
    capture.add_guard(source, native.C_TYPE, np.ndarray)
    tensor, place = tensor_over(obj), CallSource(source, tensor_over)
    if tensor is None:
        raise refused("an array whose memory no tensor can be laid over (by its dtype or strides, read-only, or empty)")
    if capture.is_ever_new(place.name()):
        raise refused("an array that has other sizes in each call")
    return ArrayValue(_input(capture, tensor, place), source)


@wraps(*NUMBERS)
def _existing_number(capture: Capture, obj: Any, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, type(obj))
    tensor = tensor_of_number(obj)
    assert tensor is not None
    return NumberValue(_input(capture, tensor, CallSource(source, tensor_of_number)), source)


def _input(capture: Capture, tensor: torch.Tensor, source: Source) -> TensorValue:
    capture.add_guard(source, native.C_TENSOR, tensor)
    return capture.graph.add_input(tensor, source)


def alias(frame: Frame, tensor: TensorValue) -> TensorValue:
    """A tensor over the same memory for which autograd and the count of writes have nothing to do with the first: so
    numpy writes."""
    made = frame.capture.graph.call(getattr, [tensor, ConstantValue("data")])
    assert isinstance(made, TensorValue)
    return made


def array_over(frame: Frame, tensor: TensorValue) -> ArrayValue:
    """`tensor.numpy()`."""
    fake = tensor.fake
    if (
        fake.requires_grad
        or fake.device.type != "cpu"
        or fake.layout != torch.strided
        or fake.is_conj()
        or fake.is_neg()
        or fake.dtype not in DTYPES
    ):
        raise Unsupported(
            f".numpy() of {tensor.describe()}, which numpy can't show or framejit does not compute with", "FJ105", HINT
        )
    if tensor.cls not in (torch.Tensor, torch.nn.Parameter) or not all(fake.shape):
        raise Unsupported(f".numpy() of {tensor.describe()}", "FJ105", HINT)
    return ArrayValue(alias(frame, tensor), owner=tensor)


def tensor_from(frame: Frame, array: ArrayValue) -> TensorValue:
    """`torch.from_numpy(array)`."""
    root = array if array.base is None else array.base
    root.shown_as_tensor = True
    return alias(frame, array.tensor)


def _shared(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`tensor.numpy()`."""
    tensor = args[0]
    return array_over(frame, tensor) if isinstance(tensor, TensorValue) and len(args) == 1 and not kwargs else None


TENSOR_METHODS.update({"numpy": _shared, "__array__": _shared})
