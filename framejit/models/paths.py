"""os.fspath, on which os.path is built."""

from __future__ import annotations

import os
from typing import Any

from framejit.models.model_registry import models


@models(os.fspath)
def fspath(path: Any) -> Any:
    if isinstance(path, (str, bytes)):
        return path
    method = getattr(type(path), "__fspath__", None)
    if method is None:
        raise TypeError("expected str, bytes or os.PathLike object, not " + type(path).__name__)
    text = method(path)
    if isinstance(text, (str, bytes)):
        return text
    raise TypeError(
        "expected " + type(path).__name__ + ".__fspath__() to return str or bytes, not " + type(text).__name__
    )
