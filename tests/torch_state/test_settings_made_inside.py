"""Settings of torch that captured code makes: operations behind them follow, they stay or go as in plain Python, and
what was set outside is noticed."""
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import framejit

X = torch.arange(1.0, 5.0)
Q = torch.rand(1, 2, 4, 8)


def put_back(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.ones(4) * 0.1 + torch.tensor(1.0)
    torch.set_default_dtype(before)
    return x + y, y.dtype, torch.ones(1).dtype


def left(x):
    torch.set_default_dtype(torch.float64)
    return x + torch.ones(4)


def raises_between(x):
    torch.set_default_dtype(torch.float64)
    try:
        y = x + torch.ones(4)
        if y.dtype is torch.float64:
            raise ValueError
    except ValueError:
        return x * 2, torch.get_default_dtype()
    finally:
        torch.set_default_dtype(torch.float32)


def drawn_and_dropped(x):
    torch.set_default_dtype(torch.float64)
    torch.rand(3)
    return x + 1


def drawn(x):
    torch.set_default_dtype(torch.float64)
    return torch.rand(3), torch.randn(x.shape), torch.normal(0.0, 1.0, (2,)), x * torch.randint(9, (4,))


def made(x):
    ones = torch.ones(x.shape)
    torch.set_default_dtype(torch.float64)
    return (
        ones, torch.ones(x.shape) * x, torch.full((2,), 0.1), torch.full((2,), 1), torch.arange(0, 1, 0.3),
        torch.linspace(0, 1, 3), torch.eye(2), torch.tensor([0.1, 0.2]), torch.zeros(2, dtype=torch.float32), x * 0.1,
    )


def promoted(x):
    n = x.long()
    torch.set_default_dtype(torch.float64)
    return n * 0.1, n / 3, n.sin(), (n + 16777216) > 16777217.5, n * x, torch.where(n > 2, 0.1, 0.2), n + 1


@pytest.fixture
def seeded():
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn", [put_back, left, raises_between, drawn_and_dropped, drawn, made, promoted])
def test_default_dtype(fn, backend, seeded):
    compiled = framejit.optimize(fn, fullgraph=True, backend=backend)
    for before in (torch.float32, torch.float64, torch.float32):
        found = []
        for f in (fn, compiled):
            torch.default_generator.manual_seed(1)
            torch.set_default_dtype(before)
            try:
                found.append((f(X), torch.get_default_dtype(), torch.rand(1, dtype=torch.float32)))
            finally:
                torch.set_default_dtype(torch.float32)
        assert str(found[0]) == str(found[1])


@pytest.mark.parametrize("fn", [put_back, drawn, made])
def test_plans_are_told_the_default_dtype_of_each_operation(fn, seeded):
    compiled = framejit.optimize(fn, backend="fuse")
    try:
        compiled(X)
    finally:
        torch.set_default_dtype(torch.float32)
    assert [graph.reason for graph in framejit.inspect(compiled).graphs] == [""]


def flags():
    names = ("flash", "mem_efficient", "math", "cudnn")
    return [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in names]


def attends(q):
    with sdpa_kernel(SDPBackend.MATH):
        y = F.scaled_dot_product_attention(q, q, q)
        inner = flags()
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            y = y + F.scaled_dot_product_attention(q, q, q)
            innermost = flags()
    return y, inner, innermost, flags()


def test_kernels_of_attention():
    # newer torches keep it in a context variable, which breaks the graph
    by_context = hasattr(torch.nn.attention, "_sdpa_kernel_uses_priority")
    compiled = framejit.optimize(attends, fullgraph=not by_context, backend="eager")
    for flash in (True, False, True, True):
        before = torch.backends.cuda.flash_sdp_enabled()
        torch.backends.cuda.enable_flash_sdp(flash)
        try:
            expected, got = attends(Q), compiled(Q)
            assert torch.allclose(expected[0], got[0]) and expected[1:] == got[1:]
            assert flags() == expected[3]
        finally:
            torch.backends.cuda.enable_flash_sdp(before)
    assert len(compiled.entries) <= 3


def test_members_of_torchs_enumerations():
    def fn(x, kind):
        table = {SDPBackend.MATH: 2, SDPBackend.FLASH_ATTENTION: 3}
        return x * table.get(kind, 5), kind.name, kind == SDPBackend.MATH, int(kind)

    compiled = framejit.optimize(fn, fullgraph=True, backend="eager")
    for kind in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.ERROR, SDPBackend.MATH):
        assert str(compiled(X, kind)) == str(fn(X, kind))


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_what_is_left_set_is_set_by_each_call(backend):
    """The fusing backend tries both ways in the first calls; each sets it."""

    def fn(x):
        torch.set_default_dtype(torch.float64)
        return x + 1, torch.tensor([1.5])

    compiled = framejit.optimize(fn, backend=backend)
    before = torch.get_default_dtype()
    try:
        for _ in range(8):
            torch.set_default_dtype(torch.float32)
            _, made = compiled(torch.ones(4, 4))
            assert made.dtype == torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(before)


def test_each_autocast_block_casts_weights_anew():
    """Casts of weights are kept for a block of autocast; those of the next one have its dtype."""
    layer = torch.nn.Linear(4, 4)

    def program(x):
        made = []
        for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
            with torch.autocast("cpu", dtype):
                y = layer(x)
                made += [y, y.dtype, layer(y).dtype]
        return made

    compiled = framejit.optimize(program, backend="eager")
    for _ in range(2):
        expected, result = program(Q[0, 0, :, :4]), compiled(Q[0, 0, :, :4])
        assert [str(item) for item in result] == [str(item) for item in expected]


@pytest.mark.parametrize(
    "setter, value",
    [
        (torch.set_default_dtype, torch.int32), (torch.set_default_dtype, "float"), (torch.set_grad_enabled, "yes"),
        (torch.autocast, 3), (torch.inference_mode, "yes"), (torch.backends.cuda.enable_math_sdp, "yes"),
    ],
)
def test_what_torch_refuses(setter, value):
    def program(x, given):
        y = x * 2
        try:
            setter(given)
            return None
        except (TypeError, ValueError, RuntimeError) as e:
            return y + 1, type(e), str(e), torch.get_default_dtype(), torch.is_grad_enabled()

    compiled = framejit.optimize(program, backend="eager")
    for _ in range(2):
        expected, got = program(X, value), compiled(X, value)
        assert (expected is None) == (got is None)
        if expected is not None:
            assert torch.equal(expected[0], got[0]) and expected[1:] == got[1:]
    assert "internal" not in str(framejit.status())
