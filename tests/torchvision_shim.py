"""Makes torchvision's Python code (and timm's, which needs it) importable where its compiled operators do not fit the
installed torch. Importing this module does it.

torchvision registers shape functions for operators that its C++ library would have defined. Without the library those
registrations have no operator to attach to, and are left out; the models used in tests need none of them.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

sys.path.append(os.path.join(sys.prefix, "vision"))  # where `make test` puts them, out of the sight of transformers

_register = torch.library.register_fake


def _register_if_defined(operator: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(operator, str) and operator.startswith("torchvision::") and not _defined(operator):
        return _unchanged
    return _register(operator, *args, **kwargs)


def _defined(operator: str) -> bool:
    return bool(torch._C._jit_get_schemas_for_operator(operator))


def _unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


with mock.patch.object(torch.library, "register_fake", _register_if_defined):
    import torchvision  # noqa: F401
