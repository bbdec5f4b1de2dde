"""Captures, plans and kernels in one file: `framejit.save`, `framejit.load`, `framejit warm`."""

from __future__ import annotations

import json
import os
import random

import pytest
from kept.processes import Run, one_folder

import framejit
from framejit.backends.fuse.cache import disk_cache
from framejit.backends.fuse.cache.cache_entry import seal, unseal
from framejit.errors import ArchiveError, FramejitWarning
from framejit.kept import archive

import forked

PROGRAM = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
def data(x):
    print(end="")
    return x.tolist()
def target(x):
    with torch.no_grad():
        y = net(x)
        return net(y + 1.0), data(y) is not None
args = (torch.ones(3, 4),)
"""


@pytest.fixture
def saved(tmp_path):
    """A file that has what `PROGRAM` leaves on the disk."""
    with one_folder(tmp_path / "first"):
        assert Run(PROGRAM, backend="fuse").captured
        file = tmp_path / "warm.framejit"
        assert framejit.save(file) == len(os.listdir(tmp_path / "first")) > 3
    return file


@pytest.fixture
def elsewhere(tmp_path):
    """An empty folder, as on another machine."""
    with one_folder(tmp_path / "second"):
        yield tmp_path / "second"


def test_another_machine_captures_nothing(saved, elsewhere):
    assert framejit.load(saved) == len(os.listdir(elsewhere))
    run = Run(PROGRAM, backend="fuse")
    assert not run.captured
    assert not any(event.kind == "cache" and not event.hit and not event.reason for event in run.events)


def test_what_is_loaded_is_checked_as_ever(saved, elsewhere):
    framejit.load(saved)
    assert Run(PROGRAM.replace("y + 1.0", "y - 1.0"), backend="fuse").captured


def test_only_what_this_process_used_is_written(tmp_path):
    with one_folder(tmp_path / "cache"):
        assert Run(PROGRAM, backend="fuse").captured
        mine = disk_cache.current()
        others = disk_cache.DiskCache(mine.folder, mine.limit)
        others.put("plan", "0" * 64, b"of another process")
        count = framejit.save(tmp_path / "mine")
        assert framejit.save(tmp_path / "all", everything=True) == count + 1


def folder_is_empty(folder):
    return not folder.exists() or not os.listdir(folder)


@pytest.mark.parametrize("number", range(6))
def test_files_that_are_torn_or_changed(saved, elsewhere, number):
    chosen, data = random.Random(number), saved.read_bytes()
    for _ in range(30):
        place = chosen.randrange(len(data))
        wrong = [data[:place], data[:place] + bytes([data[place] ^ 1 << chosen.randrange(8)]) + data[place + 1 :]]
        saved.write_bytes(chosen.choice(wrong))
        with pytest.raises(ArchiveError):
            framejit.load(saved)
    assert folder_is_empty(elsewhere)


@pytest.mark.parametrize("data", [b"", b"framejit", b"PK\x03\x04", b"\x80\x04K\x00."])
def test_files_of_others(elsewhere, tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ArchiveError, match=r"no file of framejit\.save"):
        framejit.load(tmp_path / "file")
    assert folder_is_empty(elsewhere)


def test_contents_that_somebody_sealed_again(saved, elsewhere):
    payload = unseal("archive", "framejit", saved.read_bytes())
    for changed in (payload[:-1] + b"?", payload[:-1], payload + b"?", b"\xff" * 8 + payload[8:], b"", b"\0" * 8):
        saved.write_bytes(seal("archive", "framejit", changed))
        with pytest.raises(ArchiveError):
            framejit.load(saved)
    end = 8 + int.from_bytes(payload[:8], "big")
    head = json.loads(payload[8:end])
    for name in ("../../evil", "plan-" + "0" * 64, "/etc/passwd", ".tmp-1"):
        head["entries"][0][0] = name
        text = json.dumps(head).encode()
        saved.write_bytes(seal("archive", "framejit", len(text).to_bytes(8, "big") + text + payload[end:]))
        with pytest.raises(ArchiveError, match="torn or was changed"):
            framejit.load(saved)
    assert folder_is_empty(elsewhere)


@pytest.mark.parametrize("what", ["framejit", "Python", "torch", "the processor", "GPUs"])
def test_files_for_other_machines(saved, elsewhere, monkeypatch, what):
    here = archive.made_for()
    monkeypatch.setattr(archive, "made_for", lambda: here | {what: "another"})
    with pytest.warns(FramejitWarning, match=f"nothing is loaded .*{what} is another here") as warned:
        assert framejit.load(saved) == 0
    assert len(warned) == 1 and folder_is_empty(elsewhere)


def test_files_that_others_can_write_to(saved, elsewhere):
    saved.chmod(0o666)
    with pytest.raises(ArchiveError, match="other users"):
        framejit.load(saved)
    saved.chmod(0o644)
    assert framejit.load(saved) > 0


def test_paths_that_are_none(tmp_path, elsewhere):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(ArchiveError, match="can't be read"):
            framejit.load(path)
    with pytest.raises(ArchiveError, match="can't be written"):
        framejit.save(tmp_path / "no" / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == []


def test_without_a_cache(tmp_path, saved):
    with framejit.config.patch(cache_size=0, cache_dir=str(tmp_path / "none")):
        with pytest.raises(ArchiveError, match="can't be used"):
            framejit.save(tmp_path / "file")
        with pytest.raises(ArchiveError, match="can't be used"):
            framejit.load(saved)


def test_other_file_systems(saved, elsewhere):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://warm", "wb") as file:
        file.write(saved.read_bytes())
    count = framejit.load("memory://warm")
    assert count == len(os.listdir(elsewhere)) and framejit.save("memory://again", everything=True) == count
    with pytest.raises(ArchiveError):
        framejit.load("memory://nothing")


def test_files_that_were_copied_later(saved, elsewhere, monkeypatch):
    """On another machine the same sources have other times."""
    framejit.load(saved)
    stat = os.stat

    def later(path, **options):
        info = stat(path, **options)
        if str(path).endswith((".py", ".so")):
            values = list(info)
            return os.stat_result([*values[:7], *(value + 1000 for value in values[7:10])], {"st_mtime_ns": 7})
        return info

    monkeypatch.setattr(os, "stat", later)
    from framejit.backends.fuse.cache import file_content

    file_content.content_of.cache_clear()
    assert not Run(PROGRAM, backend="fuse").captured


SCRIPT = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2.0
    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2.0
def loss(x):
    return net(x).square().mean()
def halved(x):
    return Halved.apply(net(x)).sum()
def predict(x):
    with torch.no_grad():
        y = net(x)
        print("seen", tuple(y.shape))
        return net(x + y.sum()).tolist()
x = torch.arange(8.0).reshape(2, 4)
predict(x)
loss(x).backward()
halved(x).backward()
"""
LOADS = """
import sys, framejit
print("loaded", framejit.load(sys.argv[1]) > 0)
import runpy
sys.argv[:] = ["script.py"]
from framejit import script
kinds = []
framejit.events.subscribe(lambda event: kinds.append((event.kind, event.fields.get("function"))))
script.run(SCRIPT, [])
for name in ("predict", "loss"):
    print(name, "captured", ("capture_started", name) in kinds, "found", ("capture_found", name) in kinds)
"""


@pytest.mark.process
def test_warm_fills_the_cache_and_a_file(tmp_path):
    script, file = tmp_path / "script.py", tmp_path / "warm.framejit"
    script.write_text(SCRIPT)
    environment = os.environ | {"FRAMEJIT_KEEP_CAPTURES": "1", "FRAMEJIT_CACHE_DIR": str(tmp_path / "one")}
    made = forked.run(["-m", "framejit", "warm", "--save", file, script], env=environment, timeout=300, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout == "seen (2, 1)\n"
    assert "[framejit] kept " in made.stderr and str(tmp_path / "one") in made.stderr
    told = made.stderr.partition("not kept:")[2]
    assert "halved (script.py:13): Halved is an autograd.Function" in told and "loss" not in told
    assert f"entries to {file}" in made.stderr
    program = tmp_path / "loads.py"
    program.write_text(LOADS.replace("SCRIPT", repr(str(script))))
    environment["FRAMEJIT_CACHE_DIR"] = str(tmp_path / "two")
    loaded = forked.run([program, file], env=environment, timeout=300, cwd=tmp_path)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout == (
        "loaded True\nseen (2, 1)\npredict captured False found True\nloss captured False found True\n"
    )


@pytest.mark.process
def test_warm_writes_nothing_where_it_can_not(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"FRAMEJIT_KEEP_CAPTURES": "1", "FRAMEJIT_CACHE_DIR": str(tmp_path / "one")}
    command = ["-m", "framejit", "warm", "--save", tmp_path / "no" / "file", script]
    made = forked.run(command, env=environment, timeout=300, cwd=tmp_path)
    assert made.returncode == 0 and made.stdout == "seen (2, 1)\n" and "nothing is written: " in made.stderr
