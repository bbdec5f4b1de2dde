"""What `optimize(module)` returns: an object that is the module in every respect but one, that calling it runs compiled
code.

It is an instance of a subclass of the module's class and *shares* the module's `__dict__`, so there is one set of
parameters, buffers, hooks and attributes, under the same names. The module itself stays as it was: calling it runs
plain Python. The subclass has a slot named `__call__`, in which each instance keeps a dispatcher bound to the original
module. CPython finds it there without running any Python code, and `forward` sees the original module as `self`, as it
does when called plainly.
"""
from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from framejit.dispatchers import bound_call
from framejit.options import Options
from framejit.originals import ClassOfOriginal, original_of

M = TypeVar("M", bound=torch.nn.Module)

_subclasses: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


class _Signature:
    """What `inspect.signature` finds: on an instance that of calls, on the class that of the module's own class."""

    def __get__(self, optimized: OptimizedModule | None, owner: type) -> inspect.Signature:
        return inspect.signature(_plain_class(owner) if optimized is None else original_of(optimized))


class OptimizedModule:
    """Base of the subclasses made here, first in their resolution order."""

    __slots__ = ()
    __signature__ = _Signature()
    __class__ = ClassOfOriginal()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Another of the module's kind, which `type(self)(...)` makes, is a plain module."""
        return _plain_class(cls)(*args, **kwargs)

    def __init_subclass__(cls) -> None:
        """The module's class is not told of the subclass: it may keep a register of those that users write."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return optimize_module(copy.deepcopy(original_of(self), memo), options_of(self))

    def __copy__(self) -> Any:
        return optimize_module(copy.copy(original_of(self)), options_of(self))

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return optimize_module, (original_of(self), options_of(self))

    def _replicate_for_data_parallel(self) -> Any:
        return original_of(self)._replicate_for_data_parallel()


def dispatcher_of(optimized: Any) -> Any:
    """The dispatcher that calls run through, or the function in front of one that verifies some of them; both have
    `options`."""
    return optimized.__call__.__func__


def _plain_class(cls: type) -> type:
    """The class of modules that a class of optimized modules was made of."""
    return next(base for base in cls.__mro__ if not issubclass(base, OptimizedModule))


def options_of(optimized: Any) -> Options:
    """The options that `optimize` made a function or module with."""
    options: Options = dispatcher_of(optimized).options
    return options


def optimize_module(module: M, options: Options) -> M:
    """The optimized twin of `module`."""
    optimized: M = object.__new__(_subclass_of(type(module)))
    object.__setattr__(optimized, "__dict__", module.__dict__)
    object.__setattr__(optimized, "__call__", bound_call(module, options))
    return optimized


def _subclass_of(cls: type[M]) -> type[M]:
    known = _subclasses.get(cls)
    made: Any = known() if known is not None else None
    if made is None:
        namespace = {
            "__slots__": ("__call__",), "__module__": cls.__module__, "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
        }
        metaclass: Any = type(cls)
        made = metaclass(cls.__name__, (OptimizedModule, cls), namespace)
        _subclasses[cls] = weakref.ref(made)
    found: type[M] = made
    return found
