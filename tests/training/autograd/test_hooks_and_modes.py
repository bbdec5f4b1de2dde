"""More of what autograd promises: hooks of modules, anomaly mode, forward-mode differentiation, transforms,
checkpoints, functions with a backward of their own, and scaled steps. Each against eager, with other state in later
calls."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

import framejit

from support import seed
from twins import Twins, leaf, same


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)

    def forward(self, x):
        return self.down(F.gelu(self.norm(self.up(x))))


def net():
    seed()
    return Net().double()


def of_module(module):
    return [p.grad for p in module.parameters()], [b.clone() for b in module.buffers()]


def step(fn, module, x):
    module.zero_grad()
    out = fn(module, x)
    out.square().sum().backward()
    found = of_module(module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter -= 0.1 * parameter.grad
    return out, found


@pytest.mark.parametrize("kind", [
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook",
])
def test_hooks_of_modules(kind):
    seen = {}

    def use(fn, module, x):
        calls = seen.setdefault(id(module), [])

        def hook(module, first, second=None):
            given = first if second is None else second
            calls.append([tensor.detach().sum().item() for tensor in given if tensor is not None])

        def changing(module, args):
            return tuple(2 * arg for arg in args)

        handle = getattr(module.norm, kind)(changing if kind == "register_full_backward_pre_hook" else hook)
        with_hook = step(fn, module, x)
        handle.remove()
        return with_hook, step(fn, module, x), [[round(number, 6) for number in call] for call in calls]

    twins = Twins(lambda module, x: module(x), torch.randn(5, 4, dtype=torch.float64), module=net())
    twins.check_fused = lambda: None  # what has hooks may run in parts
    twins.both(use)


def test_a_hook_that_is_there_for_one_backward():
    """Its handle has a number, which compiling the backward must not take: the hook would stay."""
    def fn(module, x):
        handle = module.up.register_forward_hook(lambda module, args, out: out + 1)
        out = module.up(x)
        out.sum().backward()
        handle.remove()
        return out, module.up(x), len(module.up._forward_hooks)

    twins = Twins(fn, leaf(3, 4), module=net())
    twins.both(lambda fn, module, x: (fn(module, x), of_module(module)))


def test_hooks_of_modules_that_each_call_puts_on_take_no_entries():
    """Their numbers count up through a process."""
    module, found = net(), []

    def fn(x):
        handles = [m.register_forward_hook(lambda m, args, out: found.append(m)) for m in (module.up, module.down)]
        try:
            return module(x) + module.up(x).sum()
        finally:
            for handle in handles:
                handle.remove()

    fast = framejit.optimize(fn, backend="eager")
    for _ in range(8):
        x, before = torch.randn(5, 4, dtype=torch.float64), RemovableHandle.next_id
        module.eval()
        same(fast(x), fn(x))
        assert RemovableHandle.next_id == before + 4 and not module.up._forward_hooks
    assert found == 16 * [module.up, module.down, module.up] and len(fast.entries) <= 2


def test_compiling_a_backward_takes_no_numbers_of_handles():
    before = RemovableHandle.next_id
    out, loss = framejit.optimize(lambda x: ((y := x.sin()), y.cos().sum()), backend="fuse")(leaf(3))
    loss.backward()
    assert RemovableHandle.next_id == before


def test_hooks_on_the_module_that_is_optimized():
    theirs, mine = net(), net()
    compiled = framejit.optimize(mine)
    x = torch.randn(5, 4, dtype=torch.float64)
    for number in range(4):
        found = []
        for call, module in ((theirs, theirs), (compiled, mine)):
            seen = []
            handles = []
            if number % 2:
                handles = [
                    module.register_full_backward_hook(lambda m, inputs, outputs, seen=seen: seen.append(outputs[0])),
                    module.register_forward_hook(lambda m, inputs, out, seen=seen: seen.append(out) or out * 2),
                    module.up.weight.register_hook(lambda gradient, seen=seen: seen.append(gradient.clone())),
                ]
            module.zero_grad()
            given = x.clone().requires_grad_()
            call(given).square().sum().backward()
            for handle in handles:
                handle.remove()
            found.append((seen, given.grad, of_module(module)))
        same(*found)


def test_hooks_on_saved_tensors_that_pack_otherwise():
    """On the way to the disk, as it were."""

    def use(fn, x, w):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), lambda a: torch.from_numpy(a)):
            out = fn(x.detach().requires_grad_(), w)
        return out, torch.autograd.grad(out.sum(), w)

    twins = Twins(lambda x, w: (x @ w).exp().tanh(), leaf(3, 3), leaf(3, 3))
    twins.both(lambda fn, x, w: torch.autograd.grad(fn(x, w).sum(), w))
    twins.both(lambda fn, x, w: use(fn, x.detach(), w.detach().requires_grad_()))


def test_saved_on_cpu():
    def use(fn, x, w):
        with torch.autograd.graph.save_on_cpu():
            out = fn(x, w)
        return out, torch.autograd.grad(out.sum(), [x, w])

    twins = Twins(lambda x, w: (x @ w).exp().tanh(), leaf(3, 3), leaf(3, 3))
    twins.both(lambda fn, x, w: torch.autograd.grad(fn(x, w).sum(), [x, w]))
    twins.both(use)


def test_anomaly_mode_names_the_line_of_the_program():
    def fn(x):
        y = x * 2
        return torch.sqrt(y - y.detach()).sum() * 0

    outcomes = []
    compiled = framejit.optimize(fn)
    compiled(leaf(3))
    for call in (fn, compiled):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.autograd.detect_anomaly():
                with pytest.raises(RuntimeError) as raised:
                    call(leaf(3)).backward()
        traces = [str(w.message) for w in caught if "Traceback of forward call" in str(w.message)]
        outcomes.append((str(raised.value), ["torch.sqrt(y - y.detach())" in trace for trace in traces]))
    same(*outcomes)


def test_anomaly_mode_around_the_backward_alone():
    def use(fn, x):
        out = fn(x)
        with warnings.catch_warnings(), torch.autograd.detect_anomaly():
            warnings.simplefilter("ignore")
            return torch.autograd.grad(out.sum(), x)

    Twins(lambda x: x.exp() * 2, leaf(4)).both(use)


def test_forward_mode_differentiation():
    import torch.autograd.forward_ad as forward

    def use(fn, x, w):
        with forward.dual_level():
            primal, tangent = forward.unpack_dual(fn(forward.make_dual(x.detach(), torch.ones_like(x)), w.detach()))
        return primal, tangent, torch.autograd.grad(fn(x, w).sum(), [x, w])

    twins = Twins(lambda x, w: (x @ w).sin() * w, leaf(3, 3), leaf(3, 3))
    twins.both(lambda fn, x, w: torch.autograd.grad(fn(x, w).sum(), [x, w]))
    twins.check_fused = lambda: None  # under a level the program runs as it is
    twins.both(use)


def test_forward_over_reverse():
    import torch.autograd.forward_ad as forward

    def use(fn, x):
        with forward.dual_level():
            dual = forward.make_dual(x.detach().requires_grad_(), torch.ones_like(x))
            (gradient,) = torch.autograd.grad(fn(dual).sum(), dual, create_graph=True)
            return forward.unpack_dual(gradient).tangent

    twins = Twins(lambda x: x.exp() * x.sin(), leaf(4))
    twins.both(lambda fn, x: torch.autograd.grad(fn(x).sum(), x))
    twins.check_fused = lambda: None
    twins.both(use)


@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "vmap"])
@pytest.mark.parametrize("inside", [True, False])
def test_transforms(transform, inside):
    def loss(x):
        return ((x * 2).sin() * x).sum()

    def transformed(fn, x):
        if transform == "vjp":
            out, pull = torch.func.vjp(fn, x)
            return out, pull(torch.ones_like(out))
        if transform == "jvp":
            return torch.func.jvp(fn, (x,), (torch.ones_like(x),))
        return getattr(torch.func, transform)(fn)(x)

    outcomes = []
    for optimize in (lambda fn: fn, framejit.optimize):
        around = optimize(lambda x: transformed(loss, x))
        within = optimize(loss)
        fn = around if inside else lambda x, within=within: transformed(within, x)
        found = []
        for number in range(3):
            x = torch.linspace(0, number + 1, 4 + number, dtype=torch.float64)
            x = x.reshape(2, -1) if transform == "vmap" and not x.numel() % 2 else x
            found.append(fn(x))
            weight = x.clone().requires_grad_()
            out = fn(weight)
            first = out[0] if isinstance(out, tuple) else out
            found.append(torch.autograd.grad(first.square().sum(), weight) if first.requires_grad else None)
        outcomes.append(found)
    same(*outcomes)


def test_a_checkpoint_is_recomputed():
    """What is checkpointed keeps nothing but what goes in, and draws the same numbers once more."""
    linear = nn.Linear(32, 32).double()

    def body(x):
        for _ in range(4):
            x = F.dropout(linear(x).exp().sin(), 0.2)
        return x

    def use(fn, x):
        out = fn(x)
        found = torch.autograd.grad(out.sum(), [x, linear.weight])
        return out, found, torch.rand(2)

    twins = Twins(lambda x: checkpoint(body, x, use_reentrant=False) * 2, leaf(8, 32))
    twins.both(use)


def test_a_checkpoint_around_what_is_compiled():
    def use(fn, x, w):
        x.grad = w.grad = None
        checkpoint(fn, x, w, use_reentrant=False).sum().backward()
        first = x.grad.clone(), w.grad.clone()
        checkpoint(fn, x, w, use_reentrant=True).sum().backward()
        return first, x.grad, w.grad

    twins = Twins(lambda x, w: F.dropout((x @ w).sin(), 0.3).exp(), leaf(3, 3), leaf(3, 3))
    twins.both(lambda fn, x, w: torch.autograd.grad(fn(x, w).sum(), [x, w]))
    twins.both(use)


class Straight(torch.autograd.Function):
    """Rounds, and lets gradients through."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return (x * scale).round() / scale

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < ctx.scale), None


@pytest.mark.parametrize("several", [True, False])
def test_functions_with_a_backward_of_their_own(several):
    def fn(x, w):
        h = Straight.apply(x @ w, 4.0)
        return (h.sin() * w, h.cos().sum()) if several else (h.sin() * w).sum()

    def use(fn, x, w):
        x.grad = w.grad = None
        out = fn(x, w)
        sum(o.sum() for o in (out if several else (out,))).backward()
        return out, x.grad, w.grad

    Twins(fn, leaf(3, 3), leaf(3, 3)).both(use)


def test_asking_for_gradients_inside():
    def fn(x):
        y = (x * 2).detach().requires_grad_()
        return (y * y).sum(), y

    def use(fn, x):
        out, y = fn(x)
        out.backward()
        return out, y.grad, y.is_leaf, y.requires_grad

    twins = Twins(fn, leaf(4))
    twins.check_fused = lambda: None
    twins.both(use)


def test_gradients_switched_off_for_a_parameter():
    def use(fn, module, x):
        first = step(fn, module, x)
        module.up.weight.requires_grad_(False)
        module.zero_grad()
        fn(module, x).sum().backward()
        found = of_module(module)
        module.up.weight.requires_grad_()
        return first, found

    Twins(lambda module, x: module(x), torch.randn(5, 4, dtype=torch.float64), module=net()).both(use)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_between_training_steps(mode):
    def use(fn, module, x):
        first = step(fn, module, x)
        with mode():
            out = fn(module, x)
        return first, out.detach().clone(), out.is_inference(), step(fn, module, x)

    Twins(lambda module, x: module(x), torch.randn(5, 4, dtype=torch.float64), module=net()).both(use)


def test_a_scaler_that_meets_infinities():
    """Steps are left out, the scale goes down, and training goes on."""
    made = {}

    def use(fn, module, x):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=2)
        scaler, optimizer = made.setdefault(id(module), (scaler, torch.optim.Adam(module.parameters())))
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = fn(module, x).float().square().mean()
            scaler.scale(loss * 1e6).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            found.append(scaler.get_scale())
        return found

    seed()
    Twins(lambda module, x: module(x), torch.randn(5, 4), module=Net()).both(use)


def test_backward_with_inputs():
    def use(fn, x, w):
        x.grad = w.grad = None
        fn(x, w).sum().backward(inputs=[w])
        first = x.grad, w.grad.clone()
        fn(x, w).sum().backward(inputs=[x])
        return first, x.grad, w.grad

    Twins(lambda x, w: (x @ w).sin().exp(), leaf(3, 3), leaf(3, 3)).both(use)


@pytest.mark.parametrize("tangent", [
    lambda like: torch.ones((), dtype=like.dtype).expand_as(like),
    lambda like: torch.ones(*like.shape[::-1], dtype=like.dtype).t(),
    lambda like: torch.ones(like.shape[0], 2 * like.shape[1], dtype=like.dtype)[:, ::2],
    lambda like: torch.zeros_like(like),
])
def test_gradients_that_lie_otherwise(tangent):
    def use(fn, x, w):
        x.grad = w.grad = None
        out = fn(x, w)
        out.backward(tangent(out))
        return x.grad, w.grad

    Twins(lambda x, w: F.softmax(x @ w, -1).exp(), leaf(3, 4), leaf(4, 5)).both(use)


def test_a_backward_with_another_default_dtype():
    """What is computed again in it has the dtype that it had."""
    norm = nn.LayerNorm(4).double()

    def fn(x):
        return norm(torch.zeros(x.shape)) + x

    compiled, found = framejit.optimize(fn), []
    for f in (fn, compiled):
        for _ in range(3):
            norm.zero_grad()
            torch.set_default_dtype(torch.float64)
            try:
                out = f(torch.ones(6, 4))
            finally:
                torch.set_default_dtype(torch.float32)
            out.sum().backward()
            assert torch.get_default_dtype() is torch.float32
            found.append([parameter.grad for parameter in norm.parameters()])
    same(found[:3], found[3:])
    assert [graph.reason for graph in framejit.inspect(compiled).graphs] == ["", ""]
