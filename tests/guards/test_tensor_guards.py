"""What a tensor guard looks at: each property that changes makes a new entry, each that does not matter makes none."""
import pytest
import torch
from torch import nn

import framejit

from support import ANY, Pair, of_kind, recorded

X = torch.arange(12.0).reshape(3, 4)


def body(x):
    return x * 2 + x.sum()


def pair() -> Pair:
    p = Pair(lambda: body)
    p.call(X, captures=True)
    p.call(X, captures=False)
    return p


CHANGES = {
    "dtype": X.double(),
    "integer dtype": X.int(),
    "size": torch.randn(5, 4),
    "rank": torch.randn(12),
    "strides": torch.arange(12.0).reshape(4, 3).t(),
    "requires_grad": X.clone().requires_grad_(),
    "parameter class": nn.Parameter(X.clone(), requires_grad=False),
    "device": torch.empty(3, 4, device="meta"),
}


@pytest.mark.parametrize("what", [c for c in CHANGES if c != "device"])
def test_change_is_noticed(what):
    p = pair()
    p.call(CHANGES[what], captures=True)
    p.call(CHANGES[what], captures=False)
    p.call(X, captures=False)
    assert p.graphs == 2


def test_device_change_is_noticed():
    p = pair()
    out = p.compiled(CHANGES["device"])
    assert out.device.type == "meta" and out.shape == (3, 4) and p.graphs == 2


def test_conjugate_bit_is_noticed():
    p = Pair(lambda: lambda x: torch.view_as_real(x.resolve_conj()))
    z = torch.randn(3, dtype=torch.cfloat)
    p.call(z)
    conj = z.conj()
    torch.testing.assert_close(p.compiled(conj), torch.view_as_real(conj.resolve_conj()))


def test_negative_bit_is_noticed():
    p = Pair(lambda: lambda x: x + 1)
    z = torch.randn(3, dtype=torch.cfloat)
    p.call(z.real.clone())
    neg = z.conj().imag
    assert neg.is_neg()
    torch.testing.assert_close(p.compiled(neg), neg.resolve_neg() + 1)


def test_inference_tensor_is_noticed():
    p = pair()
    with torch.inference_mode():
        t = X.clone()
    torch.testing.assert_close(p.compiled(t), body(X))


def test_sparse_tensor_is_noticed():
    p = Pair(lambda: lambda x: (x * 2))
    p.call(X)
    out = p.compiled(X.to_sparse())
    assert out.layout is torch.sparse_coo
    torch.testing.assert_close(out.to_dense(), X * 2)


def test_tensor_subclass_is_noticed():
    class Logged(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            Logged.calls += 1
            return super().__torch_function__(func, types, args, kwargs or {})

    p = pair()
    out = p.compiled(X.as_subclass(Logged))
    assert type(out) is Logged and Logged.calls > 0


def test_none_in_place_of_a_tensor_is_noticed():
    p = Pair(lambda: lambda x, mask: x if mask is None else x * mask)
    p.call(X, X)
    p.call(X, None)
    p.call(X, X, captures=False)
    p.call(X, None, captures=False)


def test_number_in_place_of_a_tensor_is_noticed():
    p = Pair(lambda: lambda x, k: x * k + 1)
    p.call(X, torch.tensor(2.0))
    p.call(X, 2.0, captures=True)
    p.call(X, 2, captures=True)
    p.call(X, True, captures=True)


@pytest.mark.parametrize("shape", [(1, 4), (0, 4), (3, 1)])
def test_sizes_zero_and_one_are_special(shape):
    p = pair()
    p.call(torch.ones(shape), captures=True)


def test_values_and_storage_offset_are_free():
    p = pair()
    p.call(X + 100, captures=False)
    p.call(torch.full((3, 4), float("nan")), captures=False)
    p.call(torch.arange(16.0).reshape(4, 4)[1:], captures=False)


def test_grad_and_grad_fn_of_a_non_leaf_are_free():
    p = Pair(lambda: body)
    leaf = X.clone().requires_grad_()
    p.compiled(leaf)
    graphs = p.graphs
    p.compiled(leaf * 2 + 1)
    leaf.grad = torch.ones_like(leaf)
    p.compiled(leaf)
    assert p.graphs == graphs


def test_size_one_stride_is_compared():
    p = Pair(lambda: lambda x: (x * 2, x.stride()))
    p.call(torch.ones(1, 4))
    p.call(torch.ones(4, 1).as_strided((1, 4), (7, 1)))


def test_two_tensors_each_guarded():
    p = Pair(lambda: lambda a, b: a @ b)
    p.call(X, X.t())
    p.call(X, torch.randn(4, 5), captures=True)
    p.call(torch.randn(3, 4), torch.randn(4, 5), captures=False)


def test_tensors_deep_in_containers_are_guarded():
    p = Pair(lambda: lambda d: d["a"][0][1] + 1)
    p.call({"a": [(0, X)]})
    p.call({"a": [(0, X.double())]}, captures=True)
    p.call({"a": [(0, torch.randn(3, 4))]}, captures=False)


def test_unused_tensor_argument_is_not_guarded_on_its_shape():
    p = Pair(lambda: lambda x, unused: x + 1)
    p.call(X, X)
    p.call(X, torch.randn(9), captures=False)


def test_captured_tensor_of_the_closure_is_guarded():
    def make():
        box = [torch.ones(4)]
        w = box[0]

        def fn(x):
            return x + box[0] * w

        return fn, box

    p = Pair(make)
    p.call(X)
    for side in (p.eager_state, p.state):
        side[0] = torch.ones(3, 1) * 2
    p.call(X, captures=True)


def _own(**names):
    return type("Own", (torch.Tensor,), names)


def _values(tensor):
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor).tolist() if isinstance(tensor, torch.Tensor) else tensor


# what a tensor of a program's class is asked, and what is given to the class or to the tensor between calls
GIVEN = {
    "operator": (lambda t: t + 1, lambda t: setattr(type(t), "__add__", lambda s, o: s * 10)),
    "reflected operator": (lambda t: 1 + t, lambda t: setattr(type(t), "__radd__", lambda s, o: s * 10)),
    "unary operator": (lambda t: -t, lambda t: setattr(type(t), "__neg__", lambda s: s * 10)),
    "method": (lambda t: t.sin(), lambda t: setattr(type(t), "sin", lambda s: s * 10)),
    "property": (lambda t: t * t.ndim, lambda t: setattr(type(t), "ndim", property(lambda s: 7))),
    "length": (lambda t: t * len(t), lambda t: setattr(type(t), "__len__", lambda s: 7)),
    "iteration": (lambda t: sum(t), lambda t: setattr(type(t), "__iter__", lambda s: iter([s, s]))),
    "items": (lambda t: t[0], lambda t: setattr(type(t), "__getitem__", lambda s, at: s * 10)),
    "class attribute": (lambda t: t * t.factor, lambda t: setattr(type(t), "factor", 5.0)),
    "own attribute": (lambda t: t * t.factor, lambda t: setattr(t, "factor", 5.0)),
    "own method": (lambda t: t * t.cos().sum(), lambda t: setattr(t, "cos", lambda: torch.ones(2))),
    "absent attribute": (lambda t: t * getattr(t, "other", 1.0), lambda t: setattr(t, "other", 5.0)),
}


@pytest.mark.parametrize("what", GIVEN)
def test_a_class_of_tensors_that_is_given_something(what):
    fn, change = GIVEN[what]
    pair = Pair(lambda: fn)
    tensors = [(X + 1).as_subclass(_own(factor=2.0)) for _ in range(2)]
    for _ in range(2):
        assert _values(pair.eager(tensors[0])) == _values(pair.compiled(tensors[1]))
    pair.expect(graphs=ANY, breaks=0)
    before = _values(pair.eager(tensors[0]))
    for tensor in tensors:
        change(tensor)
    assert _values(pair.eager(tensors[0])) == _values(pair.compiled(tensors[1])) != before


def _size_of_itself(tensor):
    raise AssertionError("asked while capturing")


# what a class of tensors says of its own, where torch asks for how they lie in memory
SAID = {
    "every name": {"__getattr__": lambda tensor, name: 1},
    "shape": {"shape": property(lambda tensor: torch.Size((7,)))},
    "shape and more": {"shape": 5, "stride": _size_of_itself, "dtype": None, "size": _size_of_itself},
    "requires_grad": {"requires_grad": True},
}


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize(
    "fn", [lambda t: t + 1, lambda t: t.shape, lambda t: torch.sin(t).sum(), lambda t: getattr(t, "other", 2)]
)
@pytest.mark.parametrize("view", [False, True])
def test_a_class_of_tensors_that_torch_makes_no_fakes_of(said, fn, view):
    cls = _own(**SAID[said])
    tensor = (torch.ones(4, requires_grad=True) * X[0])[1:].as_subclass(cls) if view else X.as_subclass(cls)
    expected, fast = _values(fn(tensor)), framejit.optimize(lambda x: fn(x), backend="eager")
    with recorded() as log:
        assert [_values(fast(tensor)) for _ in range(3)] == [expected] * 3
    assert not of_kind(log, "warning")
    assert any(event.fields.get("code") == "FJ141" for event in log)
