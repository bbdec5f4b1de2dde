"""Two graphs have one plan only where all that decides it is the same."""


import pytest
import torch

import framejit
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.fuse.cache import plan_key

from kept_plans import assert_equal, fresh, graph_of, plan_events


def test_other_operations_and_inputs_have_other_keys():
    x = torch.randn(3, 4)
    other_layout, other_dtype = x.t().contiguous().t(), x.double()
    programs = [
        (lambda x: x + 1, x),
        (lambda x: x + 1.0, x),
        (lambda x: x + 2, x),
        (lambda x: x - 1, x),
        (lambda x: x + True, x),
        (lambda x: x.add_(1), x.clone()),
        (lambda x: (x + 1, x.t()), x),
        (lambda x: x + 1, other_layout),
        (lambda x: x + 1, other_dtype),
        (lambda x: x + 1, x[:2]),
        (lambda x: x * 0.0, x),
        (lambda x: x * -0.0, x),
        (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), x),
        (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 5.0]), x),
    ]
    for program, argument in programs:
        expected = program(argument.clone(memory_format=torch.preserve_format))
        result, hit = fresh(program, argument)
        assert not hit
        assert_equal(expected, result)
    assert fresh(lambda x: x + 1, x)[1]


def default_dtype():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    return lambda: torch.set_default_dtype(before)


def deterministic():
    torch.use_deterministic_algorithms(True)
    return lambda: torch.use_deterministic_algorithms(False)


def precision():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    return lambda: torch.set_float32_matmul_precision(before)


def no_onednn():
    torch.backends.mkldnn.set_flags(_enabled=False)
    return lambda: torch.backends.mkldnn.set_flags(_enabled=True)


def flushes():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush denormals")
    return lambda: torch.set_flush_denormal(False)


def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    return lambda: torch.set_num_threads(before)


@pytest.mark.parametrize(
    "change", [default_dtype, deterministic, precision, no_onednn, flushes, threads], ids=lambda change: change.__name__
)
def test_a_switch_of_torch_is_part_of_the_key(change):
    inputs = [torch.randn(3, 4)]

    def compile_once():
        run = fuse_graph(graph_of(lambda x: (x.sum(-1) + 1) * 2, *inputs), inputs)
        torch.testing.assert_close(run(*inputs)[0], (inputs[0].sum(-1) + 1) * 2)
        return plan_events()[-1][0]

    assert [compile_once(), compile_once()] == [False, True]
    put_back = change()
    try:
        assert [compile_once(), compile_once()] == [False, True]
    finally:
        put_back()


def test_settings_are_part_of_the_key_unless_they_are_known_not_to_matter(monkeypatch):
    x = torch.randn(3, 4)
    assert [fresh(torch.sin, x)[1] for _ in range(2)] == [False, True]
    with framejit.config.patch(recompile_limit=3, ring_size=5000):
        assert fresh(torch.sin, x)[1]
    assert all(hasattr(framejit.config, name) for name in plan_key.ELSEWHERE)
    # as if it were a setting that nobody has thought about
    monkeypatch.setattr(plan_key, "ELSEWHERE", plan_key.ELSEWHERE - {"recompile_limit"})
    assert [fresh(torch.sin, x)[1] for _ in range(2)] == [False, True]
    with framejit.config.patch(recompile_limit=3):
        assert [fresh(torch.sin, x)[1] for _ in range(2)] == [False, True]


def test_other_versions_have_other_keys(monkeypatch):
    from framejit.backends.fuse.cache import cache_key

    x = torch.randn(3, 4)
    monkeypatch.setattr(cache_key, "content_below", lambda folder: "as it was")
    cache_key._toolchain.cache_clear()
    assert [fresh(torch.cos, x)[1] for _ in range(2)] == [False, True]
    for package, version in ((torch, "99.0"), (cache_key, "99.0")):
        cache_key._toolchain.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(package, "__version__", version)
            assert not fresh(torch.cos, x)[1]
    cache_key._toolchain.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(cache_key, "content_below", lambda folder: "changed")
        assert not fresh(torch.cos, x)[1]
    cache_key._toolchain.cache_clear()
    assert fresh(torch.cos, x)[1]
    monkeypatch.undo()
    cache_key._toolchain.cache_clear()


def test_modes_of_the_thread_are_part_of_the_key():
    x, w = torch.randn(3, 4), torch.randn(4, 4)

    def f(x, w):
        return x @ w + 1

    def run():
        got, hit = fresh(f, x, w)
        assert_equal(f(x, w), got)
        return hit

    assert [run(), run()] == [False, True]
    with torch.no_grad():
        assert [run(), run()] == [False, True]
    with torch.autocast("cpu", torch.bfloat16):
        assert [run(), run()] == [False, True]
    assert run()
