"""The tests of the native core build entries by hand; they leave framejit's own hook policy as they found it."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # native_support


@pytest.fixture(autouse=True)
def own_hook_policy():
    from framejit import _native as native
    from framejit.dispatchers import compiler

    compiler()  # which installs its policy once in a process, and else would in a test, after which it is gone
    before = native.install_hook_policy(None, None)
    yield
    native.install_hook_policy(*before)
