"""From `framejit.optimize` through Triton and the plan to the results, on a GPU: every call runs the plan, and is
compared with eager."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from tests.fuse.lowering.plan_checks import Mode, check, planned

pytestmark = pytest.mark.gpu

CLOSE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(params=(False, True), ids=("plans", "launch_graphs"), autouse=True)
def launch_graphs(request, monkeypatch):
    monkeypatch.setattr(Mode, "launch_graphs", request.param)


def on_gpu(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*size, device="cuda", dtype=dtype)


def in_triton(graphs: list[CompiledGraph], kernels: int | None = None) -> None:
    """Each graph consists of kernels of Triton, as many in all as are given."""
    made = [kernel for graph in graphs for kernel in graph.kernels]
    assert made and all(kernel.language == "triton" for kernel in made)
    assert kernels is None or len(made) == kernels


def checked(
    f: Callable[..., object], *args: torch.Tensor, kernels: int | None = None, externs: int | None = None
) -> None:
    close = max(CLOSE.get(arg.dtype, 0.0) for arg in args)
    with torch.no_grad():
        in_triton(check(f, *args, externs=externs, atol=close, rtol=close), kernels)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("size", [(1,), (1000,), (17, 4096), (3, 5, 7)])
def test_elementwise(size, dtype):
    checked(
        lambda x, y: (x * y + 1).relu() / (x.abs() + 2), on_gpu(*size, dtype=dtype), on_gpu(*size, dtype=dtype),
        kernels=1, externs=0,
    )


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("width", [1, 33, 1024, 5000])
def test_norms_and_softmax(width, dtype):
    checked(lambda x: F.softmax(F.layer_norm(x, (width,)) * 2, -1), on_gpu(9, width, dtype=dtype), externs=0)


@pytest.mark.parametrize("dims", [0, 1, (0, 1), -1])
def test_reductions(dims):
    checked(lambda x: (x.sum(dims), x.amax(dims), (x * x).mean(dims)), on_gpu(70, 130), externs=0)


def test_a_reduction_of_everything():
    checked(lambda x: (x * 2).sum(), on_gpu(1 << 20), externs=0)


def test_computed_places():
    places = torch.randint(0, 50, (40,), device="cuda")
    checked(lambda x: x[places] * 2 + x.gather(0, places.unsqueeze(1).expand(40, 8)), on_gpu(50, 8))


def test_a_turned_order_that_is_moved_on():
    checked(lambda x: x.flip(0).roll(1, 0) * 2, on_gpu(5, 300), kernels=1, externs=0)
    checked(lambda x: x.roll(-7, 1).flip(1).roll(3, 0) + 1, on_gpu(5, 300), kernels=1, externs=0)


def test_views_and_broadcasts():
    checked(lambda x, y: (x.t() + y).permute(1, 0).reshape(-1)[::2] * 3, on_gpu(6, 8), on_gpu(6), externs=0)


def test_a_product_with_what_follows_it():
    checked(lambda x, w, b: F.gelu(x @ w + b), on_gpu(64, 128), on_gpu(128, 32), on_gpu(32))


def test_inputs_that_begin_anywhere():
    """As the targets of a language model do, which are its tokens but for the first."""
    tokens, table = torch.randint(50, (6, 33), device="cuda"), on_gpu(50, 16)
    checked(lambda x, y, w: F.embedding(x, w).sum(-1) * y, tokens[:, :-1], tokens[:, 1:], table, kernels=1)
    x = on_gpu(4001)
    checked(lambda a, b: (a * b).exp() + a, x[1:], x[:-1], kernels=1)
    checked(lambda a: a.sum(0) + a[0], on_gpu(10)[3:8].expand(6, 5))


def test_writes_into_arguments():
    checked(lambda x, y: (x.add_(y).mul_(2), y.sin()), on_gpu(100), on_gpu(100))


def test_numbers_of_the_cpu_and_of_the_device_in_one_graph():
    number = torch.tensor(2.5)
    checked(lambda x: x * number + 1, on_gpu(100))


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("dtype", CLOSE)
def test_divisions_by_numbers(dtype, backend):
    """To the last bit: by a known number, one that changes, one read from a tensor, in place, cut off and rounded. A
    number by a tensor is two operations of torch, between which kernels do not round to halves."""

    def divided(x: torch.Tensor, number: float, read: torch.Tensor) -> tuple[torch.Tensor, ...]:
        quotient = x / read.item()
        return (
            quotient, x / number, x.clone().div_(3.7), x / 49, x / 10.1, x.div(49, rounding_mode="trunc"), x // 0.3,
            x.div(read.item()), torch.addcdiv(x, x, x, value=1e38),
            *((3.7 / x, number / x) if dtype == torch.float32 else ()),
        )

    fast = framejit.optimize(divided, backend=backend)
    x = torch.cat([on_gpu(999), torch.arange(1.0, 2000.0, 49.0, device="cuda")]).to(dtype)
    for number in (3.7, 10.1, 0.3):
        read = torch.tensor(number, dtype=torch.float64, device="cuda")
        for got, expected in zip(fast(x, number, read), divided(x, number, read)):
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


def test_a_model():
    torch.manual_seed(0)
    # in eval it would be one operation of ATen
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).cuda()
    with torch.no_grad():
        in_triton(check(lambda x: layer(x), on_gpu(2, 16, 64), atol=1e-4, rtol=1e-4))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_pools_with_gradients(dtype, memory_format):
    def f(x):
        return F.max_pool2d(x.relu(), 3, stride=2, padding=1) * 2

    x = on_gpu(2, 8, 33, 30, dtype=dtype).contiguous(memory_format=memory_format)
    results = []
    for run in (f, framejit.optimize(f, backend="fuse", fullgraph=True)):
        leaf = x.clone().requires_grad_()
        y = run(leaf)
        y.backward(torch.linspace(-1, 1, y.numel(), device="cuda", dtype=dtype).view_as(y))
        results.append((y.detach(), leaf.grad))
        assert y.stride() == results[0][0].stride() and leaf.grad.stride() == results[0][1].stride()
    for got, expected in zip(results[1], results[0]):
        torch.testing.assert_close(got, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])


def test_a_module_that_keeps_its_weights():
    torch.manual_seed(0)
    net = (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(8, 4),
        )
        .cuda()
        .eval()
    )
    x = on_gpu(2, 3, 16, 16)
    with torch.no_grad():
        fast = framejit.optimize(net, freeze=True)
        for _ in range(12):  # past the calls that are measured
            torch.testing.assert_close(fast(x), net(x), atol=1e-4, rtol=1e-4)
        assert framejit.inspect(fast).n_kernels > 0
        with torch.no_grad():
            net[5].bias.add_(1)
        torch.testing.assert_close(fast(x), net(x), atol=1e-4, rtol=1e-4)


def test_symbolic_sizes():
    def f(x):
        return F.softmax(x * 2, -1)

    fast = framejit.optimize(f, dynamic=True)
    with torch.no_grad():
        for rows in (4, 7, 16, 129, 4):
            x = on_gpu(rows, 64)
            for _ in range(2):
                torch.testing.assert_close(fast(x), f(x))


def test_autocast():
    def f(x, w):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return (x @ w).relu() * 2

    checked(f, on_gpu(32, 16, dtype=torch.bfloat16), on_gpu(16, 8, dtype=torch.bfloat16))


def test_a_break_on_data():
    def f(x):
        y = x.sin() * 2
        if y.sum() > 0:
            return y + 1
        return y.cos() - 1

    compiled, graphs = planned(f)
    with torch.no_grad():
        for x in (torch.ones(50, device="cuda"), -torch.ones(50, device="cuda"), torch.ones(50, device="cuda")):
            torch.testing.assert_close(compiled(x), f(x))
    in_triton(graphs)


def test_other_streams_and_threads():
    def f(x):
        return (x * 2 + 1).relu()

    compiled, graphs = planned(f)
    x = on_gpu(10_000)
    results: list[torch.Tensor] = []

    def elsewhere() -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            results.append(compiled(x))
        stream.synchronize()

    with torch.no_grad():
        compiled(x)
        threads = [threading.Thread(target=elsewhere) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 4
    for result in results:
        torch.testing.assert_close(result, f(x))
    in_triton(graphs, kernels=1)


def test_a_plan_inside_a_cuda_graph():
    compiled, graphs = planned(lambda x: (x * 2 + 1).relu())
    x = on_gpu(1000)
    with torch.no_grad():
        for _ in range(2):
            compiled(x)
        recording = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recording):
            result = compiled(x)
        x.fill_(3)
        recording.replay()
    assert result.eq(7).all()
    in_triton(graphs)


def test_errors_are_those_of_eager():
    def f(x, y):
        return (x + y).relu()

    fast = framejit.optimize(f)
    for args in ((on_gpu(3), on_gpu(4)), (on_gpu(3), torch.randn(3))):
        with pytest.raises(RuntimeError) as expected:
            f(*args)
        with pytest.raises(RuntimeError) as got:
            fast(*args)
        assert str(got.value) == str(expected.value)
