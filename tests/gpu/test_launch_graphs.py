"""Plans as CUDA graphs, on a GPU: what the program sees is what it sees of the plans themselves."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.graph_identity import LAUNCH_GRAPHS, SAME_RANDOM_NUMBERS

pytestmark = pytest.mark.gpu

CALLS = 12
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture(autouse=True)
def forget():
    yield
    framejit.reset()


def launched(fn: Callable[..., Any], **meta: bool) -> Callable[..., Any]:
    """`fn` with launch graphs, never eager instead because it measured quicker. `meta`: what else is asked of its
    graphs."""

    def backend(gm: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        gm.meta |= {LAUNCH_GRAPHS: True, **meta}
        compiled = fuse_graph(gm, examples)
        return getattr(compiled, "compiled", compiled)

    return framejit.optimize(fn, backend=backend)


def states() -> list[str]:
    return [graph.state for graph in framejit.status().launched]


def reasons() -> list[str]:
    return [graph.reason for graph in framejit.status().launched]


def on_gpu(*size: int) -> torch.Tensor:
    return torch.randn(*size, device="cuda")


def same(f: Callable[..., Any], *makers: Callable[[], torch.Tensor], calls: int = CALLS, **close: float) -> None:
    """Compares calls with fresh inputs with eager, results and inputs, and keeps the results to the end."""
    fast = launched(f)
    kept = []
    with torch.no_grad():
        for _ in range(calls):
            mine = [make() for make in makers]
            theirs = [tensor.clone() for tensor in mine]
            versions = [(tensor._version, other._version) for tensor, other in zip(mine, theirs)]
            got, expected = fast(*mine), f(*theirs)
            torch.testing.assert_close(mine, theirs, **close)
            for tensor, other, (before, others) in zip(mine, theirs, versions):
                assert tensor._version - before == other._version - others
            kept.append((got, expected))
    for got, expected in kept:
        torch.testing.assert_close(got, expected, **close)
    assert states() == ["captured"], reasons()


def test_kernels_of_ours():
    same(lambda x, y: (F.softmax(x * 2 + y, -1), x.sum(0) - 1), lambda: on_gpu(40, 300), lambda: on_gpu(300), **CLOSE)


def test_a_thousand_calls_with_all_outputs_kept():
    w = on_gpu(64, 64)
    same(lambda x: F.gelu(x @ w + 1).relu(), lambda: on_gpu(8, 64), calls=1000, **CLOSE)


def test_products_convolutions_and_attention():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 64))
    net = net.cuda().eval()

    def f(x):
        h = net(x).view(-1, 4, 4, 4)
        return F.scaled_dot_product_attention(h, h, h) * 2, net[4].weight.sum()

    same(f, lambda: on_gpu(16, 3, 8, 8), **CLOSE)


def test_a_model_whose_weights_are_replaced_and_written():
    net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.LayerNorm(64)).cuda().eval()
    fast = launched(lambda x: net(x))
    with torch.no_grad():
        for i in range(40):
            if i == 15:
                net[0].weight.mul_(1.5)
            if i == 20:
                net[0].weight.data = torch.randn_like(net[0].weight)
            if i == 25:
                net[3].bias.data = torch.randn_like(net[3].bias)
            x = on_gpu(4, 64)
            torch.testing.assert_close(fast(x), net(x), **CLOSE)
    assert states() == ["captured"], reasons()


def test_inputs_that_are_written():
    def f(x, y):
        x.add_(y)
        return x * 2

    same(f, lambda: on_gpu(100), lambda: on_gpu(100), **CLOSE)


def test_a_static_cache():
    w = on_gpu(32, 32)

    def f(cache, x, at):
        cache.index_copy_(1, at, (x @ w)[:, None])
        return F.softmax(cache.sum(-1), -1)

    fast = launched(f)
    mine, theirs = torch.zeros(2, 50, 32, device="cuda"), torch.zeros(2, 50, 32, device="cuda")
    with torch.no_grad():
        for i in range(50):
            x, at = on_gpu(2, 32), torch.tensor([i], device="cuda")
            torch.testing.assert_close(fast(mine, x, at), f(theirs, x, at), **CLOSE)
            torch.testing.assert_close(mine, theirs, **CLOSE)
        mine, theirs = mine.clone(), theirs.clone()
        for i in range(20):
            x, at = on_gpu(2, 32), torch.tensor([i], device="cuda")
            torch.testing.assert_close(fast(mine, x, at), f(theirs, x, at), **CLOSE)
            torch.testing.assert_close(mine, theirs, **CLOSE)
    assert states() == ["captured"], reasons()


def test_views_among_the_outputs():
    def f(x, w):
        y = x @ w
        z = y * 2
        return y[:, 1:], z.t(), x[0], z

    fast = launched(f)
    with torch.no_grad():
        for _ in range(CALLS):
            x, w = on_gpu(8, 16), on_gpu(16, 16)
            a, b, c, d = fast(x, w)
            torch.testing.assert_close((a, b, c, d), f(x, w), **CLOSE)
            assert b.untyped_storage().data_ptr() == d.untyped_storage().data_ptr() and c.data_ptr() == x.data_ptr()
    assert states() == ["captured"], reasons()


def test_several_shapes_share_a_pool():
    w = on_gpu(64, 64)

    def f(x):
        return F.gelu((x @ w).relu() @ w) * 2

    fast = framejit.optimize(f, mode="reduce-overhead")
    kept = []
    with torch.no_grad():
        for _ in range(15):
            for rows in (1, 7, 300, 16):
                x = on_gpu(rows, 64)
                kept.append((fast(x), f(x)))
    for got, expected in kept:
        torch.testing.assert_close(got, expected, **CLOSE)
    assert "captured" in states() and "plain" not in states(), reasons()


def test_a_plan_that_draws_the_numbers_of_eager_stays_plain():
    def f(x):
        return F.dropout(x * 2, 0.5) + torch.rand_like(x)

    fast = launched(f, **{SAME_RANDOM_NUMBERS: True})
    with torch.no_grad():
        for i in range(CALLS):
            x = on_gpu(1000)
            torch.manual_seed(i)
            got = fast(x), fast(x)
            torch.manual_seed(i)
            torch.testing.assert_close(got, (f(x), f(x)))
    assert states() == ["plain"] and "generator" in reasons()[0], reasons()


def test_streams():
    w = on_gpu(512, 512) / 20

    def f(x):
        for _ in range(4):
            x = F.relu(x @ w) + 1
        return x

    fast = launched(f)
    streams = [torch.cuda.Stream() for _ in range(3)]
    kept = []
    with torch.no_grad():
        for turn in range(60):
            stream = streams[turn % 3] if turn > 10 else torch.cuda.current_stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                x = on_gpu(256, 512)
                kept.append((x, fast(x)))
        torch.cuda.synchronize()
        for x, got in kept:
            torch.testing.assert_close(got, f(x), atol=1e-2, rtol=1e-2)
    assert states() == ["captured"], reasons()


def test_threads():
    w = on_gpu(64, 64)

    def f(x):
        return F.relu(x @ w) * 2

    fast = launched(f)
    wrong: list[Any] = []

    def work() -> None:
        try:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(300):
                    x = on_gpu(32, 64)            # random numbers, while another thread captures
                    torch.testing.assert_close(fast(x), f(x), **CLOSE)
        except Exception as e:
            wrong.append(e)

    with torch.no_grad():
        fast(on_gpu(32, 64))
    torch.cuda.synchronize()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert states() == ["captured"], reasons()


def test_a_graph_of_the_programs():
    w = on_gpu(64, 64)

    def f(x):
        return F.relu(x @ w) * 2

    fast = launched(f)
    x = on_gpu(32, 64)
    with torch.no_grad():
        for _ in range(CALLS):
            fast(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = fast(x)
        for _ in range(3):
            x.copy_(on_gpu(32, 64))
            graph.replay()
            torch.testing.assert_close(got, f(x), **CLOSE)
            torch.testing.assert_close(fast(x), f(x), **CLOSE)
    assert states() == ["captured"], reasons()


def test_what_waits_for_the_device_runs_plainly():
    def f(x, mask):
        return torch.linalg.inv(x @ x.t() + torch.eye(8, device="cuda") * 9) * 2 + mask

    fast = launched(f)
    with torch.no_grad():
        for _ in range(CALLS):
            x, mask = on_gpu(8, 8), on_gpu(8)
            torch.testing.assert_close(fast(x, mask), f(x, mask), atol=1e-3, rtol=1e-3)
        # all is as before behind a capture that failed
        torch.manual_seed(3)
        first = torch.rand(10, device="cuda")
        torch.manual_seed(3)
        assert torch.equal(torch.rand(10, device="cuda"), first)
        other = launched(lambda x: x @ x + 1)
        for _ in range(CALLS):
            torch.testing.assert_close(other(x), x @ x + 1, **CLOSE)
    assert states()[-1] == "captured", reasons()


def test_a_number_on_the_cpu_keeps_its_graph_plain():
    number = torch.tensor(2.5)
    fast = launched(lambda x: x * number + 1)
    with torch.no_grad():
        for i in range(CALLS):
            number.fill_(i)
            x = on_gpu(10)
            torch.testing.assert_close(fast(x), x * i + 1)


def test_gradients():
    net = nn.Linear(16, 16).cuda()
    fast = framejit.optimize(lambda x: net(x).relu().sum(), mode="reduce-overhead")
    for _ in range(CALLS):
        x = on_gpu(4, 16)
        fast(x).backward()
        got, net.weight.grad = net.weight.grad, None
        net(x).relu().sum().backward()
        torch.testing.assert_close(got, net.weight.grad, **CLOSE)
        net.weight.grad = None
    assert states() == ["captured", "captured"], reasons()


def test_the_mode():
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)) for _ in range(8)])
    net = net.cuda().eval()
    fast = framejit.optimize(net, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(40):
            x = on_gpu(4, 64)
            torch.testing.assert_close(fast(x), net(x), **CLOSE)
            torch.cuda.synchronize()
    assert states() == ["captured"], reasons()
    assert not framejit.status().reverted


def test_graphs_and_their_memory_go_with_the_function():
    w = on_gpu(1024, 1024)

    def make():
        fast = launched(lambda x: (x @ w).relu() @ w)
        for _ in range(CALLS):
            fast(on_gpu(1024, 1024))

    with torch.no_grad():
        make()
        framejit.reset()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            make()
            framejit.reset()
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() <= before + (1 << 20)


def test_graphs_are_captured_behind_others_that_are_gone():
    def work(size: int) -> None:
        w = on_gpu(size, size)
        same(lambda x: F.relu(x @ w) * 2, lambda: on_gpu(8, size), **CLOSE)

    for size in (32, 48, 64):
        work(size)
        framejit.reset()
        gc.collect()
        torch.cuda.empty_cache()
