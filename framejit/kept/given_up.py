"""Owners of entries for which none of other processes is looked for any more, as none was found once, or one did not
serve: what their captures come to learn here goes beyond what was kept."""

from __future__ import annotations

import weakref
from typing import Any, Final

given_up: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
