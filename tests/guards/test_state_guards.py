"""Guards on the thread's torch state: grad mode, inference mode, autocast, default dtype and device, function modes."""
import io

import torch
from torch.overrides import TorchFunctionMode

from support import Pair

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def pair(fn=lambda x: x @ x + 1) -> Pair:
    p = Pair(lambda: fn)
    p.call(X)
    return p


def test_grad_mode():
    w = X.clone().requires_grad_()
    p = Pair(lambda: lambda w: w * 2)
    p.call(w)
    with torch.no_grad():
        p.call(w, captures=True)
        p.call(w, captures=False)
    p.call(w, captures=False)


def test_inference_mode():
    p = pair()
    with torch.inference_mode():
        assert p.compiled(X).is_inference()
    p.call(X, captures=False)


def test_autocast_enabled_and_its_dtype():
    p = pair()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert p.call(X, captures=True).dtype is torch.bfloat16
    with torch.autocast("cpu", dtype=torch.half):
        assert p.call(X, captures=True).dtype is torch.half
    with torch.autocast("cpu", enabled=False):
        p.call(X)
    p.call(X, captures=False)


def test_default_dtype():
    p = Pair(lambda: lambda x: x + torch.ones(2))
    p.call(X)
    torch.set_default_dtype(torch.float64)
    try:
        assert p.call(X, captures=True).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    p.call(X, captures=False)


def test_default_device():
    p = Pair(lambda: lambda x: torch.ones(2))
    p.call(X)
    with torch.device("meta"):
        assert p.compiled(X).device.type == "meta"
    p.call(X, captures=False)


def test_autocast_under_a_default_device_is_in_one_graph():
    """Its context manager looks for modes of torch.export, and finds the default device's."""
    modes = []

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = (x @ x).relu()
        modes.append(torch.overrides._get_current_function_mode_stack())
        return y * 2

    for _ in range(2):
        with torch.device("cpu"):
            first = torch._C._get_function_stack_at(0)
            p = Pair(lambda: f)
            assert p.call(X, captures=True).dtype is torch.bfloat16
        with torch.device("cpu"):
            second = torch._C._get_function_stack_at(0)
            p.call(X, captures=False)
        assert [list(map(id, stack)) for stack in modes] == [[id(first)]] * 2 + [[id(second)]] * 2
        assert len(p.backend.graphs) == 1
        modes.clear()


def test_torch_function_mode():
    calls = []

    class Spy(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **(kwargs or {}))

    p = pair()
    with Spy():
        out = p.compiled(X)
    torch.testing.assert_close(out, X @ X + 1)
    assert calls, "the mode did not see the operations"


def test_torch_dispatch_mode():
    from support import AtenCounter

    p = pair()
    with AtenCounter() as counter:
        out = p.compiled(X)
    torch.testing.assert_close(out, X @ X + 1)
    assert counter.count == 2


def test_vmap_and_grad_transforms_around_a_compiled_function():
    p = Pair(lambda: lambda v: (v * v).sum())
    p.call(X[0])
    torch.testing.assert_close(torch.vmap(p.compiled)(X), (X * X).sum(1))
    torch.testing.assert_close(torch.func.grad(p.compiled)(X[0]), 2 * X[0])


def test_deterministic_flag_read_by_the_program():
    p = Pair(lambda: lambda x: x + 1 if torch.are_deterministic_algorithms_enabled() else x - 1)
    p.call(X)
    torch.use_deterministic_algorithms(True)
    try:
        p.call(X)
    finally:
        torch.use_deterministic_algorithms(False)


def test_state_of_another_thread_does_not_matter():
    import threading

    p = pair()
    seen = []

    def worker():
        with torch.no_grad():
            seen.append(p.compiled(X))

    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()
    torch.testing.assert_close(seen[0], X @ X + 1)
    p.call(X, captures=False)


def test_what_python_remembers_in_the_class_of_tensors_is_no_method():
    """Pickling a tensor for the first time leaves a name in `torch.Tensor`."""

    def fn(x):
        return x.sin() + 1

    if "__slotnames__" in vars(torch.Tensor):
        del torch.Tensor.__slotnames__
    pair = Pair(lambda: fn)
    pair.call(torch.ones(3))
    torch.save(torch.ones(1), io.BytesIO())
    assert "__slotnames__" in vars(torch.Tensor)
    pair.call(torch.ones(3), captures=False)
    torch.Tensor.__slotnames__ = []
    pair.call(torch.ones(3), captures=False)
    torch.Tensor.made_up = 1
    try:
        pair.call(torch.ones(3), captures=True)
    finally:
        del torch.Tensor.made_up, torch.Tensor.__slotnames__
    pair.call(torch.ones(3), captures=False)
