"""Function modes that captured code enters: the program's `__torch_function__` is inlined where torch would call it."""
import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import framejit

from support import ANY, Pair, check, check_state

X = torch.arange(1.0, 5.0).reshape(2, 2)


class Subtracts(TorchFunctionMode):
    """Does a subtraction in place of torch.add."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (torch.sub if func is torch.add else func)(*args, **(kwargs or {}))


class Counts(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append((getattr(func, "__name__", str(func)), len(types), len(args), sorted(kwargs or {})))
        return func(*args, **(kwargs or {}))


class Doubles(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * 2 if isinstance(found, torch.Tensor) else found


class Same(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        found = super().__torch_function__(func, types, args, kwargs or {})
        return found + 100 if func is torch.add else found


def replaced(x):
    with Subtracts():
        y = torch.add(x, 1)
    return y, torch.add(x, 1)


def every_kind(x):
    with Counts() as mode:
        y = (x * 2).sum(0, keepdim=True) + torch.zeros(2) - x.T
        y[0] = 3
        y += 1
        z = F.relu(y) + torch.nn.functional.softmax(x, dim=-1)
        w = x.shape[0], x.dtype, x.is_cuda, len(x), -x, x == 1, x.new_zeros(2), torch.stack([x, x]), abs(x), x[0]
    return y, z, w, mode.seen


def nested(x):
    with Doubles(), Counts() as inner:
        y = torch.add(x, 1)
        with Subtracts():
            z = torch.add(x, y)
    return y, z, inner.seen




def turned_off(x):
    with Counts() as mode:
        with torch._C.DisableTorchFunction():
            y = x + 1
        with torch._C.DisableTorchFunctionSubclass():
            z = x + 2
        return y, z, x + 3, mode.seen


def asks(x):
    with Counts():
        n = torch._C._len_torch_function_stack()
        top = type(torch._C._get_function_stack_at(n - 1)).__name__
        return x + n, top, torch.overrides.has_torch_function((x,)), torch._C._is_torch_function_mode_enabled()


def other_results(x):
    class_ = Wrong()
    with class_:
        found = torch.add(x, 1), x.sum()
    return found, x + 1


class Wrong(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func.__name__, len(args)


def raised_inside(x):
    mode = Counts()
    try:
        with mode:
            x = x + 1
            raise KeyError
    except KeyError:
        x = x * 2
    return x, mode.seen


@pytest.mark.parametrize("fn", [replaced, every_kind, nested, turned_off, asks, other_results, raised_inside])
def test_entered_inside(fn):
    check(fn, X, fullgraph=True)


def test_a_mode_from_outside():
    def make():
        mode = Counts()

        def fn(x, k):
            with mode:
                return torch.add(x, k) * 2

        return fn, lambda: list(mode.seen)

    pair = Pair(make, fullgraph=True)
    for k in (1, 1, 2, 3.5):
        pair.call(X, k)


def test_what_the_mode_keeps_is_noticed():
    def make():
        class Scales(TorchFunctionMode):
            factor = 2

            def __torch_function__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {})) * self.factor

        mode = Scales()

        def fn(x, k):
            mode.factor = k
            with mode:
                return torch.add(x, 1)

        return fn, lambda: mode.factor

    pair = Pair(make)
    for k in (1, 2, 2):
        pair.call(X, k)


def test_with_tensors_of_a_class():
    def fn(x):
        x = x.as_subclass(Same)
        with Counts() as mode:
            y = torch.add(x, 1)
        return y.as_subclass(torch.Tensor), mode.seen

    check(fn, X, breaks=None, graphs=ANY)


def test_a_break_inside():
    def fn(x):
        with Counts() as mode:
            y = x + 1
            if y.sum() > 0:
                y = torch.add(y, 2)
        return y * 2, mode.seen

    check(fn, X, graphs=None, breaks=None)


def raises(x):
    with Raises():
        return x + 1


class Raises(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise ValueError(func.__name__)


class Refuses(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return NotImplemented


def refuses(x):
    with Refuses():
        return x + 1


@pytest.mark.parametrize("fn, error", [(raises, ValueError), (refuses, TypeError)])
def test_modes_that_raise(fn, error):
    check(fn, X, raises=error)


def test_a_mode_that_stays():
    def make():
        mode = Counts()

        def fn(x):
            mode.__enter__()
            return x + 1

        return fn, lambda: list(mode.seen)

    fn, state = make()
    compiled = framejit.optimize(fn)
    try:
        assert torch.equal(compiled(X), X + 1)
        assert torch._C._len_torch_function_stack() == 1
    finally:
        while torch._C._len_torch_function_stack():
            torch._C._pop_torch_function_stack()


def test_state_and_settings_inside():
    def fn(x):
        with Counts() as mode:
            with torch.no_grad():
                y = x * 2
            x.tag = 3
        return y, mode.seen, x.tag

    check_state(lambda: fn, (X,), (X,), graphs=None, breaks=None)


def test_objects_with_the_protocol():
    class Wrapped:
        def __init__(self, tensor, seen):
            self.tensor, self.seen = tensor, seen

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen = [func.__name__, *(name for a in args if isinstance(a, Wrapped) for name in a.seen)]
            plain = [a.tensor if isinstance(a, Wrapped) else a for a in args]
            return Wrapped(func(*plain, **(kwargs or {})), seen)

    def fn(x, k):
        w = Wrapped(x, [])
        y = torch.add(torch.mul(w, k), 1)
        z = torch.stack([torch.add(w, 1).tensor, y.tensor])
        return y.tensor, y.seen, z, torch.overrides.has_torch_function((w,))

    pair = Pair(lambda: fn, fullgraph=True)
    for k in (2, 3, 4):
        pair.call(X, k)
    compiled = framejit.optimize(lambda w: torch.mul(w, 2).tensor, backend="eager", fullgraph=True)
    for n in (1, 2):
        assert torch.equal(compiled(Wrapped(X + n, [])), (X + n) * 2)


# ---- torch.device as a context manager ----------------------------------------------------------------


def made_on_the_device(x, device):
    with torch.device(device) as entered:
        y, z = torch.ones(2), torch.arange(3)
        w = torch.zeros(2, device="cpu")
    return x + 1, y, z, w, entered, torch.ones(1)


def devices_nested(x, device):
    with torch.device("cpu"):
        y = torch.zeros(2)
        with torch.device(device):
            z = torch.zeros(2)
        w = torch.zeros(2)
    return x + 1, y, z, w


def device_on_a_stack(x, device):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.device(device))
        y = torch.zeros(2)
    return x + 1, y, torch.ones(1)


def raised_inside_of_a_device(x, device):
    try:
        with torch.device(device):
            y = torch.zeros(2)
            raise KeyError
    except KeyError:
        return x + 1, y, torch.ones(1)


@pytest.mark.parametrize(
    "fn", [made_on_the_device, devices_nested, device_on_a_stack, raised_inside_of_a_device]
)
def test_devices_entered_inside(fn):
    pair = Pair(lambda: (fn, torch._C._len_torch_function_stack), fullgraph=True)
    for device in ("cpu", "meta", "cpu", torch.device("cpu")):
        pair.call(X, device)


def test_a_graph_that_breaks_inside_of_a_device():
    def fn(x, device):
        with torch.device(device):
            y = torch.zeros(2)
            print("inside")
            z = torch.ones(2)
        return x + 1, y, z, torch.ones(1)

    pair = Pair(lambda: (fn, torch._C._len_torch_function_stack))
    for device in ("cpu", "meta", "cpu", torch.device("cpu")):
        pair.call(X, device)


def test_a_device_entered_inside_of_another():
    with torch.device("meta"):
        check(lambda x: made_on_the_device(x, "cpu"), torch.ones(2, device="cpu"), fullgraph=True)
