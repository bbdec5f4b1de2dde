"""Kept captures that are cut, forged, foreign, or whose graph raises: they are ignored, said once, and nothing is
lost."""

from __future__ import annotations

import errno
import marshal
import os
import random
import textwrap

import pytest
import torch
from kept.processes import PROGRAM as PROGRAM_NAME
from kept.processes import Run, loaded, one_folder

import framejit
from framejit.backends.fuse.cache import cache_folder, disk_cache
from framejit.backends.fuse.cache.cache_entry import seal
from framejit.kept import store

import forked

PROGRAM = """
import torch
factor = 2.0
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        return torch.relu(self.linear(x)) * factor
net = Net()
def target(x):
    with torch.no_grad():
        return net(x)
args = (torch.ones(2, 4),)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield tmp_path / "cache"


def files(folder):
    return [path for path in folder.iterdir() if path.name.startswith("capture-")]


def records(folder):
    (path,) = files(folder)
    return path.name.partition("-")[2], store.records(path.name.partition("-")[2])


def put(key, found):
    disk_cache.put(store.KIND, key, marshal.dumps(found))


@pytest.mark.parametrize("length", [0, 10, 60, 500, -1])
def test_a_file_that_is_cut_is_ignored(folder, length):
    assert Run(PROGRAM).captured
    (path,) = files(folder)
    path.write_bytes(path.read_bytes()[:length])
    second = Run(PROGRAM)
    assert second.captured and "torn" in second.said[0]
    assert not Run(PROGRAM).captured


def test_a_file_that_is_changed_is_ignored(folder):
    assert Run(PROGRAM).captured
    (path,) = files(folder)
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    assert Run(PROGRAM).captured


@pytest.mark.parametrize(
    "forged", [b"", b"nothing", marshal.dumps(None), marshal.dumps([1, 2]), marshal.dumps({"tree": []})]
)
def test_a_sealed_file_of_something_else_is_ignored(folder, forged):
    assert Run(PROGRAM).captured
    (path,) = files(folder)
    key = path.name.partition("-")[2]
    path.write_bytes(seal(store.KIND, key, forged))
    assert Run(PROGRAM).captured
    assert not Run(PROGRAM).captured


@pytest.mark.parametrize("part", ["tree", "objects", "lookups", "slots", "code", "records", "told", "answers"])
@pytest.mark.parametrize("put_instead", [None, [], [[]], "text", 7])
def test_a_record_with_another_part_is_ignored(folder, part, put_instead):
    assert Run(PROGRAM).captured
    key, (record,) = records(folder)
    fields = marshal.loads(record)
    if fields[part] == put_instead:
        return
    fields[part] = put_instead
    put(key, [marshal.dumps(fields)])
    Run(PROGRAM)  # the results are compared with eager's


def test_each_byte_string_of_a_record_may_be_wrong(folder):
    assert Run(PROGRAM).captured
    key, (record,) = records(folder)
    for cut in range(0, len(record), max(1, len(record) // 12)):
        put(key, [record[:cut]])
        assert Run(PROGRAM).captured


def test_a_folder_that_others_can_write_is_refused(folder):
    assert Run(PROGRAM).captured
    os.chmod(folder, 0o777)
    disk_cache._cache_in.cache_clear()
    with pytest.warns(framejit.FramejitWarning, match="other users can write"):
        assert Run(PROGRAM).captured
    os.chmod(folder, 0o700)
    disk_cache._cache_in.cache_clear()
    assert not Run(PROGRAM).captured


def test_a_file_of_another_user_is_refused(folder, monkeypatch):
    assert Run(PROGRAM).captured
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    disk_cache._cache_in.cache_clear()
    with pytest.warns(framejit.FramejitWarning, match="another user"):
        assert Run(PROGRAM).captured
    disk_cache._cache_in.cache_clear()


def test_a_plan_that_is_gone_is_made_again(folder):
    assert Run(PROGRAM, backend="fuse").captured
    assert not Run(PROGRAM, backend="fuse").captured
    for path in folder.iterdir():
        if path.name.startswith("plan-"):
            path.unlink()
    assert Run(PROGRAM, backend="fuse").captured
    assert not Run(PROGRAM, backend="fuse").captured


def test_no_more_records_than_so_many_are_kept(folder):
    for size in range(2, store.MOST + 5):
        Run(PROGRAM.replace("(2, 4)", f"({size}, 4)").replace("def target", f"{size}\ndef target"), dynamic=False)
    assert all(len(store.records(path.name.partition("-")[2])) <= store.MOST for path in files(folder))


def test_a_graph_that_raises_runs_as_python_and_is_captured_anew(folder):
    program = """
import torch
table = torch.arange(5.0)
state = []
def target(i):
    with torch.no_grad():
        try:
            return table[i] * 2.0 + 1.0
        except IndexError:
            return torch.zeros(1)
args = (torch.tensor([1, 2]),)
"""
    assert Run(program).captured
    second = Run(program)
    assert not second.captured
    bad = torch.tensor([1, 7])
    torch.testing.assert_close(second.optimized(bad), torch.zeros(1))
    for _ in range(4):
        torch.testing.assert_close(second.optimized(bad), torch.zeros(1))
        torch.testing.assert_close(second.optimized(*second.module.args), second.module.target(*second.module.args))


def test_random_numbers_after_a_graph_that_raises(folder):
    program = """
import torch
table = torch.arange(5.0)
def target(i):
    with torch.no_grad():
        noise = torch.rand(2)
        try:
            return table[i] * noise
        except IndexError:
            return noise
args = (torch.tensor([1, 2]),)
"""
    bad = torch.tensor([1, 7])

    def outcome(function):
        torch.manual_seed(3)
        return [function(bad), torch.rand(3)]

    run = None
    for _ in range(2):
        torch.manual_seed(0)
        module = loaded(PROGRAM_NAME, program, "/nowhere/kept_program.py")
        run = framejit.optimize(module.target, backend="eager")
        torch.manual_seed(0)
        first = run(*module.args)
        torch.manual_seed(0)
        torch.testing.assert_close(first, module.target(*module.args))
    for got, expected in zip(outcome(run), outcome(module.target)):
        torch.testing.assert_close(got, expected)


def test_side_effects_of_an_entry_of_another_process():
    program = """
import torch
log = []
count = 0
class Box: pass
box = Box()
def target(x):
    global count
    count = 3
    log.append("called")
    box.last = x + 1.0
    return box.last * 2.0, {"a": x - 1.0}, [x]
args = (torch.ones(3),)
"""
    assert Run(program).captured
    second = Run(program)
    assert not second.captured, second.said
    module = second.module
    assert module.count == 3 and len(module.log) == 3 and torch.equal(module.box.last, torch.full((3,), 2.0))


@pytest.mark.process
def test_two_processes_write_at_once(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import sys, torch, framejit
        framejit.config.keep_captures = True
        scale = 3.0
        def f(x):
            return torch.relu(x) * scale
        g = framejit.optimize(f, backend="eager", dynamic=False)
        for n in range(2, 6):
            x = torch.ones(n)
            assert torch.equal(g(x), f(x))
        print("capture" if "framejit.capture.capture" in sys.modules else "none")
    """))
    environment = os.environ | {"FRAMEJIT_CACHE_DIR": str(folder)}
    for done in forked.run_at_once(3, [script], env=environment, timeout=120):
        assert done.returncode == 0, done.stderr
    assert forked.run([script], env=environment, timeout=120).stdout == "none\n"


def test_a_folder_that_can_only_be_read(folder, monkeypatch):
    assert Run(PROGRAM).captured

    def refuse(*args):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(cache_folder, "write", refuse)
    assert not Run(PROGRAM).captured
    disk_cache._cache_in.cache_clear()
    with pytest.warns(framejit.FramejitWarning, match="can't be kept .*Read-only"):
        assert Run(PROGRAM.replace("* factor", "/ factor")).captured
    assert not Run(PROGRAM).captured
    disk_cache._cache_in.cache_clear()


def test_a_disk_that_is_full(folder, monkeypatch):
    write, left = os.write, [2000]

    def until_full(file, data):
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 100
        return write(file, bytes(data[:100]))

    monkeypatch.setattr(os, "write", until_full)
    with pytest.warns(framejit.FramejitWarning, match="can't be kept .*No space left"):
        assert Run(PROGRAM).captured
    monkeypatch.undo()
    disk_cache._cache_in.cache_clear()
    assert not list(folder.iterdir())
    assert Run(PROGRAM).captured
    assert not Run(PROGRAM).captured


def test_a_cache_without_size_keeps_nothing(folder):
    with framejit.config.patch(cache_size=0):
        for _ in range(2):
            assert Run(PROGRAM).captured
    assert not folder.exists()


@pytest.mark.parametrize("number", range(4))
def test_records_with_any_part_exchanged(folder, number):
    """Numbers, text and lists of a sealed record, exchanged at random: another result is worked out by no record."""
    assert Run(PROGRAM).captured
    key, (record,) = records(folder)
    chosen = random.Random(number)
    for _ in range(20):
        fields = marshal.loads(record)
        place, holder = chosen.choice([*leaves(fields["objects"]), *leaves(fields["lookups"]), *leaves(fields["tree"])])
        instead = [None, -1, 0, 1, 7, 1 << 70, "text", [], ["place", "torch", "sin"], b"bytes", True]
        holder[place] = chosen.choice(instead)
        put(key, [marshal.dumps(fields)])
        Run(PROGRAM)


def leaves(data):
    """Places in lists and dicts, with these."""
    for place, value in enumerate(data) if type(data) is list else data.items() if type(data) is dict else ():
        yield place, data
        yield from leaves(value)


def test_a_graph_that_raised_is_not_found_by_others(folder):
    program = """
import torch
linear = torch.nn.Linear(3, 3).double()
def target(x):
    with torch.no_grad():
        return torch.nn.functional.dropout(x, 0.5), linear(x)
args = (torch.ones(2, 3),)
"""
    for _ in range(3):
        module = loaded(PROGRAM_NAME, program, "/nowhere/kept_program.py")
        after = []
        for f in (module.target, framejit.optimize(module.target, backend="eager")):
            torch.manual_seed(3)
            for _ in range(5):
                with pytest.raises(RuntimeError, match="same dtype"):
                    f(*module.args)
                after.append(torch.rand(1).item())
        assert after[:5] == after[5:]
        left = [record for path in files(folder) for record in store.records(path.name.partition("-")[2])]
        graphs = [str(marshal.loads(record)["told"]["graph"]) for record in left]
        assert not any("linear" in graph for graph in graphs)  # those that are left break there
