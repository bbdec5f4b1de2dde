"""The ways in which tensors are read."""

from __future__ import annotations

import pytest

import framejit.guards.tensor_layout  # noqa: F401  needed by tensor guards
from framejit import _native as native


@pytest.fixture(params=["direct", "shim", "attributes"])
def way(request):
    usual = native.tensor_access()
    native.force_tensor_access(request.param)
    yield request.param
    native.force_tensor_access(usual)
