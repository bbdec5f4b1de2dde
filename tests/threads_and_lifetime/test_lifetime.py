"""Nothing leaks: dropping the function, the module or the arguments frees graphs, guards and tensors."""
import gc
import sys
import weakref

import torch
from torch import nn

import framejit

X = torch.arange(4.0)


class WeakBackend:
    """Remembers the graphs weakly."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, inputs):
        self.graphs.append(weakref.ref(gm))
        return lambda *args: gm(*args)

    def alive(self):
        gc.collect()
        return sum(ref() is not None for ref in self.graphs)


def test_dropping_the_function_frees_its_graphs():
    backend = WeakBackend()

    def fn(x):
        return x + 1

    fast = framejit.optimize(fn, backend=backend)
    fast(X)
    assert backend.alive() == 1
    del fast
    del fn
    assert backend.alive() == 0


def test_dropping_a_function_with_breaks_frees_its_resume_functions():
    backend = WeakBackend()

    def fn(x):
        for _ in range(3):
            x = x + 1
            framejit.graph_break()
            x = x * 2
        return x

    fast = framejit.optimize(fn, backend=backend)
    fast(X)
    assert backend.alive() >= 2
    del fast, fn
    assert backend.alive() == 0


def test_reset_frees_graphs_of_living_functions():
    backend = WeakBackend()
    fast = framejit.optimize(lambda x: x + 1, backend=backend)
    fast(X)
    framejit.reset()
    assert backend.alive() == 0
    fast(X)
    assert backend.alive() == 1


def test_dropping_the_module_frees_parameters_and_graphs():
    backend = WeakBackend()
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    fast = framejit.optimize(net, backend=backend)
    fast(X)
    weight, module = weakref.ref(net[0].weight), weakref.ref(net[0])
    del net, fast
    assert backend.alive() == 0
    assert weight() is None and module() is None


def test_closure_contents_are_freed_with_the_function():
    class Big:
        def __init__(self):
            self.t = torch.ones(4)

    def make():
        big = Big()

        def fn(x):
            return x + big.t

        return framejit.optimize(fn, backend=WeakBackend()), weakref.ref(big)

    fast, big = make()
    fast(X)
    assert big() is not None
    del fast
    gc.collect()
    assert big() is None


def test_arguments_are_not_kept():
    class Arg:
        def __init__(self):
            self.t = torch.ones(4)

    backend = WeakBackend()
    fast = framejit.optimize(lambda x, a, items: x + a.t + items[0], backend=backend)
    x, a, items = X.clone(), Arg(), [torch.ones(4)]
    out = fast(x, a, items)
    refs = [weakref.ref(v) for v in (x, a, a.t, items[0], out)]
    del x, a, items, out
    gc.collect()
    assert [r() is None for r in refs] == [True] * 5
    assert backend.alive() == 1


def test_a_module_argument_is_not_kept():
    fast = framejit.optimize(lambda m, x: m(x), backend=WeakBackend())
    net = nn.Linear(4, 4)
    fast(net, X)
    ref, weight = weakref.ref(net), weakref.ref(net.weight)
    del net
    gc.collect()
    assert ref() is None and weight() is None


def test_entry_of_a_dead_object_never_matches_its_successor():
    class Op:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x * self.k

    fast = framejit.optimize(lambda op, x: op(x), backend=WeakBackend())
    for k in range(1, 6):
        assert torch.equal(fast(Op(k), X), X * k)  # a new Op often gets the address of the dead one


def test_successor_of_a_dead_module():
    fast = framejit.optimize(lambda m, x: m(x), backend=WeakBackend())
    for k in range(4):
        net = nn.Linear(4, 4)
        nn.init.constant_(net.weight, float(k))
        assert torch.equal(fast(net, X), net(X))
        del net
        gc.collect()


def test_results_and_intermediates_are_freed_after_the_call():
    kept = []

    def fn(x):
        y = x + 1
        kept.append(weakref.ref(y))
        framejit.graph_break()
        return y * 2

    fast = framejit.optimize(fn, backend=WeakBackend())
    for _ in range(2):
        out = fast(X)
        gc.collect()
        assert kept[-1]() is None
        ref = weakref.ref(out)
        del out
        assert ref() is None


def test_exception_does_not_keep_tensors():
    class Marker:
        pass

    def fn(x, m):
        y = x + 1
        framejit.graph_break()
        raise ValueError(y.shape[0])

    fast = framejit.optimize(fn, backend=WeakBackend())
    for _ in range(2):
        m = Marker()
        ref = weakref.ref(m)
        try:
            fast(X, m)
        except ValueError:
            pass
        del m
        gc.collect()
        assert ref() is None


def test_repeated_optimizing_and_dropping_does_not_grow():
    def cycle():
        fast = framejit.optimize(lambda x, k: x * k + 1, backend="eager")
        for k in (1, 2):
            fast(X, k)

    def objects():
        gc.collect()
        return len(gc.get_objects())

    for _ in range(5):
        cycle()
    before = objects()
    for _ in range(20):
        cycle()
    # from 3.14 on the collector tracks every dict, those of events too, and an entry of linecache is a closure
    per_function = 24 if sys.version_info < (3, 14) else 34
    assert objects() - before < 20 * per_function, "events and torch.fx's entries in linecache are left"


def test_recompiles_of_one_function_keep_only_their_entries():
    backend = WeakBackend()
    with framejit.config.patch(recompile_limit=4):
        fast = framejit.optimize(lambda x, name: x + ord(name), backend=backend)
        for name in "abcdefghijkl":
            assert torch.equal(fast(X, name), X + ord(name))
        assert 1 <= backend.alive() <= 5


def test_garbage_cycle_through_the_wrapper_is_collected():
    backend = WeakBackend()

    class Owner:
        pass

    def make():
        owner = Owner()

        def fn(x):
            return x + (1 if owner is not None else 0)

        owner.fast = framejit.optimize(fn, backend=backend)
        owner.fast(X)
        return weakref.ref(owner)

    ref = make()
    gc.collect()
    assert ref() is None and backend.alive() == 0


def test_wrapper_supports_weak_references():
    fast = framejit.optimize(lambda x: x + 1, backend="eager")
    ref = weakref.ref(fast)
    assert ref() is fast
    del fast
    gc.collect()
    assert ref() is None
