"""`float(tensor)` and `tensor.item()`: the number stays in the graph as long as it is only computed with or handed
out."""
import warnings

import pytest
import torch
from torch.overrides import TorchFunctionMode

import framejit

from support import ANY, CountingBackend, Pair, check


def scaled(x):
    return x * float(x.mean()), 2 - float(x.sum())


def inverse(x, n):
    return x + 1.0 / float(n), -float(n) * 3


def in_place(x):
    before = float(x.max())
    x.add_(1)
    return before, x.sum(), x.mul_(before)


def as_arguments(x):
    number = float(x.abs().mean())
    return x.clamp(max=number), x.int() * number, x.abs() ** number, x.half() + number, torch.lerp(x, -x, number)


def of_one_element(x):
    return float(x.sum().reshape(1, 1)) + float(x.sum() > 0) + float(x.int().sum())


@pytest.mark.parametrize("program", [scaled, in_place, as_arguments, of_one_element])
def test_numbers_stay_in_the_graph(program):
    pair = check(program, torch.randn(3, 4), graphs=1, breaks=0)
    pair.call(torch.randn(3, 4), captures=False)


def test_division_by_a_number_from_a_tensor():
    pair = check(inverse, torch.randn(3), torch.tensor(4), graphs=1, breaks=0)
    pair.call(torch.randn(3), torch.tensor(0))  # the same exception, at the same line, on both sides
    pair.call(torch.randn(3), torch.tensor(7))
    assert pair.raised is None


@pytest.mark.parametrize("make", [float, torch.tensor], ids=["a number that changes", "a number from a tensor"])
def test_a_number_divided_by_a_tensor_is_multiplied_with_its_inverse(make):
    """As `Tensor.__rtruediv__` does: another rounding, and other overflows, than those of a division."""
    def divided(x, number, ints):
        n = number.item() if isinstance(number, torch.Tensor) else number
        return n / x, x / n, number if n is not number else n / ints

    pair = Pair(lambda: divided)
    for number in (3.7, 10.1, 1e38, 0.3):
        pair.call(torch.cat([torch.randn(99), torch.tensor([0.0, 2e38])]), make(number), torch.arange(1, 30))
    pair.expect(breaks=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize(
    "operate",
    [
        lambda x, n: x - n, lambda x, n: n - x, lambda x, n: x + n, lambda x, n: x * n, lambda x, n: x / n,
        lambda x, n: torch.add(x, x, alpha=n), lambda x, n: x.sub_(n), lambda x, n: x.addcmul_(x, x, value=n),
    ],
)
def test_a_bool_beside_a_tensor_is_refused_where_torch_refuses_it(operate, dtype):
    pair = Pair(lambda: lambda x, flag: operate(x, flag.item()))
    for flag in (True, False, True):
        pair.call(torch.arange(4).to(dtype), torch.tensor(flag))


def test_mean_of_all_batches():
    def make():
        torch.manual_seed(0)
        return torch.nn.BatchNorm2d(3, momentum=None)

    pair = Pair(make)
    for _ in range(3):
        pair.call(torch.randn(2, 3, 4, 4))
    pair.expect(graphs=1, breaks=0)


def branch(x):
    number = float(x.sum())
    if number > 3:
        return x * 2, number
    return x * number


def known_size(x):
    y = x * 2
    return torch.zeros(int(float(y.max())) + 3) + 1


def formatted(x):
    number = float(x.sum())
    return f"{number:.3f}", x + number, {number: 1}


@pytest.mark.parametrize("program", [branch, known_size, formatted])
def test_what_has_to_know_the_number_breaks_the_graph(program):
    pair = check(program, torch.tensor([1.0, 2.5]), graphs=range(1, 3), breaks=range(1, 3))
    pair.call(torch.tensor([-1.0, 0.5]))


def test_the_break_is_told_at_the_read():
    pair = check(branch, torch.tensor([1.0, 2.5]), graphs=2, breaks=1)
    assert "float() of a tensor needs its data" in str(pair.breaks)


def test_torch_warns_of_a_number_read_from_what_has_a_gradient():
    def program(x):
        return float((x * 2).sum())

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            framejit.optimize(program, backend=CountingBackend())(torch.ones(2, requires_grad=True))
        finally:
            torch.set_warn_always(False)
    assert any("requires_grad=True to a scalar" in str(warning.message) for warning in told)


def test_elements_too_many_are_refused():
    pair = Pair(lambda: lambda x: float(x * 2))
    pair.call(torch.ones(2))


def test_loop_that_adds_numbers_up():
    def program(x):
        total = 0.0
        for row in x:
            total += float(row.sum())
        return total / 2, x + total

    check(program, torch.randn(3, 4), graphs=1, breaks=0)


def logged(x):
    loss = x.square().mean()
    return loss * 2, loss.item()


def accumulated(x, totals):
    totals["loss"] = totals["loss"] + x.mean().item()
    totals["count"] = totals["count"] + 1
    return x / (x.std().item() + 1e-6)


def scaled_by_items(x):
    return x * x.sum().item() - x.half() + x.max().double().item(), x[0, 0].item(), -x[0].sum().item()


@pytest.mark.parametrize("program", [logged, scaled_by_items])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_items_stay_in_the_graph(program, requires_grad):
    pair = check(program, torch.randn(3, 4).requires_grad_(requires_grad), graphs=1, breaks=0)
    pair.call(torch.randn(3, 4).requires_grad_(requires_grad), captures=False)


def test_items_that_are_added_up():
    pair = check(accumulated, torch.randn(3, 4), {"loss": 0.0, "count": 0}, graphs=1, breaks=0)
    for n in range(3):
        pair.call(torch.randn(3, 4), {"loss": 0.5 * n, "count": n})


def test_items_of_a_loss_leave_gradients_as_they_are():
    def step(x, w):
        loss = (x @ w).square().mean()
        return loss * loss.item(), loss.item()

    results = []
    for run in (step, framejit.optimize(step, backend=CountingBackend())):
        w = torch.arange(4.0).requires_grad_()
        loss, number = run(torch.ones(2, 4), w)
        loss.backward()
        assert type(number) is float
        results.append((loss.detach(), number, w.grad))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def printed(x):
    y = x * 2
    return f"{y.sum().item():.2f}", y + 1


def as_a_size(x):
    n = x.int().max().item()
    return x.repeat(abs(n) + 1), range(n)


def as_a_key(x):
    return {2: "two"}.get(x.int().max().item()), x + 1


def as_a_condition(x):
    if (x > 0).all().item():
        return x.clone(), "all"
    return x * 2, "some"


@pytest.mark.parametrize("program", [as_a_size, as_a_key, as_a_condition])
def test_items_that_have_to_be_known_break_the_graph_where_they_are_read(program):
    pair = check(program, torch.tensor([1.0, 2.5]), graphs=range(1, 4), breaks=range(1, 4))
    assert "of a tensor needs its data" in str(pair.breaks) or "int read from a tensor" in str(pair.breaks)
    pair.call(torch.tensor([-1.0, 0.5]))


def truths(x):
    y = x * 2
    return bool(y.sum()), not y.any(), bool(x.int().max()), not x.mean().item(), y + bool((x > 0).all())


def truths_of_truths(x):
    positive = bool((x > 0).all())
    other = not positive
    return positive, other, not other, x * positive, (x + 1 if other else x - 1)


@pytest.mark.parametrize("program", [truths, truths_of_truths])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_truths_stay_in_the_graph(program, requires_grad):
    pair = check(program, torch.tensor([1.0, 2.5], requires_grad=requires_grad), graphs=1, breaks=0)
    for numbers in ([0.0, 0.0], [-1.0, 0.5], [float("nan"), 0.0], [-0.0, 0.0]):
        pair.call(torch.tensor(numbers, requires_grad=requires_grad), captures=False)


def test_a_truth_of_many_elements_is_refused_as_in_plain_python():
    for numbers in (torch.ones(2), torch.ones(0), torch.ones(1, 2)):
        check(lambda x: bool(x), numbers, raises=RuntimeError)
        check(lambda x: not x, numbers, raises=RuntimeError)


def test_a_mode_sees_the_question_for_a_truth():
    class Names(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def fn(x):
        with Names():
            return bool(x.sum())

    seen: list[str] = []
    outcomes = []
    for run in (fn, framejit.optimize(fn, backend="eager")):
        outcomes.append([run(torch.ones(2)), run(torch.zeros(2)), *seen])
        seen.clear()
    assert outcomes[0] == outcomes[1]


def as_the_one_true(x):
    flag, number, two = (x > 0).all().item(), x.int().max().item(), 2
    return flag is True, flag is not False, number is two, flag is number, flag is (x > 0).any().item(), x + 1


def as_a_case(x):
    match (x > 0).all().item():
        case True:
            return x + 1
        case False:
            return x - 1


@pytest.mark.parametrize("program", [as_the_one_true, as_a_case])
def test_there_is_one_object_of_each_bool_and_small_int(program):
    pair = check(program, torch.tensor([1.0, 2.5]), graphs=ANY, breaks=ANY)
    for numbers in ([-1.0, 0.5], [-1.0, -2.0], [1.0, 2.5], [7.0, 1e6]):
        pair.call(torch.tensor(numbers))


def test_a_float_is_no_object_from_elsewhere():
    pair = check(lambda x, n: (x.sum().item() is n, x.sum().item() is None, x + 1), torch.ones(2), 2.0, breaks=0)
    pair.call(torch.ones(2), 3.0)


def test_a_number_that_is_formatted_is_written_behind_the_graph():
    pair = check(printed, torch.tensor([1.0, 2.5]))
    pair.call(torch.tensor([-1.0, 0.5]), captures=False)


def test_items_of_many_elements_are_refused_as_in_plain_python():
    pair = Pair(lambda: lambda x: (x * 2).item())
    pair.call(torch.ones(2))
    pair.call(torch.ones(1))
    pair.call(torch.ones(1, 1))


def computed_with_ints(x, n):
    k = n.item()
    return x * k, x / k, x.int() + 1, k + 1, k * 3 - 2, 7 - k, -k, +k, abs(k), k // 3, k % 5, k % -5, k // -7


def computed_with_floats(x, n):
    k = int(n)
    return float(k) + 0.5, k * 0.1, k / 7, 3 / (abs(k) + 1), 2.5 - k, abs(-float(n)), x.double() * k


def compared_numbers(x, n):
    k, m = n.item(), x.mean().item()
    return k > 2, k == 4, k != 4.0, m < k, m >= 0.0, 1 <= k, (n > 2).item(), int(n > 2), x.max() > m


NUMBERS = [(torch.int64, 4), (torch.int64, -7), (torch.int32, -(2**31)), (torch.int8, -128), (torch.uint8, 255),
           (torch.int16, 0), (torch.bool, True)]


@pytest.mark.parametrize("program", [computed_with_ints, computed_with_floats, compared_numbers])
def test_ints_stay_in_the_graph(program):
    for dtype, number in NUMBERS:
        beside_a_bool = dtype is torch.bool and program is computed_with_ints
        pair = check(
            program, torch.randn(3), torch.tensor(number, dtype=dtype), graphs=range(1, 5) if beside_a_bool else 1,
            breaks=range(5) if beside_a_bool else 0,
        )
        pair.call(torch.randn(3), torch.tensor(5, dtype=dtype), captures=False)


@pytest.mark.parametrize("number", [2**62, -(2**63), 2**31, 2**53 + 1])
def test_ints_that_would_overflow_go_on_in_plain_python(number):
    for program in (computed_with_ints, computed_with_floats, compared_numbers):
        pair = check(program, torch.randn(3), torch.tensor(4), graphs=1, breaks=0)
        pair.call(torch.randn(3), torch.tensor(number))
        pair.call(torch.randn(3), torch.tensor(-3))


def beside_ints(x, n):
    return x * n.item(), x - n.item(), x > n.item(), n.item() - x, n.item() + 0 * x


@pytest.mark.parametrize("number", [3, -(2**40) - 1, 2**63 - 1])
def test_ints_beside_tensors(number):
    for dtype in (torch.int64, torch.float32, torch.float64, torch.bfloat16, torch.int32):
        pair = check(
            beside_ints, torch.arange(4).to(dtype), torch.tensor(number), graphs=range(1, 6), breaks=range(6)
        ) if dtype not in (torch.int32, torch.bfloat16) or number == 3 else None
        if dtype is torch.int64:
            assert pair.breaks == []


def divided(x, n):
    x.add_(1)
    return x / 2, 10 / n.item()


def test_a_divisor_of_zero_raises_once_what_was_written_stays():
    pair = check(divided, torch.ones(3), torch.tensor(4), graphs=1, breaks=0)
    pair.call(torch.ones(3), torch.tensor(0))
    assert pair.raised is ZeroDivisionError
    pair.call(torch.ones(3), torch.tensor(3))


def test_a_number_that_is_never_needed_breaks_nothing():
    def step(x, log):
        loss = x.square().mean()
        log.append(loss.item())
        log.append(int(x.argmax()))
        return x - loss

    pair = check(step, torch.randn(4), [], graphs=1, breaks=0)
    pair.call(torch.randn(4), [1.0], captures=False)


def test_whether_tensors_are_close():
    def fn(x, y):
        close = torch.allclose(x, y, atol=0.5)
        return close, x.allclose(other=y, equal_nan=True), x + 1, f"{close}", not close

    ones, nan = torch.ones(3), torch.tensor([float("nan"), 1, 1])
    for x, y in ((ones, ones), (ones, ones + 0.25), (ones, ones * 2), (nan, nan), (torch.ones(0), torch.ones(0))):
        check(fn, x, y)
    for x, y in ((ones, ones.double()), (ones, torch.ones(2))):
        check(fn, x, y, raises=RuntimeError)
