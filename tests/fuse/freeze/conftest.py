"""Plans are neither found nor left in the cache of other tests."""

from __future__ import annotations

import pytest

import framejit


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache")):
        yield
