"""Loggers: a message of a level that is not taken, as that of `debug()` by default, is not written. One that is taken
breaks the graph at the program's call."""

from __future__ import annotations

import logging
from typing import Any

from framejit.models.model_registry import models

_Logger = logging.Logger


@models(logging.getLogger)
def get_logger(name: Any = None) -> Any:
    if not name or isinstance(name, str) and name == _Logger.root.name:
        return _Logger.root
    found = _Logger.manager.loggerDict.get(name) if isinstance(name, str) else None
    return found if isinstance(found, _Logger) else _Logger.manager.getLogger(name)  # which makes one, for real


@models(_Logger.isEnabledFor)
def is_enabled_for(self: Any, level: int) -> bool:
    if self.disabled:
        return False
    enabled = self._cache.get(level)
    if enabled is None:
        enabled = self.manager._disable < level and level >= self.getEffectiveLevel()
        self._cache[level] = enabled
    return enabled  # type: ignore[no-any-return]


@models(_Logger.getEffectiveLevel)
def effective_level(self: Any) -> int:
    logger = self
    while logger:
        if logger.level:
            return logger.level  # type: ignore[no-any-return]
        logger = logger.parent
    return 0


@models(_Logger.debug)
def debug(self: Any, msg: object, *args: Any, **kwargs: Any) -> None:
    if self.isEnabledFor(10):
        self._log(10, msg, args, **kwargs)


@models(_Logger.info)
def info(self: Any, msg: object, *args: Any, **kwargs: Any) -> None:
    if self.isEnabledFor(20):
        self._log(20, msg, args, **kwargs)


@models(_Logger.warning)
def warning(self: Any, msg: object, *args: Any, **kwargs: Any) -> None:
    if self.isEnabledFor(30):
        self._log(30, msg, args, **kwargs)


@models(_Logger.error)
def error(self: Any, msg: object, *args: Any, **kwargs: Any) -> None:
    if self.isEnabledFor(40):
        self._log(40, msg, args, **kwargs)
