"""`with` statements: user classes, contextlib, exceptions inside, several managers, and torch's own modes."""
import contextlib

import pytest
import torch

from support import check

X = torch.tensor([1.0, 2.0])


class Log:
    def __init__(self, swallow=False):
        self.log, self.swallow = [], swallow

    def __enter__(self):
        self.log.append("enter")
        return 5

    def __exit__(self, kind, value, tb):
        self.log.append("exit" if kind is None else kind.__name__)
        return self.swallow


def test_class_manager():
    def fn(x, m):
        with m as k:
            y = x * k
        return y + 1

    check(fn, X, Log())


def test_return_break_and_continue_inside():
    def fn(x, m):
        for i in range(4):
            with m:
                if i == 0:
                    continue
                if i == 2:
                    break
                x = x + i
        with m:
            return x * 2

    check(fn, X, Log())


def test_exception_swallowed_and_not():
    def fn(x, m):
        with m:
            raise ValueError("inside")
        return x + 1

    check(fn, X, Log(swallow=True))
    check(fn, X, Log(), raises=ValueError, calls=1)


def test_several_managers_unwind_in_order():
    def fn(x, a, b):
        with a as k, b as j:
            a.log.append("body")
            return x + k + j

    m = Log()
    check(fn, X, m, m)


def test_contextlib_contextmanager():
    @contextlib.contextmanager
    def scaled(log, k):
        log.append("in")
        try:
            yield k
        finally:
            log.append("out")

    def fn(x, log):
        with scaled(log, 3) as k:
            x = x * k
        return x

    check(fn, X, [])


def test_contextmanager_with_exception():
    @contextlib.contextmanager
    def ignoring():
        try:
            yield
        except KeyError:
            pass

    def fn(x):
        with ignoring():
            x = x + 1
            {}["missing"]  # noqa: B018
        return x

    check(fn, X)


def test_nullcontext_suppress_closing_and_exitstack():
    def fn(x, log):
        with contextlib.nullcontext(2) as k, contextlib.suppress(ZeroDivisionError):
            x = x * k
            1 / 0  # noqa: B018
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, "callback")
            stack.enter_context(contextlib.nullcontext())
            x = x + 1
        return x

    check(fn, X, [], graphs=range(1, 4), breaks=range(0, 4))


def test_manager_as_decorator():
    @torch.no_grad()
    def frozen(x):
        return x * 2

    check(lambda x: (frozen(x), x * 3), X.clone().requires_grad_())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode], ids=lambda m: m.__name__)
def test_grad_modes(mode):
    def fn(w, x):
        with mode():
            y = w * x
        return y, (w * 1 + x).requires_grad, torch.is_grad_enabled()

    check(fn, X.clone().requires_grad_(), X)


def test_set_grad_enabled_as_a_context_and_as_a_call():
    def fn(w, flag):
        with torch.set_grad_enabled(flag):
            y = w * 2
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        z = w * 3
        torch.set_grad_enabled(before)
        return y, z, w * 4

    check(fn, X.clone().requires_grad_(), True, changed=[(X.clone().requires_grad_(), False)])


def test_grad_mode_changed_and_left_changed():
    def fn(x):
        y = x * 2
        torch._C._set_grad_enabled(False)
        return y, x * 3

    check(fn, X.clone().requires_grad_(), graphs=range(1, 3), breaks=range(0, 2))


def test_nested_grad_modes():
    def fn(w):
        with torch.no_grad():
            a = w * 2
            with torch.enable_grad():
                b = w * 3
            c = w * 4
        return a, b, c

    check(fn, X.clone().requires_grad_())


def test_autocast_cpu():
    def fn(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            c = a @ b
        return c, a @ b, torch.is_autocast_enabled("cpu")

    check(fn, torch.randn(4, 4), torch.randn(4, 4))


def test_called_under_autocast():
    fn = lambda a, b: a @ b  # noqa: E731
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(fn, torch.randn(4, 4), torch.randn(4, 4))


def test_manager_made_outside_used_inside():
    def fn(x, guard):
        with guard:
            return x * 2

    check(fn, X.clone().requires_grad_(), torch.no_grad())


def test_exception_restores_grad_mode():
    def fn(w):
        try:
            with torch.no_grad():
                y = w * 2
                raise ValueError
        except ValueError:
            return y, w * 3

    check(fn, X.clone().requires_grad_())
