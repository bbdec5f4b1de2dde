"""The disk cache gives back exactly what was put there, whoever else writes, tears, forges or removes files meanwhile, and never stops a program."""
import errno
import os
import pathlib
import random
import socket
import subprocess
import sys
import time
import warnings

import pytest

import framejit
from framejit import events
from framejit.backends.fuse import cache_folder, disk_cache
from framejit.backends.fuse.cache_entry import seal
from framejit.backends.fuse.cache_key import key_of, source_hash
from framejit.backends.fuse.disk_cache import DiskCache
from framejit.backends.fuse.kernel_record import BadRecord, pack, unpack
from framejit.errors import FramejitWarning

KEY, OTHER = key_of("cpu", "a"), key_of("cpu", "b")
MIB = 1 << 20


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def cache(folder):
    return DiskCache(str(folder), 64 * MIB)


def only_file(folder: pathlib.Path) -> pathlib.Path:
    (file,) = folder.iterdir()
    return file


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


@pytest.mark.parametrize("data", [b"", b"\0", b"framejit", os.urandom(3 * MIB)])
def test_any_bytes_come_back(cache, data):
    cache.put("llvm", KEY, data)
    assert cache.get("llvm", KEY) == data


def test_another_process_finds_it(folder):
    folder.mkdir(mode=0o700)
    program = "from framejit.backends.fuse.cache_key import key_of; from framejit.backends.fuse.disk_cache import put; put('llvm', key_of('cpu', 'a'), b'theirs')"
    environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env=environment, cwd=folder)
    with framejit.config.patch(cache_dir=str(folder)):
        assert disk_cache.get("llvm", KEY) == b"theirs"  # keys don't differ between processes either


def test_the_folder_is_made_for_the_user_alone(cache, folder):
    cache.put("llvm", KEY, b"code")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert only_file(folder).stat().st_mode & 0o777 == 0o600


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


@pytest.mark.parametrize(("kind", "key"), [("llvm", "../../etc/passwd"), ("llvm", KEY[:-1]), ("llvm", KEY.upper()), ("../llvm", KEY), ("", KEY)])
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


# ---- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1, 8, 51, 52, 53, 1000])
def test_a_torn_file_counts_as_missing_and_is_removed(cache, folder, keep):
    cache.put("llvm", KEY, os.urandom(5000))
    file = only_file(folder)
    file.write_bytes(file.read_bytes()[:keep])
    assert cache.get("llvm", KEY) is None
    assert not file.exists()


def test_a_file_that_grew_is_refused(cache, folder):
    cache.put("llvm", KEY, b"code")
    with open(only_file(folder), "ab") as file:
        file.write(b"more")
    assert cache.get("llvm", KEY) is None


def test_no_flipped_bit_goes_unnoticed(cache, folder):
    cache.put("llvm", KEY, b"some code")
    file = only_file(folder)
    whole = file.read_bytes()
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        assert cache.get("llvm", KEY) is None, f"bit {bit}"


def test_an_entry_under_another_name_is_refused(cache, folder):
    cache.put("llvm", KEY, b"code")
    only_file(folder).rename(folder / f"llvm-{OTHER}")
    assert cache.get("llvm", OTHER) is None
    cache.put("llvm", KEY, b"code")
    only_file(folder).rename(folder / f"triton-{KEY}")
    assert cache.get("triton", KEY) is None


def test_an_entry_of_another_version_of_the_format_is_refused(cache, folder, monkeypatch):
    cache.put("llvm", KEY, b"code")
    monkeypatch.setattr("framejit.backends.fuse.cache_entry.VERSION", 2)
    assert cache.get("llvm", KEY) is None


def test_after_damage_the_entry_can_be_put_again(cache, folder):
    cache.put("llvm", KEY, b"code")
    only_file(folder).write_bytes(b"rubbish")
    assert cache.get("llvm", KEY) is None
    cache.put("llvm", KEY, b"code")
    assert cache.get("llvm", KEY) == b"code"


# ---- others ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722, 0o720, 0o702])
def test_a_folder_that_others_can_write_to_is_refused_with_one_warning(folder, cache, mode):
    cache.put("llvm", KEY, b"code")
    folder.chmod(mode)
    fresh = DiskCache(str(folder), MIB)
    with pytest.warns(FramejitWarning, match="other users can write") as warned:
        assert fresh.get("llvm", KEY) is None
        fresh.put("llvm", OTHER, b"code")
        assert fresh.get("llvm", KEY) is None
    assert len(warned) == 1
    assert len(list(folder.iterdir())) == 1


def test_a_sticky_folder_is_used_as_its_files_are_safe(folder, cache):
    folder.mkdir()
    folder.chmod(0o1777)
    cache.put("llvm", KEY, b"code")
    assert cache.get("llvm", KEY) == b"code"


def test_a_link_to_a_folder_of_ones_own_is_used(folder, tmp_path):
    folder.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(folder)
    cache = DiskCache(str(tmp_path / "link"), MIB)
    cache.put("llvm", KEY, b"code")
    assert cache.get("llvm", KEY) == b"code"


def test_a_link_to_a_folder_that_others_can_write_to_is_refused(folder, tmp_path):
    folder.mkdir()
    folder.chmod(0o777)
    (tmp_path / "link").symlink_to(folder)
    with pytest.warns(FramejitWarning, match="other users can write"):
        DiskCache(str(tmp_path / "link"), MIB).put("llvm", KEY, b"code")
    assert not list(folder.iterdir())


def as_another_user(monkeypatch) -> None:
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)


def test_a_folder_of_another_user_is_refused(folder, cache, monkeypatch):
    cache.put("llvm", KEY, b"code")
    as_another_user(monkeypatch)
    with pytest.warns(FramejitWarning, match="belongs to another user"):
        assert DiskCache(str(folder), MIB).get("llvm", KEY) is None


def test_an_entry_of_another_user_is_refused(folder, cache, monkeypatch):
    cache.put("llvm", KEY, b"code")
    monkeypatch.setattr(cache_folder, "_check", lambda path, fd: None)  # the folder is fine, the file isn't ours
    as_another_user(monkeypatch)
    assert cache.get("llvm", KEY) is None


def test_an_entry_that_others_can_write_to_is_refused(folder, cache):
    cache.put("llvm", KEY, b"code")
    only_file(folder).chmod(0o666)
    assert cache.get("llvm", KEY) is None
    assert not list(folder.iterdir())


def test_a_link_in_place_of_an_entry_is_not_followed(folder, cache, tmp_path):
    cache.put("llvm", KEY, b"code")
    file = only_file(folder)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert cache.get("llvm", KEY) is None
    assert not file.is_symlink()
    assert (tmp_path / "elsewhere").exists()


def test_a_put_replaces_a_link_and_not_what_it_leads_to(folder, cache, tmp_path):
    folder.mkdir(mode=0o700)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (folder / f"llvm-{KEY}").symlink_to(precious)
    cache.put("llvm", KEY, b"code")
    assert precious.read_text() == "precious"
    assert cache.get("llvm", KEY) == b"code"


def test_pipes_sockets_and_folders_in_place_of_an_entry_do_no_harm(folder, cache):
    folder.mkdir(mode=0o700)
    name = folder / f"llvm-{KEY}"
    os.mkfifo(name)
    assert cache.get("llvm", KEY) is None  # would wait for a writer forever
    with socket.socket(socket.AF_UNIX) as server, _working_in(folder):
        server.bind(name.name)
        assert cache.get("llvm", KEY) is None
    name.mkdir()
    assert cache.get("llvm", KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FramejitWarning)
        cache.put("llvm", KEY, b"code")
    assert cache.get("llvm", OTHER) is None


class _working_in:
    """Names of sockets must be short."""

    def __init__(self, folder):
        self.folder, self.before = folder, os.getcwd()

    def __enter__(self):
        os.chdir(self.folder)

    def __exit__(self, *error):
        os.chdir(self.before)


# ---- a disk that says no -----------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_means_one_warning_and_no_cache(tmp_path):
    (tmp_path / "file").write_text("")
    cache = DiskCache(str(tmp_path / "file" / "cache"), MIB)
    with pytest.warns(FramejitWarning, match="can't be kept") as warned:
        for _ in range(3):
            cache.put("llvm", KEY, b"code")
            assert cache.get("llvm", KEY) is None
    assert len(warned) == 1


def test_an_unwritable_folder_is_still_read(folder, cache, monkeypatch):
    cache.put("llvm", KEY, b"code")

    def open_read_only(path, flags, *args, real=os.open, **kwargs):
        if flags & os.O_WRONLY:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_read_only)
    with pytest.warns(FramejitWarning, match="Read-only file system") as warned:
        cache.put("llvm", OTHER, b"code")
        cache.put("llvm", OTHER, b"code")
    assert len(warned) == 1
    assert cache.get("llvm", KEY) == b"code"


def test_a_full_disk_leaves_nothing_behind(folder, cache, monkeypatch):
    cache.put("llvm", KEY, b"code")

    def write_some(file, data, real=os.write):
        if len(data) < 3000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[:1000])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_some)
        with pytest.warns(FramejitWarning, match="No space left"):
            cache.put("llvm", OTHER, b"x" * 5000)
    assert [file.name for file in folder.iterdir()] == [f"llvm-{KEY}"]
    assert cache.get("llvm", KEY) == b"code"


def test_short_writes_are_continued(cache, monkeypatch):
    monkeypatch.setattr(os, "write", lambda file, data, real=os.write: real(file, data[:7]))
    cache.put("llvm", KEY, b"x" * 1000)
    assert cache.get("llvm", KEY) == b"x" * 1000


def test_an_interrupted_write_is_no_entry(folder, cache, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.put("llvm", KEY, b"code")
    assert not list(folder.iterdir())


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
    only_file(folder).unlink()
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
    assert only_file(folder).name == "README"
    assert DiskCache(str(folder / "nowhere"), MIB).clear() == (0, 0)


# ---- keys ------------------------------------------------------------------------------------------------


def test_keys_tell_everything_apart():
    parts = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", None), (b"abc",), (1,), ("1",), (1.0,), (True,), ((1, 2),), (1, 2), (), ("",), ("", "")]
    keys = [key_of(target, *part) for part in parts for target in ("cpu", "sm_90")]
    assert len(set(keys)) == len(keys)
    assert key_of("cpu", "abc") == key_of("cpu", "abc")


def test_the_code_generators_own_source_counts(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text("x = 1")
    before = source_hash(tmp_path)
    (tmp_path / "sub" / "a.py").write_text("x = 2")
    changed = source_hash(tmp_path)
    (tmp_path / "sub" / "a.py").rename(tmp_path / "a.py")
    assert len({before, changed, source_hash(tmp_path)}) == 3


# ---- records -----------------------------------------------------------------------------------------------


def test_a_record_comes_back():
    fields, blobs = {"name": "kernel_0", "shared": 1024, "args": ["p", 1.5, None]}, {"cubin": os.urandom(100), "empty": b""}
    assert unpack(pack(fields, blobs)) == (fields, blobs)


def test_what_is_no_record_is_refused_and_not_guessed():
    whole = pack({"name": "kernel_0"}, {"cubin": b"abc", "more": b"defg"})
    broken = [b"", b"\0", whole[:-1], whole + b"x", whole[4:], b"\xff\xff\xff\xff" + whole[4:], b"\2\0\0\0[]", b"\2\0\0\0{}", b"\0" * 50]
    broken.append(whole.replace(b'["cubin", 3], ["more", 4]', b'["cubin", 9], ["more",-2]'))
    for record in broken:
        with pytest.raises(BadRecord):
            unpack(record)


def test_sealed_bytes_hold_no_pickle():
    assert b"code" in seal("llvm", KEY, b"code")  # the payload as it is
    for name in ("disk_cache", "cache_entry", "cache_folder", "cache_key", "kernel_record"):
        source = (pathlib.Path(disk_cache.__file__).parent / f"{name}.py").read_text()
        assert not any(word in source for word in ("import pickle", "import marshal", "eval(", "exec(", "torch.load"))


# ---- the command -------------------------------------------------------------------------------------------


def command(*arguments: str, folder: pathlib.Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(folder)}
    return subprocess.run([sys.executable, "-m", "framejit", "cache", *arguments], env=environment, cwd=folder.parent, capture_output=True, text=True, timeout=120)


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
