"""The frame hook, with entries that tests build by hand."""

from __future__ import annotations

import pytest

from framejit import _native as native

from native_support import Hooked


@pytest.fixture
def hook():
    with Hooked() as hooked:
        yield hooked
    assert not native.hook_active()
