"""Keys, seals and records of the disk cache: what differs is told apart, and what is damaged is not guessed at."""
import os
import pathlib

import pytest

from framejit.backends.fuse import backend as fuse_backend
from framejit.backends.fuse.cache import cache_key, disk_cache
from framejit.backends.fuse.cache.cache_entry import seal, unseal
from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.file_content import content_below
from framejit.backends.fuse.cache.kernel_record import BadRecord, pack, unpack

KEY = key_of("cpu", "a")


# ---- keys ------------------------------------------------------------------------------------------------


def test_keys_tell_everything_apart():
    parts = [
        ("ab", "c"), ("a", "bc"), ("abc",), ("abc", None), (b"abc",), (1,), ("1",), (1.0,), (True,), ((1, 2),),
        (1, 2), (), ("",), ("", ""),
    ]
    keys = [key_of(target, *part) for part in parts for target in ("cpu", "sm_90")]
    assert len(set(keys)) == len(keys)
    assert key_of("cpu", "abc") == key_of("cpu", "abc")


def test_the_code_generators_own_source_counts(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text("x = 1")
    before = content_below(str(tmp_path))
    (tmp_path / "sub" / "a.py").write_text("x = 20")  # within a tick of the file system's clock the size has to tell
    changed = content_below(str(tmp_path))
    (tmp_path / "sub" / "a.py").rename(tmp_path / "a.py")
    assert len({before, changed, content_below(str(tmp_path))}) == 3


def test_all_of_the_backends_source_counts(monkeypatch):
    hashed = []
    monkeypatch.setattr(cache_key, "content_below", lambda folder: hashed.append(folder) or content_below(folder))
    cache_key._toolchain.__wrapped__()
    assert hashed == [str(pathlib.Path(fuse_backend.__file__).parent)]


# ---- records -----------------------------------------------------------------------------------------------


def test_a_record_comes_back():
    fields, blobs = (
        {"name": "kernel_0", "shared": 1024, "args": ["p", 1.5, None]},
        {"cubin": os.urandom(100), "empty": b""},
    )
    assert unpack(pack(fields, blobs)) == (fields, blobs)


def test_what_is_no_record_is_refused_and_not_guessed():
    whole = pack({"name": "kernel_0"}, {"cubin": b"abc", "more": b"defg"})
    broken = [
        b"", b"\0", whole[:-1], whole + b"x", whole[4:], b"\xff\xff\xff\xff" + whole[4:], b"\2\0\0\0[]",
        b"\2\0\0\0{}", b"\0" * 50,
    ]
    broken.append(whole.replace(b'["cubin", 3], ["more", 4]', b'["cubin", 9], ["more",-2]'))
    for record in broken:
        with pytest.raises(BadRecord):
            unpack(record)


def test_sealed_bytes_hold_no_pickle():
    sealed = seal("llvm", KEY, b"code")
    assert sealed.endswith(b"code")  # the payload as it is
    assert unseal("llvm", KEY, sealed) == b"code"
    for name in ("disk_cache", "cache_entry", "cache_folder", "cache_key", "kernel_record"):
        source = (pathlib.Path(disk_cache.__file__).parent / f"{name}.py").read_text()
        assert not any(word in source for word in ("import pickle", "import marshal", "eval(", "exec(", "torch.load"))
