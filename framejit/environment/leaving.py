"""What is to be done before the process ends by a way on which no exit handler runs."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

_LEAVING = ("_exit", "abort", "execv", "execve")
"""Functions of `os` that end the program without its exit handlers."""


def before_leaving(act: Callable[[], Any]) -> None:
    """Call `act` before `os._exit` and its like end the program, in its forks too."""
    for name in _LEAVING:
        setattr(os, name, _acting(act, getattr(os, name)))


def _acting(act: Callable[[], Any], leave: Callable[..., Any]) -> Callable[..., NoReturn]:
    def act_and_leave(*args: Any) -> NoReturn:
        act()
        leave(*args)
        raise AssertionError("the process has ended")

    act_and_leave.__name__ = leave.__name__
    return act_and_leave
