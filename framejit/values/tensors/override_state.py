"""Whether torch hands operations to the program's own `__torch_function__` at a point of the captured program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from framejit.guards.sources import static_lookup

if TYPE_CHECKING:
    from framejit.values.base import Value

_C = torch._C


ABOUT_MODES = (
    _C._push_on_torch_function_stack,
    _C._pop_torch_function_stack,
    _C._len_torch_function_stack,
    _C._get_function_stack_at,
    _C._is_torch_function_mode_enabled,
    _C._is_torch_function_enabled,
    _C._is_torch_function_all_disabled,
    _C._has_torch_function,
    _C._has_torch_function_unary,
    _C._has_torch_function_variadic,
)
"""What speaks of the protocol itself, and is handed to nobody."""


def has_override(cls: type) -> bool:
    """Whether torch hands operations on instances of a class to the class."""
    found = static_lookup(cls, "__torch_function__", None)
    return (
        found is not None
        and found is not _C._disabled_torch_function_impl
        and cls not in (torch.Tensor, torch.nn.Parameter)
    )


class ReadPlainly:
    """Reads an attribute of a tensor as torch has it, also where a `__torch_function__` would be asked; equal to others
    that read the same."""

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = name

    def __call__(self, tensor: torch.Tensor) -> Any:
        with _C.DisableTorchFunctionSubclass():
            return getattr(tensor, self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReadPlainly) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class OverrideState:
    """Whether the protocol is on at the present point of the captured program.

    From the moment a tensor of such a class is met, it is off in the capturing thread, so that nothing that framejit
    does reaches the program's code.
    """

    def __init__(self) -> None:
        self.enabled: bool = _C._is_torch_function_enabled()
        self.all_disabled: bool = _C._is_torch_function_all_disabled()  # for function modes, too
        self._guard: Any = None
        self.modes: list[Value] = []  # function modes that the captured code has entered, the innermost last
        self.entered: list[int] = []  # the steps that entered them

    @property
    def met(self) -> bool:
        return self._guard is not None

    def meet(self) -> None:
        if self._guard is None:
            self._guard = _C.DisableTorchFunctionSubclass()
            self._guard.__enter__()

    def close(self) -> None:
        if self._guard is not None:
            self._guard.__exit__(None, None, None)
            self._guard = None

    def enter(self, mode: Value, step: int) -> None:
        self.meet()
        self.modes.append(mode)
        self.entered.append(step)

    def leave(self) -> Value:
        self.entered.pop()
        return self.modes.pop()

    @contextmanager
    def off(self) -> Iterator[None]:
        """The captured program has turned the protocol off."""
        before, self.enabled = self.enabled, False
        try:
            yield
        finally:
            self.enabled = before


class Method:
    """A call of a method by its name, as the function that `handed_over` does it with."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.python_function = static_lookup(torch.Tensor, name, None)

    def __call__(self, owner: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(owner, self.__name__)(*args, **kwargs)
