"""Lazy modules: the first call, which makes their parameters, is plain Python; the next is captured."""
import torch

import framejit

from support import CountingBackend


def test_the_second_call_is_captured():
    model, twin = (
        torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.ReLU(), torch.nn.LazyBatchNorm1d()) for _ in range(2)
    )
    x = torch.rand(5, 3)
    backend = CountingBackend()
    fast = framejit.optimize(twin, backend=backend, fullgraph=True)
    for runs in (0, 1, 2):
        torch.manual_seed(0)
        expected = model(x)
        torch.manual_seed(0)
        torch.testing.assert_close(fast(x), expected)
        assert backend.runs == runs and len(backend.graphs) == min(runs, 1)


def test_one_that_never_gets_its_parameters_is_left_to_python():
    layer = torch.nn.LazyLinear(4)

    def fn(x):
        return x + (1 if layer.has_uninitialized_params() else 2)

    fast = framejit.optimize(fn)
    for _ in range(8):
        assert torch.equal(fast(torch.zeros(2)), torch.ones(2))
