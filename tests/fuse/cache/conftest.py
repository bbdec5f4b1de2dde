"""A cache of kernels and plans in a folder of its own; tests of what uses the configured one have other folders."""

import pytest

from framejit.backends.fuse.cache.disk_cache import DiskCache


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def cache(folder):
    return DiskCache(str(folder), 64 << 20)
