"""Structural equality of two worlds: values, types, order, and which objects and storages are shared inside each."""
from __future__ import annotations

import collections
import functools
import math
import os
import types
from typing import Any

import numpy as np
import torch

ATOMS = (
    type(None), bool, int, float, complex, str, bytes, range, slice, torch.dtype, torch.device, torch.layout,
    type(Ellipsis), type(NotImplemented),
)
EXACT = os.environ.get("FRAMEJIT_TEST_BACKEND", "eager") == "eager"
ATOL, RTOL = (0.0, 0.0) if EXACT else (1e-6, 1e-5)
VIEWS = (type({}.keys()), type({}.values()), type({}.items()))


class Opaque:
    """Holds a value that is nobody's state: the comparison does not look inside, copies share it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __deepcopy__(self, memo: dict[int, Any]) -> Opaque:
        return self


def assert_same(a: Any, b: Any, *, atol: float = ATOL, rtol: float = RTOL) -> None:
    """Fails unless `b` (compiled) looks exactly as `a` (eager), aliases included; of numbers the last bits may differ
    after fused kernels."""
    Comparison(atol, rtol).same(a, b, "it")


class Comparison:
    def __init__(self, atol: float, rtol: float) -> None:
        self.atol, self.rtol = atol, rtol
        self.there: dict[Any, Any] = {}
        self.back: dict[Any, Any] = {}
        self.kept: list[Any] = []  # what was made for the comparison must live as long as its id counts

    def seen(self, a: Any, b: Any, path: str) -> bool:
        """Pairs two identities; a partner that changes means that one side shares an object and the other does not."""
        known = a in self.there or b in self.back
        if known:
            assert self.there.get(a) == b and self.back.get(b) == a, f"{path}: aliasing differs"
        self.there[a], self.back[b] = b, a
        return known

    def same(self, a: Any, b: Any, path: str) -> None:
        if isinstance(a, type):
            assert a is b or (isinstance(b, type) and a.__qualname__ == b.__qualname__), f"{path}: class {a}, got {b}"
            return
        assert type(a) is type(b) or type(a).__qualname__ == type(b).__qualname__, (
            f"{path}: type {type(a)} expected, got {type(b)}"
        )
        if isinstance(a, Opaque):
            return
        if issubclass(type(a), ATOMS):  # type() does not lie
            return self.atom(a, b, path)
        self.kept += a, b
        if self.seen(id(a), id(b), path) or (a is b and not isinstance(a, torch.Tensor)):
            return
        if isinstance(a, torch.Tensor):
            self.tensor(a, b, path)
        elif isinstance(a, (list, tuple, collections.deque)):
            self.sequence(list(a), list(b), path)
            assert getattr(a, "maxlen", None) == getattr(b, "maxlen", None), path
        elif isinstance(a, (set, frozenset, *VIEWS)):
            self.sequence(list(a), list(b), path)
        elif isinstance(a, (dict, types.MappingProxyType)):
            self.sequence(list(a), list(b), f"keys of {path}")
            for (key, one), two in zip(a.items(), b.values(), strict=True):
                self.same(one, two, f"{path}[{key!r}]")
            if isinstance(a, collections.defaultdict):
                self.same(a.default_factory, b.default_factory, f"{path}.default_factory")
        elif isinstance(a, np.ndarray):
            assert a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True), path
        else:
            self.parts(a, b, path)
        self.attributes(a, b, path)

    def atom(self, a: Any, b: Any, path: str) -> None:
        if isinstance(a, float) and math.isnan(a):
            assert math.isnan(b), f"{path}: nan expected, got {b}"
        elif isinstance(a, float) and self.rtol:
            assert math.isclose(a, b, rel_tol=self.rtol, abs_tol=self.atol), f"{path}: {a} expected, got {b}"
        else:
            one, two = text_of(a), text_of(b)
            assert a == b and one == two, f"{path}: {one} expected, got {two}"

    def sequence(self, a: list[Any], b: list[Any], path: str) -> None:
        assert len(a) == len(b), f"{path}: length {len(a)} expected, got {len(b)}"
        for i, (one, two) in enumerate(zip(a, b, strict=True)):
            self.same(one, two, f"{path}[{i}]")

    def tensor(self, a: torch.Tensor, b: torch.Tensor, path: str) -> None:
        for fact in ("dtype", "device", "shape", "layout", "requires_grad", "is_leaf"):
            assert getattr(a, fact) == getattr(b, fact), (
                f"{path}.{fact}: {getattr(a, fact)} expected, got {getattr(b, fact)}"
            )
        assert (a.grad_fn is None) == (b.grad_fn is None), f"{path}.grad_fn: {a.grad_fn} expected, got {b.grad_fn}"
        torch.testing.assert_close(b, a, rtol=self.rtol, atol=self.atol, equal_nan=True, msg=lambda m: f"{path}: {m}")
        if a.layout is torch.strided:
            assert a.stride() == b.stride(), f"{path}: strides {a.stride()} expected, got {b.stride()}"
            assert a.storage_offset() == b.storage_offset(), f"{path}: storage offset"
            self.seen(
                ("storage", a.untyped_storage()._cdata), ("storage", b.untyped_storage()._cdata), f"storage of {path}"
            )
        if a.is_leaf and a.requires_grad:
            self.same(a.grad, b.grad, f"{path}.grad")

    def parts(self, a: Any, b: Any, path: str) -> None:
        if isinstance(a, BaseException):
            self.exception(a, b, path)
        elif isinstance(a, types.FunctionType):
            assert (
                a.__code__.co_name == b.__code__.co_name and a.__code__.co_firstlineno == b.__code__.co_firstlineno
            ), path
            self.same(
                [a.__defaults__, a.__kwdefaults__, a.__closure__],
                [b.__defaults__, b.__kwdefaults__, b.__closure__],
                path,
            )
        elif isinstance(a, types.MethodType):
            self.same([a.__func__, a.__self__], [b.__func__, b.__self__], path)
        elif isinstance(a, functools.partial):
            self.same([a.func, a.args, a.keywords], [b.func, b.args, b.keywords], path)
        elif isinstance(a, types.CellType):
            self.same(cell_contents(a), cell_contents(b), f"cell of {path}")

    def exception(self, a: BaseException, b: BaseException, path: str) -> None:
        assert str(a) == str(b), f"{path}: message {str(a)!r} expected, got {str(b)!r}"
        self.same(a.args, b.args, f"{path}.args")
        self.same(a.__cause__, b.__cause__, f"{path}.__cause__")
        self.same(a.__context__, b.__context__, f"{path}.__context__")
        assert a.__suppress_context__ == b.__suppress_context__, path

    def attributes(self, a: Any, b: Any, path: str) -> None:
        if hasattr(a, "__dict__") and not isinstance(
            a, (types.FunctionType, types.MethodType, types.ModuleType, functools.cached_property)
        ):
            # what aot_eager leaves at results before torch 2.13
            names = [name for name in vars(b) if name != "_dynamo_weak_dynamic_indices" or name in vars(a)]
            assert list(vars(a)) == names, f"attributes of {path}: {list(vars(a))} expected, got {names}"
            for name in vars(a):
                if isinstance(a, torch.nn.Module) and name.endswith("hooks"):
                    continue  # keyed by a counter of the process, so never alike on two sides
                self.same(vars(a)[name], vars(b)[name], f"{path}.{name}")
        for cls in type(a).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if slot not in ("__dict__", "__weakref__") and isinstance(
                    cls.__dict__.get(slot), types.MemberDescriptorType
                ):
                    missing = object
                    self.same(getattr(a, slot, missing), getattr(b, slot, missing), f"{path}.{slot}")


def text_of(value: Any) -> str:
    """Its text, or that of the error which it raises: an enum's member may have been given a value that has none."""
    try:
        return repr(value)
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def cell_contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "<empty cell>"
