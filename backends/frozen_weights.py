"""Weights whose content a backend may take to stay what it is, and backends that have a use for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from torch import fx

B = TypeVar("B", bound=Callable[..., Any])

_KEY = "framejit.frozen"


@dataclass(eq=False)
class FrozenWeight:
    """Goes with an input of a graph that is a parameter or buffer. The input's example is the weight itself.

    A backend that holds anything computed from the content sets `folded`; whoever made the graph then has the content
    guarded. Once that has happened (`decided`), nothing may be computed from the content of a weight that was not
    folded before.
    """

    folded: bool = False
    decided: bool = False

    @property
    def may_be_folded(self) -> bool:
        return self.folded or not self.decided


def freeze(placeholder: fx.Node) -> FrozenWeight:
    """Say that the weight that an input stands for may be taken to stay what it is."""
    weight: FrozenWeight = placeholder.meta.setdefault(_KEY, FrozenWeight())
    return weight


def frozen(placeholder: fx.Node) -> FrozenWeight | None:
    """The mark on an input that is a weight whose content may be used while compiling; None for any other."""
    weight = placeholder.meta.get(_KEY)
    return weight if weight is not None and weight.may_be_folded else None


def with_frozen_weights(backend: B) -> B:
    """Marks a backend that computes what depends on frozen weights alone only once."""
    backend.frozen_weights = True  # type: ignore[attr-defined]
    return backend


def takes_frozen_weights(backend: Callable[..., Any]) -> bool:
    """Whether freezing is of any use to a backend."""
    return bool(getattr(backend, "frozen_weights", False))
