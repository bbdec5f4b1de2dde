"""Small helpers of torch that captured code calls: checks of conditions, annotations, traced modules."""
import pytest
import torch
from torch import nn
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.wrap import wrap

import framejit

from support import check

X = torch.rand(2, 3)
TRACED = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))


def checked(x):
    torch._check(x.shape[0] > 1, lambda: "too short")
    torch._check_value(x.dim() == 2)
    return x + 1


def of_sizes(x):
    torch._check_is_size(x.shape[0])
    torch._check_is_size(x.shape[1], max=5)
    return x + 1


def called_by_an_operator(x):
    def inner(rows, factor, *, shift):
        return {"rows": rows * factor + shift, "factor": factor}

    made = wrap(inner, x, 3, shift=x[0])
    return made["rows"] * made["factor"]


def annotated(x):
    return torch.jit.annotate(torch.Tensor, x) * 2


def traced(x):
    return TRACED(x) + 1


@torch.jit.script_if_tracing
def with_default(x, factor: float = 2.5):
    if x.dim() > 1:
        x = x.sum(0)
    return x * factor


def scripted_only_for_traces(x):
    return with_default(x) + with_default(x[0], factor=3.0)


def dtypes_of_results(x):
    of_tensors = torch.result_type(x, 2), torch.result_type(3.5, x), torch.result_type(x[0, 0], x.int())
    return x.to(torch.result_type(True, 2j)), torch.result_type(1, 2.0), of_tensors


@pytest.mark.parametrize(
    "fn",
    [checked, of_sizes, called_by_an_operator, annotated, traced, scripted_only_for_traces, dtypes_of_results],
)
@pytest.mark.filterwarnings("ignore:_check_is_size:FutureWarning")
def test_one_graph(fn):
    check(fn, X, fullgraph=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_trace_of_compiled_code_still_has_what_is_scripted():
    compiled = framejit.optimize(scripted_only_for_traces)
    compiled(X)
    trace = torch.jit.trace(compiled, X)
    assert "with_default" in trace.code
    assert torch.equal(trace(X), scripted_only_for_traces(X))


def test_dtypes_of_numbers_follow_the_default():
    def fn(x):
        return x.to(torch.result_type(1, 2.0))

    compiled = framejit.optimize(fn)
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            assert compiled(X).dtype == dtype
        finally:
            torch.set_default_dtype(torch.float32)


def made_by_class(x, number):
    filled = torch.Tensor(x.shape)
    filled[:] = torch.Tensor([number, 2, True])
    sizes = torch.Tensor(2, 3).shape, torch.Tensor().shape, torch.Tensor(()).shape
    return filled, torch.Tensor([[1], [2.5]]), torch.FloatTensor([number]), torch.LongTensor([1.5, 2]), sizes


def test_tensors_made_by_class():
    check(made_by_class, X, 3, fullgraph=True)
    before = torch.get_default_dtype()
    fast = framejit.optimize(made_by_class, backend="eager", fullgraph=True)
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            assert [t.dtype for t in fast(X, 3)[:2]] == [dtype, dtype]
    finally:
        torch.set_default_dtype(before)


def test_a_check_that_fails():
    for fn in (lambda x: torch._check(x.shape[0] > 5, lambda: f"{x.shape[0]} rows"), checked):
        check(fn, X[:1], raises=RuntimeError, traceback=False, calls=1)


def test_hooks_of_a_traced_module():
    module = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    module.register_forward_hook(lambda m, args, out: out + 1)
    check(lambda x: module(x), X, graphs=None, breaks=None, ops=None)


def test_operators_on_functions_that_framejit_does_not_know_break_the_graph_once():
    def hinted(x):
        return hints_wrapper(lambda rows: rows.sin() * 2, (x + 1,), {}, hints={"kept": True}) - 1

    check(hinted, X, graphs=2, breaks=1)


@pytest.mark.parametrize("size", [torch.Size([]), torch.Size([2]), torch.Size([0, 3])])
def test_tensors_made_of_a_size(size):
    """Of no dimensions, too: that is another thing than no size."""

    def fn(x):
        made = x.new(size), torch.Tensor(size), torch.DoubleTensor(size), x.sum().new(x.sum().shape), x.new()
        return [each.fill_(2) for each in made], x * 2

    check(fn, torch.ones(3), graphs=1)
