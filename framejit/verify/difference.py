"""The first difference between what plain Python made and what compiled code made."""
from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from framejit.late_dataclass import dataclass
from framejit.originals import function_behind
from framejit.values.inspection import instance_dict

_EXACT = (
    type(None), bool, int, str, bytes, range, slice, type, ModuleType, CodeType, torch.dtype, torch.device,
    torch.layout, torch.Size,
)
_TOLERANCES = {
    torch.float64: (1e-7, 1e-8), torch.float32: (1e-4, 1e-5), torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (2e-2, 1e-2),
}
"""For each dtype, rtol and atol: what another order of summation and fused multiply-adds may change. Others are
compared exactly."""
_COMPLEX = {torch.complex128: torch.float64, torch.complex64: torch.float32, torch.complex32: torch.float16}
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class Difference:
    """Where two results differ: `place` is the path to it."""

    place: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.place}: {self.expected} was expected, got {self.got}"


def first_difference(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Difference | None:
    """The first difference of what was got to what was expected, by names; None if there is none. Which parts are
    shared counts too."""
    comparison = _Comparison()
    try:
        for name, value in expected.items():
            comparison.same(value, got[name], name)
    except _Found as found:
        return found.difference
    return None


class _Found(Exception):
    def __init__(self, place: str, expected: Any, got: Any) -> None:
        self.difference = Difference(place, _short(expected), _short(got))


class _Words(str):
    """Text to be shown as it is."""


def _short(value: Any) -> str:
    if isinstance(value, _Words):
        return value
    try:
        text = repr(value)
    except Exception as e:
        text = f"a {type(value).__name__} whose repr raised {type(e).__name__}"
    return text if len(text) <= 100 else f"{text[:97]}..."


class _Comparison:
    def __init__(self) -> None:
        self._partner: dict[int, int] = {}
        self._back: dict[int, int] = {}
        self._kept: list[Any] = []

    def same(self, a: Any, b: Any, place: str) -> None:
        a, b = function_behind(a), function_behind(b)
        if a is b and not isinstance(a, torch.Tensor):
            return
        if not (type(a) is type(b) or (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor))):
            raise _Found(place, _Words(f"type {type(a).__qualname__}"), _Words(f"type {type(b).__qualname__}"))
        if isinstance(a, _EXACT):
            if a != b:
                raise _Found(place, a, b)
        elif isinstance(a, (float, complex)):
            self._number(a, b, place)
        elif not self._seen(a, b, place):
            self._object(a, b, place)

    def _seen(self, a: Any, b: Any, place: str) -> bool:
        """Whether this pair was met before. An object whose partner changes is shared on one side only; tuples may be,
        for nobody can change them."""
        there, back = self._partner.get(id(a)), self._back.get(id(b))
        if (there, back) == (id(b), id(a)):
            return True
        if (there or back) and not isinstance(a, (tuple, frozenset, FunctionType, MethodType)):
            raise _Found(
                place,
                _Words("an object met before" if there else "an object of its own"),
                _Words("an object met before" if back else "another one"),
            )
        self._partner[id(a)], self._back[id(b)] = id(b), id(a)
        self._kept += (a, b)  # their addresses must stay theirs
        return False

    def _object(self, a: Any, b: Any, place: str) -> None:
        if isinstance(a, torch.Tensor):
            with torch._C.DisableTorchFunctionSubclass():  # a `__torch_function__` of the program is not asked
                self._tensor(a, b, place)
        elif isinstance(a, np.ndarray):
            alike = (
                np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
                if a.dtype.kind in "fc" and a.shape == b.shape
                else np.array_equal(a, b)
            )
            if a.dtype != b.dtype or not alike:
                raise _Found(place, a, b)
        elif isinstance(a, (list, tuple, deque)):
            self._sequence(list(a), list(b), place)
        elif isinstance(a, (set, frozenset)):
            if len(a) != len(b) or (all(isinstance(x, (*_EXACT, float)) for x in a) and a != b):
                raise _Found(place, a, b)
        elif isinstance(a, dict):
            self._sequence(list(a), list(b), f"keys of {place}")
            for (key, one), two in zip(a.items(), b.values()):
                self.same(one, two, f"{place}[{_short(key)}]")
        elif isinstance(a, FunctionType):
            if a.__code__ is not b.__code__:
                raise _Found(place, a, b)
        elif isinstance(a, MethodType):
            self.same(a.__func__, b.__func__, place)
            self.same(a.__self__, b.__self__, f"{place}.__self__")
        elif isinstance(a, BaseException):
            self._exception(a, b, place)
        self._attributes(a, b, place)

    def _exception(self, a: BaseException, b: BaseException, place: str) -> None:
        """Messages may name addresses of objects, which are never alike."""
        if _ADDRESS.sub("0x", str(a)) != _ADDRESS.sub("0x", str(b)):
            raise _Found(place, a, b)

    def _attributes(self, a: Any, b: Any, place: str) -> None:
        one, two = instance_dict(a), instance_dict(b)
        if one is None or two is None or isinstance(a, (FunctionType, torch.Tensor)):
            return
        for name in [*one, *(name for name in two if name not in one)]:
            if name not in one or name not in two:
                raise _Found(
                    f"{place}.{name}",
                    _Words("an attribute" if name in one else "no attribute"),
                    _Words("none" if name in one else "one"),
                )
            # keyed by a counter of the process, so never alike
            if not (isinstance(a, torch.nn.Module) and name.endswith("hooks")):
                self.same(one[name], two[name], f"{place}.{name}")

    def _sequence(self, a: list[Any], b: list[Any], place: str) -> None:
        for i, (one, two) in enumerate(zip(a, b)):
            self.same(one, two, f"{place}[{i}]")
        if len(a) != len(b):
            raise _Found(place, _Words(f"length {len(a)}"), _Words(str(len(b))))

    def _number(self, a: complex, b: complex, place: str) -> None:
        if a == b or (a != a and b != b):
            return
        # a tensor's element, of a dtype that nobody knows any more
        if not isinstance(a, complex) and math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5):
            return
        if not (isinstance(a, complex) and abs(a - b) <= 1e-5 + 1e-4 * abs(a)):
            raise _Found(place, a, b)

    def _tensor(self, a: torch.Tensor, b: torch.Tensor, place: str) -> None:
        if any(type(size) is not int for size in (*a.shape, *b.shape)):
            raise TypeError(f"{place} is a tensor with sizes that are no numbers, as nested ones have")
        for fact in ("dtype", "device", "shape", "layout", "requires_grad"):
            one, two = getattr(a, fact), getattr(b, fact)
            if one != two:
                raise _Found(
                    place,
                    _Words(f"{fact} {tuple(one) if fact == 'shape' else one}"),
                    _Words(str(tuple(two) if fact == "shape" else two)),
                )
        if a is b or a.device.type == "meta":
            return
        with torch.no_grad():
            self._elements(a.detach(), b.detach(), place)
        if a.is_leaf and a.requires_grad:
            self.same(a.grad, b.grad, f"{place}.grad")

    def _elements(self, a: torch.Tensor, b: torch.Tensor, place: str) -> None:
        if a.is_quantized:
            a, b = a.dequantize(), b.dequantize()
        if a.layout is not torch.strided:
            a, b = a.to_dense(), b.to_dense()
        rtol, atol = _TOLERANCES.get(_COMPLEX.get(a.dtype, a.dtype), (0.0, 0.0))
        wide = torch.complex128 if a.dtype.is_complex else torch.float64
        if rtol:
            a, b = a.to(wide), b.to(wide)
        alike = a == b
        if rtol:
            alike |= (a != a) & (b != b)
            alike |= (a - b).abs() <= atol + rtol * a.abs()
        if bool(alike.all()):
            return
        wrong = (~alike).nonzero()
        at = tuple(wrong[0].tolist())
        where = f"{place}, element {list(at)}" if at else place
        count = f" ({len(wrong)} of {a.numel()} elements differ)" if a.numel() > 1 else ""
        raise _Found(where, _Words(str(a[at].item())), _Words(f"{b[at].item()}{count}"))
