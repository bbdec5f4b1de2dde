"""An `if` on data whose branches are short is in the graph: both branches are computed, and one result is selected.
Where that could be told from the program, the graph breaks at the `if`."""
import sys

import pytest
import torch

import framejit

from support import CountingBackend, Pair, check, of_kind, recorded

X = torch.arange(4.0) - 1
OTHERS = (X + 1, X - 2, X + 5, X * 0, X + 100, X * float("nan"))


def with_else(x):
    y = x * 2
    if y.sum() > 2:
        z = y + 1
    else:
        z = y.exp() - 1
    return z * 3


def without_else(x):
    y = x * 2
    if y.sum() > 2:
        y = y + 1
    return y


def returns(x):
    if x.sum() > 2:
        return x + 1, x.sum()
    return x - 1, x.mean()


def three_ways(x):
    if x.sum() > 10:
        y = x + 1
    elif x.sum() > 2:
        y = x + 2
    else:
        y = x.neg()
    return y * y


def conditional_expression(x):
    return (x + 1 if x.mean().item() > 0.5 and x.max() < 50 else x.exp()) * 2


def either_condition(x):
    if x.sum() > 2 or x.min() < -1:
        y, z = x + 1, x * 2
    else:
        y, z = x.neg(), x / 2
    return y + z, z


def neither(x):
    if not (x > 0).any():
        x = x - 1
    return x * 2


def in_a_loop(x):
    for step in range(3):
        if x.sum() > 3:
            x = x - step
        else:
            x = x + 2
    return x * 1


def slices(x):
    first = x[:2] if x.mean() > 0.5 else x[2:]
    rows = x.reshape(2, 2)
    return first * 2 + (rows[0:1, :] if x.sum() > 2 else rows[1:, :])


def numbers(x):
    scale = 0.5 if x.sum() > 2 else 2.0
    return x * scale, scale, (1 if x.max() > 2 else 7) + 1, x.sum() > 2 and scale


def of_truth(x):
    if (x > 0).all():
        return x * 1, True
    return x * 2, False


def swapped(x):
    low, high = x - 1, x + 1
    if x.sum() > 2:
        low, high = high, low
    return low * 2 - high


def inlined(x):
    return with_else(x) + neither(x) + torch.nn.functional.relu(without_else(x))


def of_a_guard(x):
    total = x.sum()
    if torch.isnan(total) or torch.isinf(total):
        x = torch.zeros_like(x)
    return x / 3


def of_integers(x):
    if x.int().sum():
        return x.int() + 1
    return x.int() * 2


DEBUG = False


def messages_that_are_off(x):
    found = {"sum": x + 1, "product": x * 2}
    for name in found:
        if (torch.isnan(found[name]).any() or torch.isinf(found[name]).any()) and DEBUG:
            print(f"{name!r} contains {'nan':>5}")
    return found["sum"] * found["product"]


def by_what_is_known(x, scale=None, kinds=("abs", "neg")):
    if x.sum() > 2:
        x = x * 2 if scale is None else x * scale
        x = x.abs() if "abs" in kinds else x
    elif scale is not None or "exp" not in kinds:
        flag = not kinds
        x = x + flag
    return x * 3


ONE_GRAPH = [
    slices, with_else, without_else, returns, three_ways, conditional_expression, either_condition, neither, in_a_loop,
    of_truth, swapped, inlined, of_a_guard, of_integers, messages_that_are_off, by_what_is_known,
]


@pytest.mark.parametrize("program", ONE_GRAPH)
@pytest.mark.parametrize("backend", ["fuse", "eager"])
def test_one_graph(program, backend):
    if backend == "eager":
        pair = check(program, X, graphs=1, breaks=0)
        for x in OTHERS:
            pair.call(x, captures=False)
    fast = framejit.optimize(program, backend=backend)
    for x in (X, *OTHERS):
        torch.testing.assert_close(fast(x), program(x), equal_nan=True)
    assert len(fast.entries) == 1


def test_numbers():
    pair = check(numbers, X, graphs=None, breaks=range(2))
    for x in OTHERS:
        pair.call(x)


def test_messages_that_are_shown(monkeypatch, capsys):
    fast = framejit.optimize(messages_that_are_off)
    for shown in (False, True, True):
        monkeypatch.setitem(globals(), "DEBUG", shown)
        for x in (X, X * float("nan")):
            printed = []
            for run in (messages_that_are_off, fast):
                torch.testing.assert_close(run(x), (x + 1) * (x * 2), equal_nan=True)
                printed.append(capsys.readouterr().out)
            assert printed[0] == printed[1]
            assert bool(printed[0]) == (shown and bool(x.isnan().any()))


def test_off():
    with framejit.config.patch(branch_operations=0):
        check(with_else, X, graphs=2, breaks=1)
    with framejit.config.patch(branch_operations=2):
        check(with_else, X, graphs=2, breaks=1)


def test_it_is_told():
    framejit.reset()  # other tests' entries for this function
    with recorded() as log:
        framejit.optimize(with_else)(X)
    [event] = of_kind(log, "selected")
    # from 3.12 on CPython's compiler gives each branch a copy of what follows, if that is short and returns
    assert (event.function, event.operations) == ("with_else", 3 if sys.version_info < (3, 12) else 5)
    assert event.line == with_else.__code__.co_firstlineno + 2
    assert "both branches" in str(framejit.explain(with_else)(X))


# ---- what could be told from the program ----------------------------------------------------------------


def an_argument(x):
    if x.sum() > 2:
        x = x + 1
    return x


def an_input_that_is_stored(x, held):
    y = x if x.sum() > 2 else x + 1
    held.append(y)
    return y * 2


def held_elsewhere(x):
    y = x * 2
    z = [y]
    if x.sum() > 2:
        y = y + 1
    return y, z


def views(x):
    y = x * 2
    z = y[:2]
    if x.sum() > 2:
        z = z + 1
    return y, z


def two_names(x):
    if x.sum() > 2:
        y = x + 1
        z = y
    else:
        y = x - 1
        z = x - 1
    return y, z


def a_view_and_its_base(x):
    if x.sum() > 2:
        y = x + 1
        z = y[:]
    else:
        y = x + 2
        z = y[:]
    return y, z


def written_afterwards(x):
    y = x if x.sum() > 2 else x + 1
    y.add_(1)
    return y, x


def input_written_afterwards(x):
    y = x if x.sum() > 2 else x + 1
    x.add_(1)
    return y * 2


def in_place(x):
    y = x * 2
    if x.sum() > 2:
        y += 1
    return y


def identity(x):
    y = x * 2
    z = y if x.sum() > 2 else y + 1
    return z is y, y + 1


def appends(x):
    log = []
    if x.sum() > 2:
        log.append(1)
    return x + len(log)


def other_shapes(x):
    return x + 1 if x.sum() > 2 else x[:2] + 1


def other_dtypes(x):
    return x + 1 if x.sum() > 2 else x.double()


def other_strides(x):
    y = x.reshape(2, 2)
    return y + 1 if x.sum() > 2 else y.T + 1


def draws(x):
    return x + torch.rand(4) if x.sum() > 2 else x + torch.randn(4)


def may_raise_in_a_branch(x):
    i = x.long()
    return i // i if (x > 0).all() else i + 1


def raises_in_a_branch(x):
    return x + 1 if x.sum() > 2 else x + torch.ones(3)


def missing_name(x):
    return x + 1 if x.sum() > 2 else x + nowhere  # noqa: F821


def unbound(x):
    if x.sum() > 2:
        y = x + 1
    return y


def in_try(x):
    try:
        y = x + 1 if x.sum() > 2 else x + torch.ones(3)
    except RuntimeError:
        y = x
    return y * 2


def large(x):
    return x @ x if x.sum() > 2 else x.sum()


def none_or_tensor(x):
    return None if x.sum() > 2 else x + 1


def looped(x):
    while x.sum() < 20:
        x = x + 3
    return x * 2


def effect_in_a_call(x, log):
    def add(y):
        log.append("added")
        return y + 1

    return add(x) if x.sum() > 2 else x - 1


def attribute(x, holder):
    holder["y"] = x * 2
    y = holder["y"]
    if x.sum() > 2:
        y = y + 1
    return y


def is_a_key(x):
    y = x if x.sum() > 2 else x + 1
    return {x: 1, y: 2}[x], y in {x: 1}, y + 1


def hung_afterwards(x):
    y = x if x.sum() > 2 else x + 1
    y.mark = 1
    return hasattr(x, "mark"), y + 1


def hung_before(x):
    x.mark = 1
    y = x if x.sum() > 2 else x + 1
    return hasattr(y, "mark"), y + 1


def texts(x):
    text = "few"
    if x.sum() > 2:
        text = f"many: {x.shape[0]}"
    return text, x + 1


def text_of_data(x):
    text = ""
    if x.sum() > 2:
        text = f"{x.sum()}"
    return text, x + 1


BREAKS = [
    an_argument, held_elsewhere, views, two_names, a_view_and_its_base, written_afterwards, input_written_afterwards,
    in_place, identity, appends, other_shapes, other_dtypes, other_strides, may_raise_in_a_branch, in_try, large,
    none_or_tensor, looped, is_a_key, hung_afterwards, hung_before,
]


@pytest.mark.parametrize("program", BREAKS)
def test_what_could_be_told_breaks_the_graph(program):
    fast = framejit.optimize(program, backend=CountingBackend())
    for x in (X, *OTHERS[:-1]):
        if program is looped and not x.sum() < 1000:
            continue
        results = []
        for run in (program, fast):
            given = x.clone()
            found = run(given)
            parts = [p for p in (found if isinstance(found, tuple) else (found,))]
            flat = [q for p in parts for q in (p if isinstance(p, list) else [p])]
            shared = [
                isinstance(p, torch.Tensor) and isinstance(q, torch.Tensor) and p.data_ptr() == q.data_ptr()
                for p in (given, *flat) for q in flat
            ]
            strides = [p.stride() for p in flat if isinstance(p, torch.Tensor)]
            results.append((given, flat, shared, strides, [p is given for p in flat]))
        torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("program", [texts, text_of_data])
def test_texts_of_a_branch(program):
    fast = framejit.optimize(program)
    for x in (X, *OTHERS):
        (text, found), (expected, value) = fast(x), program(x)
        assert text == expected
        torch.testing.assert_close(found, value, equal_nan=True)


@pytest.mark.parametrize("program", [raises_in_a_branch, missing_name, unbound])
def test_exceptions(program):
    pair = Pair(lambda: program)
    for x in (X, *OTHERS, X):
        pair.call(x)


@pytest.mark.parametrize("program", [effect_in_a_call, an_input_that_is_stored])
def test_effects(program):
    pair = Pair(lambda: program)
    for x in (X, *OTHERS[:-1], X):
        pair.call(x, [])


def test_a_dict_that_holds_it():
    pair = Pair(lambda: attribute)
    for x in (X, *OTHERS[:-1], X):
        pair.call(x, {})


def asks_for_a_mark(x):
    y = x if x.sum() > 2 else x + 1
    return getattr(y, "mark", None), isinstance(y, torch.nn.Parameter), y + 1


def test_attributes_of_what_may_be_an_argument():
    pair = Pair(lambda: asks_for_a_mark)
    pair.call(X)
    pair.expect(graphs=1, breaks=0)
    marked = X + 3
    marked.mark = "a"
    for x in (marked, X + 3, X):
        pair.call(x)


def leaf_or_not(x):
    y = x if x.sum() > 2 else x * 2
    return y.is_leaf, y.grad_fn is None, y * 1


def test_history_of_what_may_be_an_argument():
    pair = Pair(lambda: leaf_or_not)
    for x in (X, X + 3, X):
        pair.call(x.clone().requires_grad_())


def test_random_numbers():
    fast = framejit.optimize(draws)
    for x in (X, *OTHERS):
        results = []
        for run in (draws, fast):
            torch.manual_seed(3)
            results.append((run(x), torch.rand(1)))
        torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)


# ---- gradients ----------------------------------------------------------------------------------------------


def clipped_loss(x, w, v):
    loss = (x * w).sum()
    if loss > 5:
        loss = loss * 0.5
    return loss


def other_leaf(x, w, v):
    y = (x * w).sum()
    return y * 2 if y > 5 else (x * v).sum()


def not_a_number_in_the_other(x, w, v):
    y = (x * w).sum()
    return y.sqrt() if y > 0 else y * 2


def linear(x, w, v):
    y = x * w
    if y.sum() > 5:
        z = y * 2 + 1
    else:
        z = y - 3
    return (z * z).sum()


def without_gradients_in_one(x, w, v):
    y = (x * w).sum()
    return y * 2 if y > 5 else y.detach() * 2


@pytest.mark.parametrize(
    "program, graphs", [
        (clipped_loss, 1), (linear, 1), (other_leaf, 2), (not_a_number_in_the_other, 2), (without_gradients_in_one, 2),
    ],
)
@pytest.mark.parametrize("backend", ["fuse", "eager"])
def test_gradients(program, graphs, backend):
    counting = CountingBackend()
    fast = framejit.optimize(program, backend=backend)
    counted = framejit.optimize(program, backend=counting)
    for x in (X, *OTHERS[:-1]):
        results = []
        for run in (program, fast, counted):
            w, v = torch.arange(4.0).requires_grad_(), torch.ones(4).requires_grad_()
            loss = run(x, w, v)
            if loss.requires_grad:
                loss.backward()
            results.append((loss.detach(), loss.requires_grad, w.grad, v.grad))
        for found in results[1:]:
            assert [part is None for part in found] == [part is None for part in results[0]]
            torch.testing.assert_close(
                [p for p in found if p is not None], [p for p in results[0] if p is not None], rtol=0, atol=0,
                equal_nan=True,
            )
    assert len(counting.graphs) == 1 if graphs == 1 else len(counting.graphs) > 1
