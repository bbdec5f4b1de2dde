"""Every exception framejit raises on purpose, and the category of its warnings."""
from __future__ import annotations

from collections.abc import Sequence


class FramejitError(Exception):
    """Base of all exceptions of framejit."""


class UnsupportedEnvironment(FramejitError, ImportError):
    """This interpreter, platform or torch is not one framejit works with."""


class MissingPackage(FramejitError, ImportError):
    """Something that was asked for needs a package that is not installed."""


class InvalidOption(FramejitError, ValueError):
    """An option, setting or log name has a value framejit does not support."""


class InvalidTarget(FramejitError, TypeError):
    """`optimize` was given something it cannot optimize."""


class UnknownBackend(FramejitError, ValueError):
    """No backend has the given name."""


class BackendError(FramejitError, RuntimeError):
    """A backend raised, or returned something that cannot be called."""


class RecompileLimit(FramejitError, RuntimeError):
    """Under `fullgraph=True`: a function was compiled more often than `config.recompile_limit` allows."""


class GuardError(FramejitError, RuntimeError):
    """In debug mode: a new guard is false on the very frame it was made for."""


class InternalError(FramejitError, RuntimeError):
    """framejit itself is at fault: raised under `fullgraph=True` or in debug mode, and a warning otherwise."""


class GraphBreakError(FramejitError, RuntimeError):
    """Under `fullgraph=True`: the function cannot be captured as one graph.

    The attributes are those of the `graph_break` event; the message names the line, the reason and what to do.
    Without a place the message is the reason alone.
    """

    def __init__(
        self,
        reason: str,
        *,
        function: str = "",
        file: str = "",
        line: int = 0,
        code: str = "",
        hint: str = "",
        user_stack: Sequence[tuple[str, int, str]] = (),
    ) -> None:
        self.reason, self.function, self.file, self.line = reason, function, file, line
        self.code, self.hint, self.user_stack = code, hint, tuple(user_stack)
        if not file:
            super().__init__(reason)
            return
        lines = [f"fullgraph=True, but the graph breaks at {file}:{line}" + (f", in {function}" if function else "")]
        lines.append(f"  reason: {reason}" + (f" [{code}]" if code else ""))
        if hint:
            lines.append(f"  what to do: {hint}")
        lines += [f"  called from {f}:{n}, in {name}" for f, n, name in self.user_stack]
        super().__init__("\n".join(lines))


class ArchiveError(FramejitError, ValueError):
    """A file of `framejit.save` can't be written, or can't be read or trusted."""


class FramejitWarning(UserWarning):
    """The user should know, but the program goes on correctly."""
