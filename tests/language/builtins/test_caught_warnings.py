"""`with warnings.catch_warnings():` keeps what it keeps in plain Python, and is in the graph where nothing warns."""
import warnings

import pytest
import torch

import framejit

from support import assert_same, of_kind, recorded

X = torch.ones(3)


def outcome(fn, *args):
    """What a call gives, what was warned of, and the filters that it leaves."""
    fn.__globals__.pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        try:
            result = fn(*args)
        except Exception as e:
            result = type(e), str(e)
        return result, [(str(w.message), w.category) for w in seen], list(warnings.filters)


def compared(fn, *args, breaks=0):
    expected = [outcome(fn, *args) for _ in range(2)]
    fast = framejit.optimize(fn, backend="eager")
    with recorded() as log:
        found = [outcome(fast, *args) for _ in range(2)]
    assert_same([result for result, *_ in expected], [result for result, *_ in found])
    assert [rest for _, *rest in found] == [rest for _, *rest in expected]
    if breaks is not None:
        assert len(of_kind(log, "graph_break")) == breaks


def test_filters_that_are_set_inside():
    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = x + 1
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "a text", UserWarning, append=True)
                warnings.simplefilter(action="once", category=DeprecationWarning)
                warnings.resetwarnings()
                y = y * 2
        return y.sin()

    compared(fn, X)
    assert framejit.optimize(fn, backend="eager", fullgraph=True)(X) is not None


def test_a_filter_that_the_block_begins_with():
    def fn(x):
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return x + 1

    compared(fn, X)


@pytest.mark.parametrize("action", ["ignore", "error", "always"])
def test_what_warns_inside(action):
    def by_python(x):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            warnings.warn("said inside", stacklevel=1)
            y = x + 1
        return y * 2

    def by_torch(x):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            y = x[:1].std()  # of one number
        return y * 2

    def by_a_library(x):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            y = torch.nn.functional.sigmoid(x).to(torch.complex64).to(torch.float32)
        return y * 2

    for fn in (by_python, by_torch, by_a_library):
        compared(fn, X, breaks=None)


def test_what_was_shown_once_is_shown_again():
    def fn(x):
        warnings.warn("said once", stacklevel=1)
        warnings.warn("said once", stacklevel=1)
        with warnings.catch_warnings():
            y = x + 1
        for _ in range(2):
            warnings.warn("said in a loop", stacklevel=1)
            with warnings.catch_warnings():
                y = y * 2
        return y

    compared(fn, X, breaks=None)


def test_an_error_inside_of_the_block():
    def fn(x):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                y = x + 1
                raise ValueError("inside")
        except ValueError:
            return y * 2

    def that_leaves(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return x + [][0]

    compared(fn, X)
    compared(that_leaves, X, breaks=None)


def test_a_break_inside_of_the_block():
    def fn(x, wanted):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = x + 1
            if y.sum() > wanted:
                y = y * 2
            before = len(warnings.filters)
        return y * 3, before == len(warnings.filters)

    for wanted in (0, 100):
        compared(fn, X, wanted, breaks=None)


def test_blocks_that_are_not_left():
    def entered(x):
        block = warnings.catch_warnings()
        block.__enter__()
        warnings.simplefilter("ignore")
        return x + 1

    def entered_twice(x):
        block = warnings.catch_warnings()
        with block, block:
            return x + 1

    def never(x):
        return x + 1, type(warnings.catch_warnings()).__name__

    for fn in (entered, entered_twice, never):
        compared(fn, X, breaks=None)


@pytest.mark.parametrize("ask", [
    lambda: warnings.simplefilter("ignored"),
    lambda: warnings.simplefilter("ignore", int),
    lambda: warnings.filterwarnings("ignore", "("),
    lambda: warnings.filterwarnings("ignore", lineno=-1),
    lambda: warnings.filterwarnings(),
    lambda: warnings.catch_warnings(True),
])
def test_what_is_refused(ask):
    def fn(x):
        with warnings.catch_warnings():
            ask()
            y = x + 1
        return y

    compared(fn, X, breaks=None)


def test_filters_outside_of_blocks_last():
    def fn(x):
        warnings.filterwarnings("ignore", "never said")
        return x + 1

    compared(fn, X, breaks=None)


def test_what_shows_warnings_is_set_inside():
    said = []

    def fn(x):
        with warnings.catch_warnings():
            warnings.showwarning = lambda *args: said.append(args[0])
            y = x + 1
        return y * 2

    compared(fn, X, breaks=None)


def test_what_a_block_records():
    def fn(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = x + 1
            warnings.warn("said inside", stacklevel=1)
        return y * 2, [str(warning.message) for warning in seen]

    compared(fn, X, breaks=None)


@pytest.mark.parametrize(
    "operate",
    [
        lambda x: torch.nn.functional.mse_loss(x, x.reshape(3, 1)),
        lambda x: x.std(correction=5),
        lambda x: x[torch.tensor([1, 0, 1], dtype=torch.uint8)],
        lambda x: (x + 1j).to(torch.float32),
        lambda x: x * 2,
    ],
)
@pytest.mark.parametrize("filtered", [True, False])
def test_what_torch_warns_of_is_recorded_in_its_order(operate, filtered):
    def fn(x):
        with warnings.catch_warnings(record=True) as seen:
            if filtered:
                warnings.simplefilter("always")
            before = len(seen)
            y = operate(x)
            return y, before, [str(warning.message) for warning in seen]

    compared(fn, X, breaks=None)


def test_layers_with_blocks():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                x = x + self.linear(x).relu()
            return x

    model = torch.nn.Sequential(*(Layer() for _ in range(4)))
    compared(lambda x: model(x), X)
