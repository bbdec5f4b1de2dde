"""What one call of `optimize` asked for."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from framejit.backends.frozen_weights import takes_frozen_weights
from framejit.backends.fuse import fuse
from framejit.backends.registry import is_registered, resolve
from framejit.config import config
from framejit.errors import InvalidOption
from framejit.events import warn
from framejit.late_dataclass import dataclass
from framejit.suggest import did_you_mean

if TYPE_CHECKING:
    from framejit.backends.registry import Backend


MODES: Final = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""What `mode` may be; torch.compile has the same names."""
OPTIONS: Final = ("activation_memory", "same_random_numbers")
"""What may be named in `options`."""


@dataclass(frozen=True, eq=False)
class Options:
    """Carried by the dispatcher, read by the compiler.

    `name`, `file` and `line` say what the user optimized, where that is not the dispatcher's function: a module's
    dispatcher runs `torch.nn.Module.__call__`, whose own name would tell nobody anything.
    """

    backend: Backend
    backend_name: str
    fullgraph: bool
    dynamic: bool | None
    name: str
    file: str | None = None
    line: int | None = None
    verify: float = 0.0
    freeze: bool = False
    activation_memory: float = 1.0
    mode: str = "default"
    background: bool = False
    same_random_numbers: bool = False
    unasked: bool = False
    """Whether the hook met the function, which nobody has optimized."""

    @property
    def draws_as_eager(self) -> bool:
        """Whether graphs are to draw the random numbers that eager draws. Verified calls are compared with it."""
        return self.same_random_numbers or self.verify > 0

    @property
    def launches_at_once(self) -> bool:
        """Whether what a graph launches on a device is to be launched at once."""
        return self.mode in ("reduce-overhead", "max-autotune")

    @property
    def autotunes(self) -> bool:
        """Whether of several ways to write a kernel the one is to be taken that measures quickest."""
        return self.mode.startswith("max-autotune")

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        return self  # a copied model is compiled by the same backend, not by a copy of it

    def __reduce__(self) -> tuple[Callable[..., Options], tuple[Any, ...]]:
        backend = self.backend_name if is_registered(self.backend_name, self.backend) else self.backend
        return _restore, (
            backend,
            {field.name: getattr(self, field.name) for field in fields(self) if not field.name.startswith("backend")},
        )


def _restore(backend: str | Backend, others: dict[str, Any]) -> Options:
    function, backend_name = resolve(backend)
    return Options(function, backend_name, **others)


class Choices(TypedDict, total=False):
    """The keyword arguments of `optimize`, whose docstring says what each means."""

    backend: str | Backend | None
    fullgraph: bool
    dynamic: bool | None
    mode: str | None
    options: dict[str, Any] | None
    verify: bool | float | None
    freeze: bool | None
    background: bool | None


DEFAULTS: Choices = {
    "backend": None, "fullgraph": False, "dynamic": None, "mode": None, "options": None, "verify": None,
    "freeze": None, "background": None,
}


def check_names(asked: Choices) -> None:
    """TypeError for what `optimize` can't be asked for."""
    for name in asked:
        if name not in DEFAULTS:
            raise TypeError(f"optimize() got an unexpected keyword argument {name!r}")


def make_options(name: str = "", file: str | None = None, line: int | None = None, **asked: Unpack[Choices]) -> Options:
    """Checked options; what is not supported yet is refused, never ignored."""
    check_names(asked)
    chosen: Choices = {**DEFAULTS, **asked}
    verify, freeze = chosen["verify"], chosen["freeze"]
    mode = "default" if chosen["mode"] is None else chosen["mode"]
    if mode not in MODES:
        raise InvalidOption(f"there is no mode {mode!r}{did_you_mean(str(mode), MODES)}")
    backends_options = _options(chosen["options"])
    activation_memory = _activation_memory(backends_options)
    same_random_numbers = _same_random_numbers(backends_options)
    if chosen["dynamic"] not in (None, True, False):
        raise InvalidOption(f"dynamic must be True, False or None, not {chosen['dynamic']!r}")
    if not isinstance(chosen["fullgraph"], bool):
        raise InvalidOption(f"fullgraph must be True or False, not {chosen['fullgraph']!r}")
    if not isinstance(freeze, (bool, type(None))):
        raise InvalidOption(f"freeze must be True, False or None, not {freeze!r}")
    background = chosen["background"]
    if not isinstance(background, (bool, type(None))):
        raise InvalidOption(f"background must be True, False or None, not {background!r}")
    if verify is None:
        verify = config.verify
    if not isinstance(verify, (bool, int, float)) or not 0 <= verify <= 1:
        raise InvalidOption(f"verify must be True, False or a fraction of calls from 0 to 1, not {verify!r}")
    function, backend_name = resolve(chosen["backend"])
    place = (file, line) if file and line else None
    if freeze and not takes_frozen_weights(function):
        warn(
            f"freeze=True: the backend {backend_name!r} computes nothing from weights beforehand, so freezing them "
            "changes nothing",
            place,
        )
    if activation_memory < 1 and function is not fuse:
        warn(f"activation_memory: the backend {backend_name!r} knows no such option, so that it changes nothing", place)
    if "same_random_numbers" in backends_options and function is not fuse:
        warn(
            f"same_random_numbers: the backend {backend_name!r} knows no such option, so that it changes nothing", place
        )
    if mode != "default" and function is not fuse:
        warn(f"mode={mode!r}: the backend {backend_name!r} knows no modes, so that it changes nothing", place)
    freeze = config.freeze if freeze is None else freeze
    return Options(
        function, backend_name, chosen["fullgraph"], chosen["dynamic"], name, file, line, float(verify), freeze,
        activation_memory, mode, config.background if background is None else background, same_random_numbers,
    )


def _options(options: dict[str, Any] | None) -> dict[str, Any]:
    """What `options` says, by names that it knows."""
    for name in options or ():
        if name not in OPTIONS:
            raise InvalidOption(
                f"options={{{name!r}: ...}} is not supported{did_you_mean(str(name), OPTIONS)}; or name a backend that "
                "has its options built in"
            )
    return dict(options or {})


def _activation_memory(options: dict[str, Any]) -> float:
    """What is said of the share of memory for the backward; 1 if nothing."""
    share = options.get("activation_memory", 1.0)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise InvalidOption(f"activation_memory must be a number from 0 to 1, not {share!r}")
    return float(share)


def _same_random_numbers(options: dict[str, Any]) -> bool:
    """What is said of random numbers; the setting if nothing."""
    same = options.get("same_random_numbers", config.same_random_numbers)
    if not isinstance(same, bool):
        raise InvalidOption(f"same_random_numbers must be True or False, not {same!r}")
    return same
