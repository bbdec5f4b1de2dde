"""Whatever is torn, damaged, forged or owned by others is no entry of the disk cache, and a disk that fails never stops
a program."""
import errno
import os
import pathlib
import socket
import warnings

import pytest

from framejit.backends.fuse.cache import cache_folder
from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.disk_cache import DiskCache
from framejit.errors import FramejitWarning

KEY, OTHER = key_of("cpu", "a"), key_of("cpu", "b")
MIB = 1 << 20


def only_file(folder: pathlib.Path) -> pathlib.Path:
    (file,) = folder.iterdir()
    return file


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
    monkeypatch.setattr("framejit.backends.fuse.cache.cache_entry.VERSION", 2)
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
