"""Operations of a plan that draw random numbers. Torch draws none while a graph is captured that is not its own, so
they run before each launch, in their order, and the graph reads what they gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch

from framejit.backends.fuse.launches.recorder import NotCapturable
from framejit.backends.fuse.random_numbers.drawings import scale_of_dropout

Step = tuple[Any, ...]


_META: Final = torch.device("meta")


@cache
def _draws() -> frozenset[Callable[..., Any]]:
    """Operations that look at no content of the tensors that they are given, as plans call them."""
    aten = torch.ops.aten
    operations = (
        aten.bernoulli.p, aten.rand_like.default, aten.randn_like.default, aten.rand.default, aten.randn.default,
        aten.randint.default, aten.randint.low, aten.randint_like.default, aten.randint_like.low_dtype,
        aten.randperm.default,
    )
    return frozenset(operation._op for operation in operations)


@cache
def _dropout() -> Callable[..., Any]:
    """Dropout on GPUs: it gives what is left, and which numbers those are."""
    return torch.ops.aten.native_dropout.default._op


def drawn_slot(step: Step) -> int | None:
    """The slot of the random numbers that a step of a plan draws; None for other steps, and for what draws by looking
    at the content of a tensor."""
    if step[0] != "call":
        return None
    _, function, args, _, results = step
    if function in _draws():
        return results if type(results) is int else None
    if function is not _dropout() or type(results) is not tuple:
        return None
    _, share, is_training = args
    mask: int | None = results[1]
    return mask if is_training and 0 < share < 1 else None


class Draw:
    """One such step. While a graph is captured it only looks at what it is given; before a launch it draws."""

    def __init__(self, step: Step, slot: int) -> None:
        _, self._function, self._args, self._kwargs, self._results = step
        self.slot = slot
        self._given: tuple[tuple[Any, torch.device | None], ...] | None = None
        """Its arguments, of tensors what they look like and their devices."""
        self._named: dict[str, Any] = {}
        self._drawn: tuple[torch.Tensor, torch.device] | None = None
        """What it draws, as it looks, and on which device."""
        self.place: torch.Tensor | None = None
        """Memory of its own that a library reads what was drawn from."""

    def while_capturing(self) -> Step:
        """The step in the plan that a graph is captured of: nothing is drawn."""
        look = self._drop if self._function is _dropout() else self._look
        return ("call", look, self._args, self._kwargs, self._results)

    def before_launch(self) -> Step:
        """The step that draws. To be asked behind the capture. Raises NotCapturable if the step was not run there."""
        if self._given is None:
            raise NotCapturable(f"{self._function} was not run")
        return ("call", self, (), None, self.slot)

    def __call__(self) -> torch.Tensor:
        assert self._given is not None
        args = [arg if device is None else _like(arg, device) for arg, device in self._given]
        drawn = self._function(*args, **self._named)
        mask: torch.Tensor = drawn[1] if self._function is _dropout() else drawn
        return mask

    def have_place(self) -> None:
        """Have memory for what is drawn. To be asked behind a capture, and for the next one: memory that is allocated
        while capturing has been written before by the graph itself."""
        assert self._drawn is not None
        self.place = _like(*self._drawn)

    def _note(self, args: Sequence[Any], named: dict[str, Any], drawn: torch.Tensor, device: torch.device) -> None:
        self._named = named
        self._given = tuple([
            (_like(arg, _META), arg.device) if isinstance(arg, torch.Tensor) else (arg, None) for arg in args
        ])
        self._drawn = drawn, device

    def _look(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        shown = {name: _META if name == "device" else value for name, value in kwargs.items()}
        drawn = self._function(
            *[_like(arg, _META) if isinstance(arg, torch.Tensor) else arg for arg in args], **shown
        )
        devices = [kwargs.get("device"), *(arg.device for arg in args if isinstance(arg, torch.Tensor))]
        device = next((device for device in devices if device is not None), torch.get_default_device())
        self._note(args, kwargs, drawn, device)
        return _like(drawn, device) if self.place is None else self.place

    def _drop(self, x: torch.Tensor, share: float, is_training: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """What is left of `x`, by the product that dropout computes, and its backward, too."""
        mask = torch.empty_like(x, dtype=torch.bool) if self.place is None else self.place
        self._note((x, share, is_training), {}, _like(mask, _META), x.device)
        return torch.ops.aten.native_dropout_backward(x, mask, scale_of_dropout(share, x.dtype)), mask


def with_stand_ins(steps: Sequence[Step]) -> tuple[list[Step], list[Draw]]:
    """Steps that draw nothing, and what they would draw."""
    made: list[Step] = []
    draws: list[Draw] = []
    for step in steps:
        slot = drawn_slot(step)
        if slot is not None:
            draws.append(Draw(step, slot))
        made.append(step if slot is None else draws[-1].while_capturing())
    return made, draws


def _like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
