"""Plans: the steps give what eager gives, values live exactly as long as they must, and wrong input is an error and
never a crash."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import pytest
import torch
from plan_support import CPU, Kernel, call, empty, floats, no_fallback, value

from framejit import _native as native
from framejit._native import Plan, Value
from framejit.backends.fuse.plan.aligned_copy import aligned_copy
from framejit.guards import tensor_layout  # noqa: F401  (measures where tensors keep their metadata, which plans need)


def _add_relu_double(pointers, ints, begin, end):
    x, y, out = (floats(pointers[i]) for i in range(3))
    for i in range(begin, end):
        out[i] = max(x[i] + y[i], 0.0) * 2


def _count_up(pointers, ints, begin, end):
    out = floats(pointers[0])
    for i in range(begin, end):
        out[i] = ints[0] + ints[1] * i


ADD_RELU_DOUBLE = Kernel(_add_relu_double)
COUNT_UP = Kernel(_count_up)


def plan(n_inputs: int, n_values: int, steps: list[Any], outputs: list[Any], **options: Any) -> Plan:
    return Plan(n_inputs, n_values, steps, outputs, **{"fallback": no_fallback, **options})



# ---- tensors ----
def test_a_kernel_gives_what_eager_gives():
    run = plan(2, 3, [empty(2, 4, 4), ("cpu_kernel", ADD_RELU_DOUBLE.address, (0, 1, 2), (), 16, 64)], [value(2)])
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    (result,) = run(x, y)
    assert torch.equal(result, (x + y).relu() * 2)
    assert type(result) is torch.Tensor
    assert not result.requires_grad and result.is_leaf


def test_a_kernel_gets_pointers_with_the_storage_offset_and_its_integers():
    seen: list[Any] = []
    kernel = Kernel(
        lambda pointers, ints, begin, end: seen.append(
            ([pointers[i] for i in range(2)], [ints[i] for i in range(3)], begin, end)
        )
    )
    x = torch.zeros(10)[3:]
    y = torch.zeros(2, dtype=torch.int8)
    plan(2, 2, [("cpu_kernel", kernel.address, (1, 0), (5, -(2**62), 0), 7, 100)], [])(x, y)
    assert seen == [([y.data_ptr(), x.data_ptr()], [5, -(2**62), 0], 0, 7)]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8, torch.bool,
        torch.complex64, torch.float8_e4m3fn,
    ],
)
def test_an_empty_tensor_has_the_metadata_it_was_described_with(dtype):
    (made,) = plan(0, 1, [("empty", 0, (2, 3, 4), (12, 1, 3), dtype, CPU)], [value(0)])()
    assert (made.shape, made.stride(), made.dtype, made.device) == ((2, 3, 4), (12, 1, 3), dtype, CPU)
    assert made.untyped_storage().nbytes() == 24 * dtype.itemsize


def test_empty_and_scalar_shapes():
    scalar, nothing = plan(0, 2, [empty(0), empty(1, 0, 3)], [value(0), value(1)])()
    assert scalar.shape == () and nothing.shape == (0, 3)


def test_reinterpret_shares_the_storage_from_an_offset_relative_to_the_base():
    base = torch.arange(20.0)[4:]
    step = ("reinterpret", 1, 0, (2, 3), (5, 2), 1, torch.float32)
    (view,) = plan(1, 2, [step], [value(1)])(base)
    assert torch.equal(view, base.as_strided((2, 3), (5, 2), base.storage_offset() + 1))
    assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    view.fill_(-1)
    assert base[1] == -1


def test_reinterpret_as_another_dtype_of_the_same_size():
    base = torch.tensor([1.0, -2.0, 3.5])
    (view,) = plan(1, 2, [("reinterpret", 1, 0, (3,), (1,), 0, torch.int32)], [value(1)])(base)
    assert view.dtype is torch.int32 and torch.equal(view, base.view(torch.int32))
    assert base.dtype is torch.float32
    assert torch.equal(view + 1, base.view(torch.int32) + 1)


def test_reinterpret_as_a_dtype_of_another_size_is_refused():
    run = plan(1, 2, [("reinterpret", 1, 0, (3,), (1,), 0, torch.int64)], [value(1)])
    with pytest.raises(RuntimeError, match="another size"):
        run(torch.zeros(3))


def test_results_follow_the_grad_and_inference_mode_of_the_call():
    run = plan(1, 2, [empty(1, 2)], [value(1)])
    x = torch.zeros(2, requires_grad=True)
    assert not run(x)[0].requires_grad
    with torch.inference_mode():
        assert run(x)[0].is_inference()
    assert not run(x)[0].is_inference()


def test_running_out_of_memory_raises_torchs_own_error():
    run = plan(0, 1, [empty(0, 2**60)], [value(0)])
    with pytest.raises(RuntimeError) as ours:
        run()
    with pytest.raises(RuntimeError) as theirs:
        torch.empty_strided((2**60,), (1,))
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))


# ---- outputs ----
def test_an_output_that_is_an_input_is_that_object():
    x, y = torch.nn.Parameter(torch.zeros(2)), torch.zeros(3)
    constant = [object()]
    outputs = plan(2, 2, [], [value(1), value(0), constant, 7, value(1), (value(0),)])(x, y)
    assert outputs[0] is y and outputs[1] is x and outputs[2] is constant and outputs[3] == 7 and outputs[4] is y
    assert outputs[5] == (Value(0),)


def test_a_value_given_out_twice_is_one_object():
    first, second = plan(0, 1, [empty(0, 2)], [value(0), value(0)])()
    assert first is second


# ---- calls ----
def test_calls_get_values_in_containers_and_keywords():
    def target(*args, **kwargs):
        return args, kwargs

    step = call(target, value(0), (value(1), 2), [value(0)], 5, to=2, key=value(1), other=None)
    ((args, kwargs),) = plan(2, 3, [step], [value(2)])(x := torch.zeros(1), y := torch.zeros(2))
    assert args[0] is x and args[1] == (y, 2) and args[1][0] is y and args[2][0] is x and args[3] == 5
    assert kwargs == {"key": y, "other": None} and list(kwargs) == ["key", "other"] and kwargs["key"] is y


def test_a_list_argument_is_new_in_each_call_and_a_tuple_is_not():
    lists: list[Any] = []
    constant = (1, 2)
    run = plan(
        0, 1, [call(lambda items, same: (lists.append(items), items.append(9), same)[2], [1, 2], constant, to=0)],
        [value(0)],
    )
    assert run()[0] is constant and run()[0] is constant
    assert lists == [[1, 2, 9], [1, 2, 9]] and lists[0] is not lists[1]


def test_results_of_calls_go_to_slots():
    x = torch.randn(4, 6)
    steps = [
        call(torch.max, value(0), dim=1, to=(1, 2)),
        call(torch.split, value(0), 2, to=(3, None)),
        call(torch.add, value(3), 1, to=4),
        call(list, (), to=None),
    ]
    values, indices, added = plan(1, 5, steps, [value(1), value(2), value(4)])(x)
    assert (
        torch.equal(values, x.max(1).values)
        and torch.equal(indices, x.max(1).indices)
        and torch.equal(added, x[:2] + 1)
    )


def test_kernels_and_calls_see_each_others_values():
    steps = [
        empty(2, 16),
        ("cpu_kernel", ADD_RELU_DOUBLE.address, (0, 1, 2), (), 16, 64),
        call(torch.Tensor.sub, value(2), value(0), to=3),
        ("free", 2),
        empty(4, 16),
        ("cpu_kernel", ADD_RELU_DOUBLE.address, (3, 1, 4), (), 16, 64),
    ]
    x, y = torch.randn(16), torch.randn(16)
    (result,) = plan(2, 5, steps, [value(4)])(x, y)
    assert torch.equal(result, (((x + y).relu() * 2 - x) + y).relu() * 2)


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (3, "returned int where a tuple of 2"),
        ((1, 2, 3), "returned 3 values where 2"),
        ([], "returned 0 values where 2"),
    ],
)
def test_a_result_of_the_wrong_form_is_an_error(returned, error):
    with pytest.raises((TypeError, ValueError), match=error):
        plan(0, 2, [call(lambda: returned, to=(0, 1))], [])()


def test_what_a_call_raises_passes_through_with_its_traceback():
    def fails(x):
        raise KeyError("mine")

    run = plan(1, 4, [empty(1, 8), call(fails, value(1), to=2), empty(3, 1)], [value(2)])
    with pytest.raises(KeyError, match="mine") as raised:
        run(torch.zeros(1))
    assert raised.traceback[-1].name == "fails"


def test_a_kernel_on_something_without_memory_is_an_error():
    steps = [call(lambda: "text", to=0), ("cpu_kernel", COUNT_UP.address, (0,), (0, 0), 1, 1)]
    with pytest.raises(TypeError, match="no memory"):
        plan(0, 1, steps, [])()


def test_a_call_may_enter_the_plan_again():
    depth = 0

    def enter(x):
        nonlocal depth
        depth += 1
        result = run(x + 1)[0] if depth < 5 else x
        return result

    run = plan(1, 3, [empty(2, 3), call(enter, value(0), to=1)], [value(1), value(2)])
    assert torch.equal(run(torch.zeros(2))[0], torch.full((2,), 4.0))


# ---- lifetime ----
def test_values_are_dropped_when_they_are_freed_and_at_the_end():
    refs: list[Any] = []

    def make():
        tensor = torch.zeros(3)
        refs.append(weakref.ref(tensor))
        return tensor

    def alive():
        return [ref() is not None for ref in refs]

    steps = [call(make, to=0), call(make, to=1), ("free", 0), call(alive, to=2)]
    assert plan(0, 3, steps, [value(2)])() == ([False, True],)
    assert alive() == [False, False]


def test_values_are_dropped_when_a_step_raises():
    refs: list[Any] = []

    def keep(x):
        refs.append(weakref.ref(x))
        raise ValueError

    with pytest.raises(ValueError):
        plan(0, 2, [empty(0, 3), call(keep, value(0), to=1)], [])()
    assert refs[0]() is None


def test_inputs_that_a_call_consumes_go_when_they_are_freed():
    x, y = torch.zeros(3), torch.ones(3)
    refs = [weakref.ref(x), weakref.ref(y)]

    def alive():
        return [ref() is not None for ref in refs]

    run = plan(
        2, 5, [call(torch.neg, value(0), to=2), ("free", 0), call(alive, to=3), ("free", 1), call(alive, to=4)],
        [value(2), value(3), value(4)],
    )
    assert run(x, y)[1:] == ([True, True], [True, True])
    given = [x, y]
    del x, y
    result, *seen = run.consume(given)
    assert torch.equal(result, torch.zeros(3)) and seen == [[False, True], [False, False]] and given == []


def test_inputs_that_a_call_consumes_go_at_the_end_at_the_latest():
    x, y = torch.zeros(3), torch.zeros(3)
    refs = [weakref.ref(x), weakref.ref(y)]
    given = [x, y]
    del x, y
    (result,) = plan(2, 2, [], [value(1)]).consume(given)
    assert result is refs[1]() and refs[0]() is None and given == []

    def fails(x):
        raise ValueError

    given = [result, torch.zeros(3)]
    del result
    with pytest.raises(ValueError):
        plan(2, 3, [("free", 0), call(fails, value(1), to=2)], []).consume(given)
    assert refs[1]() is None and given == []


def test_what_may_be_consumed():
    run = plan(1, 1, [("free", 0)], [])
    x = torch.zeros(3)
    count = sys.getrefcount(x)
    for wrong in ((x,), [], [x, x], [3], x):
        with pytest.raises(TypeError):
            run.consume(wrong)
    del wrong
    given = [x]
    assert run.consume(given) == () and given == []
    assert sys.getrefcount(x) == count
    memory = torch.zeros(5)
    given = [memory[1:]]
    assert plan(1, 1, [("free", 0)], [], aligned=(0,), fallback=lambda *inputs: ("fallback", len(inputs))).consume(
        given
    ) == ("fallback", 1)
    assert given == []


def _inherits(given, bytes=12):
    """Whether a tensor that a plan makes lies where the input lay, which the plan consumes."""
    before = given[0].data_ptr()
    inherited = ("inherit", 1, 0, (3,), (1,), torch.int32, CPU, bytes)
    written = call(torch.Tensor.fill_, value(1), 7, to=2), call(torch.Tensor.clone, value(0), to=3)
    run = plan(1, 4, [inherited, *written, ("free", 0)], [value(1), value(3)])
    made, old = run.consume(given) if isinstance(given, list) else run(*given)
    assert made.tolist() == [7, 7, 7] and made.dtype == torch.int32
    assert (made.data_ptr() == before) == (old.view(torch.int32).tolist() == [7, 7, 7])
    return made.data_ptr() == before


def test_memory_of_an_input_goes_on_where_nobody_else_holds_it():
    assert _inherits([torch.zeros(3)])
    assert not _inherits((torch.zeros(3),)), "a call that does not consume its inputs"
    x = torch.zeros(3)
    assert not _inherits([x]) and x.tolist() == [0, 0, 0]
    other = x.detach()
    given = [x]
    del x
    assert not _inherits(given) and other.tolist() == [0, 0, 0], "another tensor over the same memory"
    assert not _inherits([torch.zeros(4)[:3]]), "memory of another size"
    assert not _inherits([torch.zeros(3)], bytes=16)
    x = torch.zeros(3)
    product = torch.ones(3, requires_grad=True) * x
    given = [x]
    del x
    assert not _inherits(given), "kept by autograd"
    product.sum().backward()


def test_memory_is_inherited_from_inputs_only():
    with pytest.raises(ValueError, match="inherited from inputs"):
        plan(0, 2, [empty(0, 3), ("inherit", 1, 0, (3,), (1,), torch.float32, CPU, 12)], [])


def test_calls_leak_no_reference():
    constant, x, y = object(), torch.zeros(4), torch.zeros(4)

    def target(*args, **kwargs):
        return (x, constant)

    def fails(*args):
        raise ValueError

    steps = [
        empty(2, 4),
        call(target, value(0), [value(2), value(2)], (constant, value(1)), key=constant, to=(3, 4)),
        call(len, (), to=None),
    ]
    run = plan(2, 5, steps, [value(0), value(3), value(4), constant])
    broken = plan(2, 4, [empty(2, 4), call(fails, value(2), [value(0)], constant, to=3)], [])

    def counts():
        return [sys.getrefcount(o) for o in (constant, x, y, target, fails, run, broken)]

    run(x, y)
    before = counts()
    for _ in range(100):
        run(x, y)
        with pytest.raises(ValueError):
            broken(x, y)
        with pytest.raises(TypeError):
            run(x, 3)
    assert counts() == before


def test_no_memory_is_kept_by_calls():
    run = plan(1, 3, [empty(1, 1 << 20), call(torch.neg, value(1), to=2)], [value(2)])
    x = torch.zeros(1)
    for _ in range(1000):  # 8 GB if they were kept
        run(x)
    before = _resident_bytes()
    for _ in range(1000):
        run(x)
    assert _resident_bytes() - before < 200e6


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_a_cycle_through_a_plan_is_collected():
    class Holder:
        plan: Any

        def __call__(self, x):
            return x

    holder = Holder()
    holder.plan = plan(
        1, 2, [call(holder, value(0), to=1), call(len, [holder], to=None)], [value(1), holder], fallback=holder
    )
    holder.plan(torch.zeros(1))
    ref = weakref.ref(holder)
    del holder
    gc.collect()
    assert ref() is None


# ---- what a plan refuses ----
@pytest.mark.parametrize(
    "inputs",
    [
        (), (torch.zeros(1),), (torch.zeros(1), 3), (None, torch.zeros(1)), (torch.zeros(1),) * 3,
        ([torch.zeros(1)], 2.0),
    ],
)
def test_wrong_inputs_are_a_type_error(inputs):
    run = plan(2, 2, [], [value(0)], name="mine", aligned=(0, 1))
    with pytest.raises(TypeError, match="mine"):
        run(*inputs)


def test_keywords_are_a_type_error():
    with pytest.raises(TypeError):
        plan(1, 1, [], [])(x=torch.zeros(1))
    with pytest.raises(TypeError):
        plan(1, 1, [], [])(torch.zeros(1), x=torch.zeros(1))


KERNEL = COUNT_UP.address


@pytest.mark.parametrize(
    "steps",
    [
        [("nothing", 1)],
        ["empty"],
        [()],
        [("free",)],
        [("free", 1)],
        [("free", 9)],
        [("free", -1)],
        [("free", 0), ("free", 0)],
        [empty(0, 2)],
        [empty(1, 2), empty(1, 2)],
        [empty(1, 2), ("free", 1), empty(1, 2)],
        [("empty", 1, (2,), (1, 1), torch.float32, CPU)],
        [("empty", 1, (-2,), (1,), torch.float32, CPU)],
        [("empty", 1, 2, 1, torch.float32, CPU)],
        [("empty", 1, (2,), (1,), "torch.float32", CPU)],
        [("empty", 1, (2,), (1,), torch.float32, "cpu")],
        [("empty", 1, (2**70,), (1,), torch.float32, CPU)],
        [("reinterpret", 1, 1, (2,), (1,), 0, torch.float32)],
        [("cpu_kernel", 0, (), (), 1, 1)],
        [("cpu_kernel", KERNEL, (1,), (), 1, 1)],
        [("cpu_kernel", KERNEL, (), (), 1, 0)],
        [("cpu_kernel", KERNEL, (), (), -1, 1)],
        [("cpu_kernel", KERNEL, (), ("a",), 1, 1)],
        [call(len, Value(1), to=None)],
        [call(len, [Value(1)], to=None)],
        [call(len, key=Value(7), to=None)],
        [call(3, to=None)],
        [call(len, to=0)],
        [call(len, to=(1, 1))],
        [("call", len, [], None, None)],
        [("call", len, (), (), None)],
    ],
    ids=lambda steps: repr(steps).replace(str(KERNEL), "KERNEL"),  # each process has another address
)
def test_a_description_that_cannot_run_is_refused(steps):
    with pytest.raises((ValueError, TypeError, OverflowError, AttributeError)):
        plan(1, 3, steps, [])


def test_outputs_and_aligned_inputs_are_checked():
    with pytest.raises(ValueError, match="holds nothing"):
        plan(0, 1, [], [value(0)])
    with pytest.raises(ValueError, match="holds nothing"):
        plan(1, 2, [empty(1, 1)], [], aligned=[1])
    with pytest.raises(TypeError, match="fallback"):
        Plan(0, 0, [], [])  # type: ignore[call-arg]


def test_a_dtype_that_torchs_c_functions_do_not_know_is_typed():
    with pytest.raises(native.PlanUnsupported):
        plan(0, 1, [("empty", 0, (2,), (1,), torch.quint8, CPU)], [])


def test_the_fallback_runs_calls_with_unaligned_inputs():
    calls: list[Any] = []

    def fallback(*inputs):
        calls.append(inputs)
        return "fallback"

    run = plan(2, 2, [], ["plan"], fallback=fallback, aligned=[1])
    storage = torch.zeros(16)
    assert run(storage[1:], storage) == ("plan",)
    assert run(storage, storage[4:]) == ("plan",)
    odd = storage[1:]
    assert run(storage, odd) == "fallback"
    assert calls == [(storage, odd)] and calls[0][1] is odd


def test_copies_stand_for_unaligned_inputs_that_may_be_copied():
    run = plan(
        3, 4, [("call", torch.add, (value(0), value(1)), None, 3)], [value(3), value(2)], aligned=[0, 1, 2],
        copied=[0, 1], aligned_copy=aligned_copy, fallback=lambda *inputs: "fallback",
    )
    storage = torch.arange(40.0)
    odd, other = storage[1:9].view(2, 4).t(), storage[17:19].expand(4, 2)
    for inputs in ((odd, other, storage), (storage[:8].view(4, 2), other, storage), (odd, storage[:2], storage)):
        counts = [*map(sys.getrefcount, inputs)]
        total, same = run(*inputs)
        torch.testing.assert_close(total, inputs[0] + inputs[1])
        assert total.stride() == (inputs[0] + inputs[1]).stride() and same is inputs[2]
        del same
        assert [*map(sys.getrefcount, inputs)] == counts
        given = [*inputs]
        torch.testing.assert_close(run.consume(given)[0], total)
        assert given == []
    assert run(storage, storage, storage[1:]) == "fallback"
    assert run(odd, other, storage[1:]) == "fallback"
    given = [odd, other, storage[1:]]
    assert run.consume(given) == "fallback" and given == []


def test_a_plan_for_other_sizes_copies_too():
    run = plan(1, 2, [("call", torch.neg, (value(0),), None, 1)], [value(1)], aligned=[0], copied=[0],
               aligned_copy=aligned_copy).for_sizes([], [value(1)], [], lambda *inputs: "fallback")
    x = torch.arange(5.0)[1:]
    assert torch.equal(run(x)[0], -x)


def test_what_a_copy_raises_is_raised():
    def raises(tensor):
        raise MemoryError("no room")

    with pytest.raises(TypeError, match="aligned_copy"):
        plan(1, 1, [], [], copied=[0])
    with pytest.raises(TypeError, match="aligned_copy"):
        plan(1, 1, [], [], copied=[0], aligned_copy=3)
    run = plan(1, 1, [], [value(0)], aligned=[0], copied=[0], aligned_copy=raises)
    x = torch.zeros(5)[1:]
    count = sys.getrefcount(x)
    with pytest.raises(MemoryError, match="no room"):
        run(x)
    given = [x]
    with pytest.raises(MemoryError, match="no room"):
        run.consume(given)
    assert len(given) == 1 and given[0] is x
    del given
    assert sys.getrefcount(x) == count
    assert run(torch.zeros(4))


# ---- threads ----
class Ranges:
    """A kernel that notes the ranges it was called for, and from which threads."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.threads: set[int] = set()
        self.kernel = Kernel(self._run)

    def _run(self, pointers, ints, begin, end):
        self.calls.append((begin, end))
        self.threads.add(threading.get_native_id())


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("total", "grain"), [(1, 1), (7, 8), (15, 8), (16, 8), (17, 8), (100, 1), (101, 7), (1000, 400), (5, 2**62)]
)
def test_the_range_is_covered_once_by_no_more_threads_than_allowed(set_threads, threads, total, grain):
    set_threads(threads)
    ranges = Ranges()
    plan(0, 0, [("cpu_kernel", ranges.kernel.address, (), (), total, grain)], [])()
    calls = sorted(ranges.calls)
    assert [begin for begin, _ in calls] == [0] + [end for _, end in calls[:-1]] and calls[-1][1] == total
    assert len(calls) == max(1, min(threads, total // grain))
    assert len(calls) == 1 or min(end - begin for begin, end in calls) >= grain
    assert len(ranges.threads) == len(calls)


def test_an_empty_range_runs_nothing():
    ranges = Ranges()
    plan(0, 0, [("cpu_kernel", ranges.kernel.address, (), (), 0, 1)], [])()
    assert ranges.calls == []


def test_a_long_kernel_lets_other_threads_run():
    entered, left = threading.Event(), threading.Event()
    kernel = Kernel(lambda *args: (entered.set(), left.wait(20)))
    run = plan(0, 0, [("cpu_kernel", kernel.address, (), (), 2, 1)], [])
    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(20)
    left.set()
    thread.join()


def test_threads_share_a_plan(set_threads):
    set_threads(2)
    steps = [
        empty(1, 64), ("cpu_kernel", COUNT_UP.address, (1,), (3, 2), 64, 8),
        call(torch.add, value(0), value(1), to=2), ("free", 1),
    ]
    run = plan(1, 3, steps, [value(2), value(0)])
    expected = 3 + 2 * torch.arange(64.0)
    errors: list[Any] = []

    def work(number):
        x = torch.full((64,), float(number))
        for _ in range(50):
            result, same = run(x)
            if not torch.equal(result, expected + number) or same is not x:
                errors.append(number)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []


def test_a_plan_with_very_many_values():
    n = 500
    steps: list[Any] = [empty(i, 2) for i in range(n)]
    steps += [("cpu_kernel", COUNT_UP.address, (i,), (i, 1), 2, 8) for i in range(n)]
    steps += [call(lambda *tensors: torch.stack(tensors).sum(), *[value(i) for i in range(n)], to=n)]
    run = plan(0, n + 1, steps, [value(n)])
    assert run()[0] == sum(2 * i + 1 for i in range(n))


# ---- as a callable ----
def test_value_is_a_plain_marker():
    assert (
        Value(3) == Value(3) != Value(4)
        and Value(3).index == 3
        and repr(Value(3)) == "Value(3)"
        and len({Value(1), Value(1)}) == 1
    )
    assert Value(3) != 3


def test_a_plan_is_called_by_a_slot_of_replacement_code():
    slot = native.Slot(plan(1, 1, [], [value(0)]), native.SLOT_VALUE)
    x = torch.zeros(1)
    assert slot(x)[0] is x


def test_what_a_plan_says_of_itself():
    run = plan(2, 3, [empty(2, 1), ("free", 2), ("free", 0)], [], name="mine")
    assert (run.name, run.n_inputs, run.n_steps, run.fallback, repr(run)) == (
        "mine", 2, 3, no_fallback, "<Plan 'mine'>",
    )


def test_an_input_that_is_written_must_not_share_memory_with_another():
    fallbacks = []

    def fallback(x, y):
        fallbacks.append((x, y))
        return (x,)

    plan = Plan(
        2, 2, [("call", torch.Tensor.add_, (Value(0), 1), None, None)], (Value(0),), fallback=fallback, alone=(0,),
        spans=(32, 32),
    )
    memory = torch.zeros(20)
    assert plan(memory[:8], memory[8:16])[0].tolist() == [1.0] * 8 and not fallbacks
    plan(memory[:8], memory[7:15])
    plan(memory[7:15], memory[:8])
    assert len(fallbacks) == 2 and memory[0] == 1


def test_spans_are_for_all_inputs():
    with pytest.raises(ValueError, match="1 spans for 2 inputs"):
        Plan(2, 2, [], (), fallback=print, alone=(0,), spans=(32,))
