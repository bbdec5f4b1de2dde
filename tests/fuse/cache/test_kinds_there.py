"""Whether a folder has entries of a kind, told without reading one."""
import os
import time

from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.disk_cache import DiskCache


def test_a_kind_is_seen_once_somebody_has_kept_one(tmp_path):
    folder = str(tmp_path / "cache")
    cache, other = DiskCache(folder, 1 << 20), DiskCache(folder, 1 << 20)
    assert not cache.may_have("capture")
    other.put("llvm", key_of("cpu", "a"), b"a")
    assert not cache.may_have("capture") and cache.may_have("llvm")
    long_ago = time.time() - 100
    os.utime(folder, (long_ago, long_ago))
    assert not cache.may_have("capture") and not cache.may_have("capture")
    other.put("capture", key_of("cpu", "b"), b"b")
    assert cache.may_have("capture")


def test_a_change_within_a_tick_of_the_clock_is_seen(tmp_path):
    folder = str(tmp_path / "cache")
    cache = DiskCache(folder, 1 << 20)
    cache.put("llvm", key_of("cpu", "a"), b"a")
    before = os.stat(folder)
    assert not cache.may_have("capture")
    cache.put("capture", key_of("cpu", "b"), b"b")
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache.may_have("capture")


def test_without_a_limit_there_is_nothing(tmp_path):
    assert not DiskCache(str(tmp_path), 0).may_have("capture")
