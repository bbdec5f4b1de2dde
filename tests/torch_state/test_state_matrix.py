"""Each state of torch that changes what operations do, set around a call: at capture, at a later call, and taken away
again."""

import contextlib
import copy
import weakref

import pytest
import torch
from torch import nn

import framejit

# a state that what compiles stumbles over is a warning, and plain operations
pytestmark = pytest.mark.filterwarnings("error::framejit.FramejitWarning")


@contextlib.contextmanager
def setting(setter, value, getter):
    before = getter()
    setter(value)
    try:
        yield
    finally:
        setter(before)


def deterministic():
    return setting(torch.use_deterministic_algorithms, True, torch.are_deterministic_algorithms_enabled)


@contextlib.contextmanager
def flags(owner, **values):
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


STATES = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "enable_grad": torch.enable_grad,
    "default dtype": lambda: setting(torch.set_default_dtype, torch.float64, torch.get_default_dtype),
    "half as default dtype": lambda: setting(torch.set_default_dtype, torch.bfloat16, torch.get_default_dtype),
    "device context": lambda: torch.device("meta"),
    # what get_default_device answers would be set as a mode
    "default device": lambda: setting(torch.set_default_device, "meta", lambda: None),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to half": lambda: torch.autocast("cpu", dtype=torch.half),
    "autocast without a cache": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "deterministic": deterministic,
    "one thread": lambda: setting(torch.set_num_threads, 1, torch.get_num_threads),
    "matmul precision": lambda: setting(
        torch.set_float32_matmul_precision, "medium", torch.get_float32_matmul_precision
    ),
    "no mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "no cudnn": lambda: torch.backends.cudnn.flags(enabled=False),
    "attention by mathematics": lambda: nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH),
    "saved tensors on disk": lambda: torch.autograd.graph.save_on_cpu(),
    "no saved tensor hooks": lambda: torch.autograd.graph.disable_saved_tensors_hooks("none"),
    "no multithreading": lambda: torch.autograd.set_multithreading_enabled(False),
    "no torch function": torch._C.DisableTorchFunction,
    "no torch function of subclasses": torch._C.DisableTorchFunctionSubclass,
    "profiler": lambda: torch.autograd.profiler.profile(use_kineto=False),
    "names of ranges": lambda: torch.autograd.profiler.record_function("name"),
}


def arithmetic(x, w):
    return x @ w + 1, x.sin().sum() + torch.ones(3).sum().to(x.device), x / 2


def factories(x, w):
    return torch.ones(2) + 0, torch.arange(3) / 2, torch.tensor([1.0, 2.0]), torch.full((2,), 0.5), x.new_ones(2)


def uninitialised(x, w):
    y = torch.empty(3, 3, device=x.device, dtype=x.dtype)
    y.copy_(x)
    return y * 2


def layers(x, w):
    return (
        nn.functional.layer_norm(x, (3,)), nn.functional.linear(x, w).relu(), torch.softmax(x, -1),
        nn.functional.scaled_dot_product_attention(x, w, x),
    )


def questions(x, w):
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.backends.mkldnn.enabled,
        torch.backends.cudnn.enabled,
        torch.backends.cuda.matmul.allow_tf32,
        torch.utils.deterministic.fill_uninitialized_memory,
        x + 1,
    )


def scattered(x, w):
    index = torch.zeros(3, dtype=torch.long, device=x.device)
    return x.clone().index_add_(0, index, x), torch.zeros(3, 3, device=x.device, dtype=x.dtype).index_put(
        (index, index), x[0], accumulate=True
    )


FUNCTIONS = [arithmetic, factories, uninitialised, layers, questions, scattered]


def described(value):
    if not isinstance(value, torch.Tensor):
        return value
    numbers = None if value.device.type == "meta" else value.detach().double().tolist()
    return numbers, value.dtype, value.device, value.shape, value.stride(), value.requires_grad, value.is_inference()


def outcome(function, state, weights):
    x, w = torch.arange(9.0).reshape(3, 3) / 7, (torch.arange(9.0).reshape(3, 3) / 5).requires_grad_(weights)
    with state():
        try:
            made = function(x, w)
        except RuntimeError as e:
            return str(e)[:60]
    found = [described(v) for v in made] if isinstance(made, tuple) else [described(made)]
    if isinstance(made, tuple) and isinstance(made[0], torch.Tensor) and made[0].grad_fn is not None:
        made[0].sum().backward()
    return found, None if w.grad is None else w.grad.tolist()


def close(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == pytest.approx(b, rel=1e-2 if a else 0, abs=1e-6)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    return a == b


@pytest.mark.parametrize("weights", [False, True], ids=["plain", "gradients"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("state", STATES)
def test_as_in_plain_python(state, function, weights):
    inside, outside = STATES[state], contextlib.nullcontext
    expected = {where: outcome(function, where, weights) for where in (inside, outside)}
    for order in ((inside, inside, outside, inside), (outside, inside, inside, outside)):
        compiled = framejit.optimize(function)
        for where in order:
            got = outcome(compiled, where, weights)
            assert close(got, expected[where]), ("inside" if where is inside else "outside", got, expected[where])


# ---- what hangs on tensors ------------------------------------------------------------------------


def hooks(f):
    seen = []
    x = torch.ones(3, requires_grad=True)
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("after", t.grad.tolist())))
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    z = f(y)
    z.register_hook(lambda g: seen.append(("z", g.tolist())))
    z.grad_fn.register_hook(lambda inputs, outputs: seen.append("node"))
    z.sum().backward()
    return seen, x.grad.tolist(), y.grad.tolist()


def attributes(f):
    x = torch.ones(3, requires_grad=True)
    results = []
    for _ in range(2):
        results.append(f(x).sum().item())
        x.data = torch.arange(3.0)
        results.append(f(x).tolist())
        x.grad = torch.full((3,), 2.0)
        results.append(f(x).tolist())
        x.requires_grad_(False)
        results.append((f(x).tolist(), f(x).requires_grad))
        x.requires_grad_()
    return results


def swapped(f):
    a, b = torch.ones(3), torch.arange(4.0)
    results = [f(a).tolist(), f(b).tolist()]
    torch.utils.swap_tensors(a, b)
    return results + [f(a).tolist(), f(b).tolist()]


def lifetimes(f):
    x = torch.ones(3)
    ref = weakref.ref(x)
    f(x)
    made = f(x)
    other = weakref.ref(made)
    del x, made
    return ref() is None, other() is None


def copies(f):
    x = torch.ones(3, requires_grad=True)
    y = copy.deepcopy(x)
    f(x).sum().backward()
    f(y).sum().backward()
    z = copy.deepcopy(x)
    return f(z).tolist(), z.grad.tolist(), y.grad.tolist()


@pytest.mark.parametrize("around", [hooks, attributes, swapped, lifetimes, copies])
@pytest.mark.parametrize("function", [lambda x: x.sin() * x + 1, lambda x: (x * x).cumsum(0)])
def test_what_hangs_on_tensors(around, function):
    compiled = framejit.optimize(function)
    for _ in range(2):
        assert close(around(compiled), around(function))


def inside_hook(x, seen):
    x.register_hook(lambda g: seen.append(g.tolist()))
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sin()


def inside_grad(x, seen):
    seen.append(None if x.grad is None else x.grad.tolist())
    x.grad = torch.ones(3)
    return x * 2


def inside_data(x, seen):
    x.data = torch.arange(3.0)
    return x * 2


def inside_retain(x, seen):
    y = x * 2
    y.retain_grad()
    seen.append(y.retains_grad)
    return y


def inside_backward(x, seen):
    y = x * 2
    y.sum().backward()
    seen.append(x.grad.tolist())
    return x * 3


def inside_requires(x, seen):
    y = (x.detach() * 2).requires_grad_()
    z = y * 3
    z.sum().backward()
    seen.append(y.grad.tolist())
    return x * 3


def inside_dtype(x, seen):
    with setting(torch.set_default_dtype, torch.float64, torch.get_default_dtype):
        seen.append((x + torch.ones(3)).dtype)
    return x + torch.ones(3)


def inside_copy(x, seen):
    y = copy.deepcopy(x)
    seen.append(y is x)
    return y * 2 + x


@pytest.mark.parametrize(
    "function",
    [inside_hook, inside_grad, inside_data, inside_retain, inside_backward, inside_requires, inside_dtype, inside_copy],
    ids=lambda f: f.__name__
)
def test_inside_captured_code(function):
    def outcome(f):
        seen, x = [], torch.ones(3, requires_grad=True)
        made = [f(x, seen)]
        made.append(f(x, seen))
        made[1].sum().backward()
        return [t.tolist() for t in made], seen, x.tolist(), x.grad.tolist(), torch.get_default_dtype()

    compiled = framejit.optimize(function)
    for _ in range(2):
        assert close(outcome(compiled), outcome(function))
