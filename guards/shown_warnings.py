"""Whether a warning at a line of a module is shown to anybody, which guards ask anew at each call."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import Any, Final

REGISTRY: Final = "__warningregistry__"
_SHOWN_ONCE: Final = frozenset(("default", "module", "once"))
"""What filters do that show a warning unless it is in the registry of its place."""


def is_silent(text: str, line: int, category: type[Warning], namespace: dict[str, Any]) -> bool:
    """Whether a warning at a line of the module with this namespace would be shown to nobody, if Python has not
    forgotten what it has shown."""
    registry = namespace.get(REGISTRY, {})
    if type(registry) is not dict or getattr(sys.flags, "context_aware_warnings", False):
        return False
    action = _action(text, line, category, module_in(namespace))
    if action == "ignore":
        return True
    return action in _SHOWN_ONCE and registry.get((text, category, line)) is True and _is_shown_by_python()


def still_silent(text: str, line: int, silent: bool, category: type[Warning]) -> Callable[[dict[str, Any]], bool]:
    """The check (of kind C_PY) of a module's namespace that a warning is as silent as it was; it says of which warning
    as `warning`."""

    def is_as_it_was(namespace: dict[str, Any]) -> bool:
        return is_silent(text, line, category, namespace) == silent

    is_as_it_was.warning = text, line, silent, category  # type: ignore[attr-defined]
    return is_as_it_was


def is_recording(obj: Any) -> bool:
    """Whether warnings of this thread are put into the list `obj`, which `catch_warnings(record=True)` has given."""
    if getattr(sys.flags, "context_aware_warnings", False):
        return warnings._get_context().log is obj  # type: ignore[attr-defined]
    return getattr(warnings._showwarnmsg_impl, "__self__", None) is obj  # type: ignore[attr-defined]


def module_in(namespace: dict[str, Any]) -> str:
    """What Python calls a module whose warnings it tells."""
    name = namespace.get("__name__")
    return name if isinstance(name, str) else "<string>"


def _action(text: str, line: int, category: type[Warning], module: str) -> Any:
    """What the filters say of a warning, the first that it fits; None where that runs code of the program."""
    for action, message, of, where, at in warnings.filters:
        known = all(part is None or type(part) in (str, re.Pattern) for part in (message, where))
        if not known or type(of) is not type:
            return None
        if at in (0, line) and issubclass(category, of) and _fits(message, text) and _fits(where, module):
            return action
    return getattr(warnings, "defaultaction", None)


def _fits(pattern: Any, text: str) -> bool:
    if pattern is None or type(pattern) is str:
        return pattern is None or bool(pattern == text)
    return pattern.match(text) is not None


def _is_shown_by_python() -> bool:
    """Whether what is shown goes where Python writes it, and to no list or function of the program."""
    shows = warnings.showwarning, getattr(warnings, "_showwarnmsg_impl", None)
    return all(getattr(function, "__module__", None) in ("warnings", "_py_warnings") for function in shows)
