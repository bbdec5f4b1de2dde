"""Any thread may call, compile or reset at any time."""
import threading
import time
import warnings

import torch

import framejit

from support import CountingBackend

X = torch.arange(4.0)
THREADS = 8


def in_threads(work, n=THREADS):
    """Runs work(i) in n threads that start together; raises the first error."""
    errors, start = [], threading.Barrier(n)

    def body(i):
        try:
            start.wait()
            work(i)
        except BaseException as e:  # noqa: BLE001 reported in the main thread
            errors.append(e)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def test_first_call_from_many_threads_at_once():
    fn = framejit.optimize(lambda x: (x + 1).sin() * 2, backend=CountingBackend())
    expected = (X + 1).sin() * 2

    def work(i):
        for _ in range(50):
            assert torch.equal(fn(X), expected)

    in_threads(work)


def test_each_thread_recompiles_for_its_own_shapes():
    backend = CountingBackend()
    fn = framejit.optimize(lambda x, k: x * k + x.shape[0], backend=backend)

    def work(i):
        for j in range(40):
            x = torch.ones(1 + (i + j) % 4)
            assert torch.equal(fn(x, i % 3), x * (i % 3) + x.shape[0])

    in_threads(work)
    assert backend.graphs


def test_reset_while_others_call_and_recompile():
    backend, stop = CountingBackend(), threading.Event()

    def leaf(x, k):
        y = x * k
        framejit.graph_break()
        return y + 1

    fn = framejit.optimize(lambda x, k: leaf(x, k).relu() + leaf(x, 2), backend=backend)
    counts = [0] * THREADS

    def resetter():
        while not stop.is_set():
            framejit.reset()
            time.sleep(0.005)

    helper = threading.Thread(target=resetter)
    helper.start()

    def work(i):
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            x = torch.full((1 + counts[i] % 3,), float(i))
            assert torch.equal(fn(x, i), (x * i + 1).relu() + (x * 2 + 1))
            counts[i] += 1

    try:
        in_threads(work)
    finally:
        stop.set()
        helper.join()
    assert all(counts) and backend.graphs


def test_side_effects_of_all_threads_are_kept():
    log = []

    def work_on(x, i):
        log.append(i)
        return x + i

    fn = framejit.optimize(work_on, backend=CountingBackend())

    def work(i):
        for _ in range(20):
            assert torch.equal(fn(X, i % 2), X + i % 2)

    in_threads(work)
    assert len(log) == 20 * THREADS


def test_threads_differ_in_grad_mode():
    w = X.clone().requires_grad_()
    fn = framejit.optimize(lambda w: w * 2, backend=CountingBackend())

    def work(i):
        for _ in range(30):
            with torch.set_grad_enabled(i % 2 == 0):
                assert fn(w).requires_grad == (i % 2 == 0)

    in_threads(work)


def test_a_break_runs_other_compiled_functions_in_other_threads():
    other = framejit.optimize(lambda x: x * 3, backend=CountingBackend())

    @framejit.disable
    def elsewhere(x):
        result = []
        t = threading.Thread(target=lambda: result.append(other(x)))
        t.start()
        t.join()
        return result[0]

    fn = framejit.optimize(lambda x: elsewhere(x + 1) - 1, backend=CountingBackend())
    for _ in range(3):
        assert torch.equal(fn(X), (X + 1) * 3 - 1)


def test_reset_from_inside_running_compiled_code():
    @framejit.disable
    def wipe(x):
        framejit.reset()
        return x

    def body(x):
        for _ in range(3):
            x = wipe(x + 1) * 2
        return x

    fn = framejit.optimize(body, backend=CountingBackend())
    for _ in range(3):
        assert torch.equal(fn(X), body(X))


def test_compiled_function_as_thread_target_and_in_a_pool():
    from concurrent.futures import ThreadPoolExecutor

    fn = framejit.optimize(lambda x, k: x + k, backend=CountingBackend())
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda k: fn(X, k % 2), range(40)))
    assert all(torch.equal(r, X + k % 2) for k, r in enumerate(results))


def test_error_in_one_thread_leaves_the_others_alone():
    def body(x, k):
        y = x + 1
        if k < 0:
            raise ValueError("negative")
        return y * k

    fn = framejit.optimize(body, backend=CountingBackend())

    def work(i):
        for _ in range(30):
            try:
                out = fn(X, -1 if i % 2 else 2)
            except ValueError:
                assert i % 2
            else:
                assert torch.equal(out, (X + 1) * 2)

    in_threads(work)


def test_backward_in_another_thread():
    w = X.clone().requires_grad_()
    fn = framejit.optimize(lambda w: (w * w).sum(), backend=CountingBackend())
    loss = fn(w)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    torch.testing.assert_close(w.grad, 2 * X)


def test_threads_that_capture_at_once_put_back_how_warnings_are_shown():
    def body(x, k):
        return x * x.var(-2, keepdim=True) + k

    found = warnings._showwarnmsg, list(warnings.filters), torch.is_warn_always_enabled()

    def work(i):
        for k in range(10):
            framejit.optimize(body, backend=CountingBackend(), dynamic=False)(X.reshape(1, 4), 10 * i + k)

    with warnings.catch_warnings(record=True):
        in_threads(work)
    assert (warnings._showwarnmsg, list(warnings.filters), torch.is_warn_always_enabled()) == found
