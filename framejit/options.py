"""What one call of `optimize` asked for."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from framejit.backends.frozen_weights import takes_frozen_weights
from framejit.backends.registry import is_registered, resolve
from framejit.config import config
from framejit.errors import InvalidOption
from framejit.events import warn

if TYPE_CHECKING:
    from framejit.backends.registry import Backend


@dataclass(frozen=True, eq=False)
class Options:
    """Carried by the dispatcher, read by the compiler.

    `name`, `file` and `line` say what the user optimized, where that is not the dispatcher's function: a module's dispatcher runs
    `torch.nn.Module.__call__`, whose own name would tell nobody anything.
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

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        return self  # a copied model is compiled by the same backend, not by a copy of it

    def __reduce__(self) -> tuple[Callable[..., Options], tuple[Any, ...]]:
        backend = self.backend_name if is_registered(self.backend_name, self.backend) else self.backend
        return _restore, (backend, self.fullgraph, self.dynamic, self.name, self.file, self.line, self.verify, self.freeze)


def _restore(
    backend: str | Backend,
    fullgraph: bool,
    dynamic: bool | None,
    name: str,
    file: str | None,
    line: int | None,
    verify: float = 0.0,
    freeze: bool = False,
) -> Options:
    function, backend_name = resolve(backend)
    return Options(function, backend_name, fullgraph, dynamic, name, file, line, verify, freeze)


def make_options(
    backend: str | Backend | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    verify: bool | float | None = None,
    freeze: bool | None = None,
    name: str = "",
    file: str | None = None,
    line: int | None = None,
) -> Options:
    """Checked options; what is not supported yet is refused, never ignored."""
    if mode not in (None, "default"):
        raise InvalidOption(f"mode={mode!r} is not supported yet: leave it out")
    if options:
        raise InvalidOption(f"options={options!r} is not supported yet: leave it out, or name a backend that has them built in")
    if dynamic not in (None, True, False):
        raise InvalidOption(f"dynamic must be True, False or None, not {dynamic!r}")
    if not isinstance(fullgraph, bool):
        raise InvalidOption(f"fullgraph must be True or False, not {fullgraph!r}")
    if not isinstance(freeze, (bool, type(None))):
        raise InvalidOption(f"freeze must be True, False or None, not {freeze!r}")
    if verify is None:
        verify = config.verify
    if not isinstance(verify, (bool, int, float)) or not 0 <= verify <= 1:
        raise InvalidOption(f"verify must be True, False or a fraction of calls from 0 to 1, not {verify!r}")
    function, backend_name = resolve(backend)
    if freeze and not takes_frozen_weights(function):
        place = (file, line) if file and line else None
        warn(f"freeze=True: the backend {backend_name!r} computes nothing from weights beforehand, so freezing them changes nothing", place)
    return Options(function, backend_name, fullgraph, dynamic, name, file, line, float(verify), config.freeze if freeze is None else freeze)
