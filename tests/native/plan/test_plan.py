"""Plans: what they give is what eager gives; outputs, calls, and the plan as a callable."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from plan_support import ADD_RELU_DOUBLE, COUNT_UP, CPU, Kernel, call, empty, no_fallback, plan, value

from framejit import _native as native
from framejit._native import Plan, Value
from framejit.guards import tensor_layout  # noqa: F401  (measures where tensors keep their metadata, which plans need)


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


def test_an_output_that_is_an_input_is_that_object():
    x, y = torch.nn.Parameter(torch.zeros(2)), torch.zeros(3)
    constant = [object()]
    outputs = plan(2, 2, [], [value(1), value(0), constant, 7, value(1), (value(0),)])(x, y)
    assert outputs[0] is y and outputs[1] is x and outputs[2] is constant and outputs[3] == 7 and outputs[4] is y
    assert outputs[5] == (Value(0),)


def test_a_value_given_out_twice_is_one_object():
    first, second = plan(0, 1, [empty(0, 2)], [value(0), value(0)])()
    assert first is second


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
