"""Which Python function or class stands for which C function, method or iterator class."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

Model = TypeVar("Model", bound=Callable[..., Any])

MODELS: dict[Any, FunctionType] = {}
"""Functions and methods, by the real callable (for methods: the descriptor in the class)."""

ITERATORS: dict[type, type] = {}
"""Iterator classes. A model keeps its state in the attributes that `fields` names; `rebuild(*state)` makes the real
iterator that goes on from there.

With `resumable = False` it only does so while the iterator has not been stepped.
"""

NEED_ALL_ITEMS: set[Any] = set()
"""Functions that go through a list by what its items are, which is their first argument."""

REALS: dict[type, type] = {}
"""The classes that the iterator classes of models stand for."""


def models(*reals: Any) -> Callable[[Model], Model]:
    """Register a function as what the `reals` do; it takes the arguments they take."""

    def register(model: Model) -> Model:
        for real in reals:
            MODELS[real] = model  # type: ignore[assignment]
        return model

    return register


def iterates_as(real: type) -> Callable[[type], type]:
    """Register a class as what the iterator class `real` does."""

    def register(model: type) -> type:
        ITERATORS[real], REALS[model] = model, real
        return model

    return register


def is_modelled(function: Any) -> bool:
    """Whether a function or class written in C has a model."""
    try:
        return function in MODELS or function in ITERATORS or function in REALS
    except TypeError:  # not hashable
        return False
