"""The process-wide settings: attributes of `framejit.config`, each with an environment variable FRAMEJIT_<NAME>."""
from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from framejit import _native
from framejit.errors import FramejitWarning, InvalidOption
from framejit.suggest import did_you_mean

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


@dataclass
class Config:
    """Settings may be assigned, or changed for a while: `with framejit.config.patch(recompile_limit=4): ...`."""

    disable: bool = False
    """Run everything as plain Python. What is optimized while it is set stays as it was given."""
    default_backend: str = "fuse"
    """The backend of `optimize` where none is named."""
    recompile_limit: int = 16
    """After so many entries a function runs as it is for arguments that none of them fits."""
    dynamic_after: int = 2
    """Once a dimension of an input has come in so many sizes, the entry that is made then leaves its size open; with 0
    none does of itself."""
    capture_steps: int = 100_000
    """How many instructions in a row are captured without a tensor operation; with more, the call that takes so long is
    left to plain Python."""
    capture_seconds: int = 120
    """How long capturing one frame may take, in seconds."""
    capture_memory: int = 8 << 30
    """How many bytes the process may grow by while one frame is captured."""
    compile_after: float = 0.0
    """A function that nobody named, met under `framejit run`, `status` or `explain`, is compiled at the first call that
    comes so many seconds after its first one. `framejit run` sets 0.5: what a program does once, or for a moment, takes
    longer to compile."""
    background: bool = False
    """Compile beside the program, whose calls run as plain Python meanwhile, where `optimize` was not told."""
    background_seconds: int = 600
    """How long that may take for one frame, in seconds; with 0 as long as it takes. What takes longer stays plain
    Python."""
    min_graph_size: int = 0
    """Graphs of fewer operations run with torch's own kernels, whatever the backend."""
    branch_operations: int = 16
    """An `if` on data is in the graph, both branches of it, if these have so few operations together, and nobody can
    tell; a loop that data end is, if a turn has at most eight times as many. With 0 the graph breaks at each."""
    max_inline_depth: int = 64
    """How many nested calls are captured into one graph."""
    debug: bool = False
    """Check each new set of guards on the frame it was made for, and raise internal errors instead of running the
    original code."""
    logs: str = ""
    """Comma-separated names of what is written to stderr; see `framejit.set_logs`."""
    freeze: bool = False
    """Take the content of parameters and buffers to stay what it is, where `optimize` was not told; every write that
    torch counts is noticed."""
    same_random_numbers: bool = False
    """On GPUs, too, graphs have torch draw the random numbers that eager draws, where `optimize` was not told by its
    `options`; otherwise kernels make others themselves. On CPUs they are eager's in any case."""
    verify: float = 0.0
    """The fraction of calls that are also run as plain Python and compared, where `optimize` was not told; 1 means
    all."""
    verify_folder: str = "framejit-verify"
    """Where scripts that reproduce a difference are written."""
    ring_size: int = 4096
    """How many recent events `framejit.events.events()` remembers."""
    artifacts: str = ""
    """A folder in which each compiled graph leaves what was made of it, stage by stage. FRAMEJIT_DEBUG=folder sets it
    too."""
    passes_off: str = ""
    """Comma-separated names of passes of the fusing backend that are not run (backends/fuse/graph/passes/pipeline.py);
    to find out which is to blame."""
    keep_captures: bool = True
    """Keep what was captured from one process to the next, with compiled kernels: a function whose code, arguments and
    all that it looks at are as they were is not captured again. So far of whole functions without gradients."""
    cache_dir: str = ""
    """Where compiled kernels are kept from one process to the next; by default `framejit` in the user's cache
    folder."""
    cache_size: int = 1 << 30
    """How many bytes of them are kept; with 0 none are, and none are read."""

    def __setattr__(self, name: str, value: Any) -> None:
        default = _DEFAULTS.get(name)
        if default is None:
            raise InvalidOption(f"framejit.config has no setting {name!r}{did_you_mean(name, _DEFAULTS)}")
        if type(default) is float and type(value) is int:
            value = float(value)
        if type(value) is not type(default):
            raise InvalidOption(
                f"framejit.config.{name} must be of type {type(default).__name__}, not {type(value).__name__}"
            )
        if isinstance(value, (int, float)) and not value >= 0:
            raise InvalidOption(f"framejit.config.{name} must not be negative, but is {value}")
        if name == "verify" and value > 1:
            raise InvalidOption(f"framejit.config.{name} is a fraction, from 0 to 1, but is {value}")
        object.__setattr__(self, name, value)
        if name == "disable":
            _native.set_disabled(bool(value))

    @contextlib.contextmanager
    def patch(self, **settings: Any) -> Iterator[None]:
        """Change settings for the duration of a `with` block (or, used as a decorator, of a function)."""
        before = {name: getattr(self, name, None) for name in settings}
        try:
            for name, value in settings.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                if name in _DEFAULTS:
                    setattr(self, name, value)


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Config)}
_ENVIRONMENT = {f"FRAMEJIT_{name.upper()}": name for name in _DEFAULTS}


def parse(variable: str, text: str, default: Any) -> Any:
    """The value an environment variable stands for."""
    kind = type(default)
    if kind is bool and text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    if kind is int and text.strip().isdigit():
        return int(text)
    if kind is float:
        with contextlib.suppress(ValueError):
            return float(text)
    if kind is str:
        return text
    raise InvalidOption(f"{variable}={text} is not {'0 or 1' if kind is bool else 'a number'}")


def from_environment(environment: Mapping[str, str]) -> Config:
    """The settings a process starts with."""
    made = Config()
    for variable, text in environment.items():
        if not variable.startswith("FRAMEJIT_"):
            continue
        name = _ENVIRONMENT.get(variable)
        if name is None:
            warnings.warn(
                f"framejit knows no setting {variable}{did_you_mean(variable, _ENVIRONMENT)}",
                FramejitWarning,
                stacklevel=1,
            )
            continue
        if name == "debug" and text.lower() not in _TRUE | _FALSE:
            name = "artifacts"
        setattr(made, name, parse(variable, text, _DEFAULTS[name]))
    return made


config = from_environment(os.environ)
