"""The disk cache gives back what was put there, to any process, under its own key, and within its bounds."""
import os
import pathlib
import random
import subprocess
import time
import warnings

import pytest

import framejit
from framejit import events
from framejit.backends.fuse.cache import disk_cache
from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.disk_cache import DiskCache

import forked

KEY, OTHER = key_of("cpu", "a"), key_of("cpu", "b")
MIB = 1 << 20


def in_children(*jobs) -> None:
    """Runs the jobs in forked processes at once; all must succeed."""
    children = []
    for job in jobs:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                job()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)


# ---- what is put is what is got --------------------------------------------------------------------


def test_what_was_put_is_found_under_its_kind_and_key_only(cache):
    cache.put("llvm", KEY, b"code")
    assert cache.get("llvm", KEY) == b"code"
    assert cache.get("llvm", OTHER) is None
    assert cache.get("triton", KEY) is None


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"framejit", os.urandom(3 * MIB)], ids=["nothing", "zero", "text", "random"]
)
def test_any_bytes_come_back(cache, data):
    cache.put("llvm", KEY, data)
    assert cache.get("llvm", KEY) == data


def test_another_process_finds_it(folder):
    folder.mkdir(mode=0o700)
    program = (
        "from framejit.backends.fuse.cache.cache_key import key_of; from framejit.backends.fuse.cache.disk_cache "
        "import put\n"
        "put('llvm', key_of('cpu', 'a'), b'theirs')"
    )
    environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(folder)}
    forked.run(["-c", program], env=environment, cwd=folder, timeout=120).check_returncode()
    with framejit.config.patch(cache_dir=str(folder)):
        assert disk_cache.get("llvm", KEY) == b"theirs"  # keys don't differ between processes either


def test_the_folder_is_made_for_the_user_alone(cache, folder):
    cache.put("llvm", KEY, b"code")
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_reading_makes_no_folder(cache, folder):
    assert cache.get("llvm", KEY) is None
    assert not folder.exists()


def test_each_lookup_is_an_event(cache):
    cache.get("llvm", KEY)
    cache.put("llvm", KEY, b"code")
    cache.get("llvm", KEY)
    assert [(e.what, e.hit, e.key) for e in events.events("cache")] == [("llvm", False, KEY), ("llvm", True, KEY)]


def test_a_limit_of_nothing_is_no_cache(folder):
    cache = DiskCache(str(folder), 0)
    cache.put("llvm", KEY, b"")
    assert cache.get("llvm", KEY) is None
    assert not folder.exists()


@pytest.mark.parametrize(
    ("kind", "key"),
    [("llvm", "../../etc/passwd"), ("llvm", KEY[:-1]), ("llvm", KEY.upper()), ("../llvm", KEY), ("", KEY)],
)
def test_what_is_no_key_names_no_file(cache, kind, key):
    with pytest.raises(ValueError, match="no kind"):
        cache.put(kind, key, b"code")
    with pytest.raises(ValueError, match="no kind"):
        cache.get(kind, key)


def test_a_lookup_is_quick(cache):
    data = os.urandom(20_000)
    cache.put("llvm", KEY, data)
    best = min(_seconds(lambda: cache.get("llvm", KEY)) for _ in range(200))
    assert best < 200e-6


def _seconds(job) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


# ---- where it is ---------------------------------------------------------------------------------


def test_the_default_folder_is_in_the_users_cache_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert disk_cache.default_folder() == "/home/somebody/.cache/framejit"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    assert disk_cache.default_folder() == "/home/somebody/.cache/framejit"
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert disk_cache.default_folder() == "/caches/framejit"


def test_the_folder_of_a_user_without_home_is_not_in_the_working_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert os.path.isabs(disk_cache.default_folder())


def test_a_relative_folder_stays_where_it_was_first_used(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with framejit.config.patch(cache_dir="relative-cache"):
        disk_cache.put("llvm", KEY, b"code")
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert disk_cache.get("llvm", KEY) == b"code"


# ---- many at once --------------------------------------------------------------------------------------


def test_processes_that_write_the_same_and_different_keys_never_see_half_an_entry(folder):
    keys = [key_of("cpu", i) for i in range(8)]
    contents = {key: {bytes([who]) * size for who in range(4) for size in (10, 100_000)} for key in keys}

    def job(who: int) -> None:
        cache, choice = DiskCache(str(folder), 64 * MIB), random.Random(who)
        for _ in range(150):
            cache.put("llvm", choice.choice(keys), bytes([who]) * choice.choice((10, 100_000)))
            key = choice.choice(keys)
            got = cache.get("llvm", key)
            assert got is None or got in contents[key]

    in_children(*(lambda who=who: job(who) for who in range(4)))
    after = DiskCache(str(folder), 64 * MIB)
    assert all(after.get("llvm", key) in contents[key] for key in keys)
    assert sorted(file.name for file in folder.iterdir()) == sorted(f"llvm-{key}" for key in keys)


def test_clearing_while_in_use_loses_entries_and_nothing_else(folder):
    def use() -> None:
        cache = DiskCache(str(folder), MIB)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for i in range(400):
                cache.put("llvm", KEY, b"x" * 1000)
                assert cache.get("llvm", KEY) in (None, b"x" * 1000), i
        assert cache._may_write

    def clear() -> None:
        for _ in range(200):
            DiskCache(str(folder), MIB).clear()

    in_children(use, use, clear)


def test_a_folder_that_is_deleted_under_way_comes_back(folder, cache):
    cache.put("llvm", KEY, b"code")
    (folder / f"llvm-{KEY}").unlink()
    folder.rmdir()
    assert cache.get("llvm", KEY) is None
    cache.put("llvm", KEY, b"code")
    assert cache.get("llvm", KEY) == b"code"


def test_a_fork_goes_on_with_the_cache(folder, cache):
    cache.put("llvm", KEY, b"parent")

    def child() -> None:
        os.closerange(3, 64)  # as daemons do
        assert cache.get("llvm", KEY) == b"parent"
        cache.put("llvm", OTHER, b"child")

    in_children(child)
    assert cache.get("llvm", OTHER) == b"child"


def test_no_descriptor_stays_open(folder, cache):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        cache.put("llvm", KEY, b"code")
        cache.get("llvm", KEY)
        cache.get("llvm", OTHER)
    assert len(os.listdir("/proc/self/fd")) == before


# ---- the bound -----------------------------------------------------------------------------------------


def test_the_folder_stays_about_as_small_as_its_limit(folder):
    limit = 200_000
    cache = DiskCache(str(folder), limit)
    for i in range(200):
        cache.put("llvm", key_of("cpu", i), os.urandom(5000))
        assert sum(file.stat().st_size for file in folder.iterdir()) < limit * 1.1
    assert len(list(folder.iterdir())) > 20


def test_short_processes_prune_together(folder):
    limit = 100_000
    for i in range(200):
        DiskCache(str(folder), limit).put("llvm", key_of("cpu", i), os.urandom(2000))
    assert sum(file.stat().st_size for file in folder.iterdir()) < limit * 1.5


def test_what_was_used_last_stays(folder):
    cache = DiskCache(str(folder), 100_000)
    keys = [key_of("cpu", i) for i in range(40)]
    for age, key in enumerate(reversed(keys)):
        cache.put("llvm", key, b"x" * 2000)
        os.utime(folder / f"llvm-{key}", (0, time.time() - 1000 - age * 100))
    assert cache.get("llvm", keys[0]) is not None  # the oldest, now used again
    for i in range(20):
        cache.put("triton", key_of("gpu", i), b"x" * 2000)
    assert cache.get("llvm", keys[0]) is not None
    assert cache.get("llvm", keys[1]) is None


def test_one_entry_may_not_drive_out_the_rest(folder, cache):
    cache.put("llvm", KEY, b"x" * 40 * MIB)
    assert cache.get("llvm", KEY) is None


def test_what_dead_processes_left_half_written_is_removed(folder):
    folder.mkdir(mode=0o700)
    old, new, foreign = folder / ".tmp-1-abc", folder / ".tmp-2-abc", folder / "README"
    for file in (old, new, foreign):
        file.write_bytes(b"half")
        os.utime(file, (0, time.time() - (0 if file is new else 2 * disk_cache.ABANDONED_AFTER)))
    cache = DiskCache(str(folder), 10_000)
    for i in range(10):
        cache.put("llvm", key_of("cpu", i), b"x" * 2000)
    assert not old.exists()
    assert new.exists()
    assert foreign.exists()


def test_clear_removes_entries_and_leaves_what_is_none(folder, cache):
    cache.put("llvm", KEY, b"code")
    (folder / "README").write_text("mine")
    assert cache.clear()[0] == 1
    assert [file.name for file in folder.iterdir()] == ["README"]
    assert DiskCache(str(folder / "nowhere"), MIB).clear() == (0, 0)


# ---- the command -------------------------------------------------------------------------------------------


def command(*arguments: str, folder: pathlib.Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(folder)}
    return forked.run(["-m", "framejit", "cache", *arguments], env=environment, cwd=folder.parent, timeout=120)


def test_the_command_shows_and_clears(folder, cache):
    cache.put("llvm", KEY, b"code")
    shown = command("info", folder=folder)
    assert shown.returncode == 0
    assert str(folder) in shown.stdout
    assert "1 llvm" in shown.stdout
    cleared = command("clear", folder=folder)
    assert cleared.stdout.startswith("removed 1 files")
    assert not list(folder.iterdir())


def test_the_command_says_when_the_folder_is_not_used(folder):
    folder.mkdir()
    folder.chmod(0o777)
    assert "not used: other users can write" in command("info", folder=folder).stdout
    refused = command("clear", folder=folder)
    assert refused.returncode == 1
    assert "other users can write" in refused.stderr
