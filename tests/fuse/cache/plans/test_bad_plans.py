"""Files and folders of plans that are torn, forged, gone or open to others: the results are eager's all the same."""

import os
import pathlib
import textwrap
import weakref

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.fuse.cache import cache_entry, disk_cache, plan_key, plan_record
from framejit.backends.fuse.cache.kernel_record import BadRecord, pack, unpack
from framejit.backends.fuse.llvm import compiled_kernel

import forked
from kept_plans import assert_equal, fresh, plan_events, plan_files, program_on_disk


def sealed_again(file: pathlib.Path, change) -> None:
    """Puts a record that is sealed as it should be, but holds something else."""
    kind, key = file.name.split("-")
    fields, blobs = unpack(cache_entry.unseal(kind, key, file.read_bytes()))
    change(fields)
    file.write_bytes(cache_entry.seal(kind, key, pack(fields, blobs)))


@pytest.mark.parametrize("keep", [0, 20, 52, 200, -1])
def test_a_torn_file_is_ignored(folder, keep):
    f, x, file = program_on_disk(folder)
    file.write_bytes(file.read_bytes()[:keep])
    result, hit = fresh(f, x)
    assert not hit
    assert "torn" in plan_events()[-1][1]
    assert_equal(f(x), result)
    assert fresh(f, x)[1]


def test_a_changed_file_is_ignored(folder):
    f, x, file = program_on_disk(folder)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    result, hit = fresh(f, x)
    assert not hit
    assert plan_events()[-1][1] == "its file is torn, was changed, or has another format"
    assert_equal(f(x), result)


def test_the_format_of_another_version_is_ignored(folder, monkeypatch):
    f, x, _ = program_on_disk(folder)
    monkeypatch.setattr(cache_entry, "VERSION", cache_entry.VERSION + 1)
    result, hit = fresh(f, x)
    assert not hit
    assert plan_events()[-1][1] == "its file is torn, was changed, or has another format"
    assert_equal(f(x), result)


def test_the_plan_of_another_graph_is_ignored(folder):
    f, x, file = program_on_disk(folder)

    def g(x):
        return F.linear(x.double().cos() + 1, x.double()).sum(-1), x.sin()

    fresh(g, x)
    (other,) = {*plan_files(folder)} - {file}
    other.write_bytes(file.read_bytes())
    result, hit = fresh(g, x)
    assert not hit
    assert plan_events()[-1][1] == "its file is torn, was changed, or has another format"
    assert_equal(g(x), result)


def step_of(fields, kind):
    return next(step for step in fields["steps"] if step[1] == kind)


def _drop_argument(fields):
    step_of(fields, "kernel")[3].pop()


def _other_kernel(fields):
    step_of(fields, "kernel")[2] = 99


def _negative_kernel(fields):
    step_of(fields, "kernel")[2] = -1


def _other_slot(fields):
    step_of(fields, "kernel")[3][1] = 77


def _huge(fields):
    fields["counts"][1] = 1 << 40


def _other_inputs(fields):
    fields["counts"][0] = 7


def _other_function(fields):
    step_of(fields, "call")[2] = ["function", "aten::system"]


def _system(fields):
    step_of(fields, "call")[2] = ["function", "os.system"]


def _dtype(fields):
    step_of(fields, "empty")[5] = ["dtype", "nn"]


def _unknown_step(fields):
    fields["steps"].insert(0, ["tuple", "jump", 3])


def _unknown_kind(fields):
    fields["steps"][0] = ["pickle", "xyz"]


def _no_kernels(fields):
    del fields["kernels"]


def _no_text(fields):
    fields["texts"] = ["nonsense" for _ in fields["texts"]]


def _extra(fields):
    fields["kernels"][0][2]["code"] = 0


def _origins(fields):
    fields["origins"].append("x")


def _deep(fields):
    value = 1
    for _ in range(400):
        value = ["tuple", value]
    fields["outputs"] = value


def _fewer_outputs(fields):
    fields["outputs"].pop()


def _constant(fields):
    fields["steps"].insert(0, ["tuple", "constant", fields["counts"][1] - 1, ["given", 5]])


@pytest.mark.parametrize(
    "change",
    [
        *(
            _drop_argument, _other_kernel, _negative_kernel, _other_slot, _huge, _other_inputs, _other_function,
            _system, _dtype, _unknown_step, _unknown_kind,
        ),
        *(_no_kernels, _no_text, _extra, _origins, _deep, _fewer_outputs, _constant),
    ],
    ids=lambda change: change.__name__,
)
def test_what_is_no_plan_is_not_run_even_if_its_seal_is_right(folder, change):
    f, x, file = program_on_disk(folder)
    sealed_again(file, change)
    framejit.reset()
    compiled = framejit.optimize(f)
    assert_equal(f(x), compiled(x))
    assert [hit for hit, _ in plan_events()][-2:] == [True, False]
    assert plan_events()[-1][1].startswith("what was found can't be used: ")
    (graph,) = framejit.inspect(compiled).graphs
    assert not graph.reason
    assert len({kernel.name for kernel in graph.kernels}) == len(graph.kernels)
    assert fresh(f, x)[1]  # it was put right


def test_reading_nonsense_raises_only_bad_record():
    key = plan_key.PlanKey("", {}, {}, (), {}, 0, (), None, ())
    for data in (b"", b"\0" * 64, pack({}, {}), pack({"steps": 3}, {})):
        with pytest.raises(BadRecord):
            plan_record.read(data, key)


def test_kernels_that_are_gone_are_compiled_again(folder, monkeypatch):
    f, x, _ = program_on_disk(folder)
    monkeypatch.setattr(compiled_kernel, "_compiled", weakref.WeakValueDictionary())  # nor are they in this process
    for file in folder.glob("llvm-*"):
        file.unlink()
    result, hit = fresh(f, x)
    assert hit
    assert_equal(f(x), result)
    assert list(folder.glob("llvm-*"))


def test_a_folder_that_others_can_write_to_is_not_read(folder):
    f, x, _ = program_on_disk(folder)
    folder.chmod(0o777)
    disk_cache._cache_in.cache_clear()
    with pytest.warns(framejit.FramejitWarning, match="is not used"):
        result, hit = fresh(f, x)
    assert not hit
    assert_equal(f(x), result)


def test_a_folder_that_cannot_be_written(folder, monkeypatch):
    folder.parent.joinpath("cache").write_text("a file")
    x = torch.randn(3)
    with pytest.warns(framejit.FramejitWarning, match="can't be kept"):
        result, hit = fresh(torch.sin, x)
    assert not hit
    assert_equal(x.sin(), result)


def test_several_processes_at_once(folder, tmp_path):
    program = """
        import torch, framejit
        from framejit import events
        def f(x, n):
            return (x.sin() * n).sum(-1).softmax(0), x + n
        for n in range(4):
            x = torch.arange(60.0).view(5, 12) / 9
            torch.testing.assert_close(framejit.optimize(f)(x, n), f(x, n))
        print(sum(event.what == "plan" for event in events.events("cache")))
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(folder), "FRAMEJIT_DYNAMIC_AFTER": "0"}
    environment["FRAMEJIT_KEEP_CAPTURES"] = "0"
    for done in forked.run_at_once(3, ["-W", "error", script], env=environment, timeout=120):
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) == 4
    assert not [file for file in folder.iterdir() if file.name.startswith(".tmp")]
    assert all(cache_entry.unseal(*file.name.split("-"), file.read_bytes()) is not None for file in folder.iterdir())
    assert len(plan_files(folder)) == 4
