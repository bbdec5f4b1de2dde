"""framejit: a just-in-time compiler for PyTorch programs that works on their bytecode.

    import framejit

    @framejit.optimize
    def f(x, y):
        return torch.softmax(x @ y, -1)

`framejit.explain(f)(x, y)` shows what was compiled and what was not, `framejit.status()` what became of every function.
"""
from framejit.environment import compat as _compat  # the check comes before everything that relies on it

# isort: split
from framejit.environment import cpython_layout as _cpython_layout  # so does this one

# isort: split
from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any, Final

from framejit.environment.collector import resting as _resting

with _resting():  # torch is many objects that stay
    from framejit import errors, events
    from framejit.api import allow_in_graph, assume_constant, disable, optimize, reset, set_logs, status
    from framejit.backends.registry import list_backends, register_backend
    from framejit.config import config
    from framejit.errors import FramejitError, FramejitWarning
    from framejit.marks import graph_break, is_compiling, mark_dynamic
    from framejit.version import __version__ as __version__

if TYPE_CHECKING:
    from framejit.findings.explain import explain
    from framejit.inspect_compiled import inspect
    from framejit.kept.archive import load, save

__all__ = [
    "FramejitError",
    "FramejitWarning",
    "allow_in_graph",
    "assume_constant",
    "config",
    "disable",
    "errors",
    "events",
    "explain",
    "graph_break",
    "inspect",
    "is_compiling",
    "list_backends",
    "load",
    "mark_dynamic",
    "optimize",
    "register_backend",
    "reset",
    "save",
    "set_logs",
    "status",
]

_LATE: Final = {
    "explain": "framejit.findings.explain", "inspect": "framejit.inspect_compiled", "load": "framejit.kept.archive",
    "save": "framejit.kept.archive",
}
"""Where names are that few programs use: they are imported when they are asked for."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(_import_module(_LATE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


del _compat, _cpython_layout, Any, Final, TYPE_CHECKING
