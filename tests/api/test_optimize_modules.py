"""`optimize(module)`: an object that is the module in every respect, but runs compiled code when it is called."""
import copy
import gc
import inspect
import io
import pickle
import weakref

import pytest
import torch
from torch import nn

import framejit
from framejit.optimized_module import OptimizedModule

from support import CountingBackend

X = torch.randn(3, 4)


class Net(nn.Module):
    registered: list[type] = []

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(8, 2)
        self.register_buffer("scale", torch.tensor(2.0))

    def __init_subclass__(cls) -> None:
        Net.registered.append(cls)

    def forward(self, x, *, shift: float = 0.0):
        return self.last(self.drop(torch.relu(self.norm(self.first(x))))) * self.scale + shift

    def twice(self, x):
        return self(x) * 2


class SelfAware(nn.Module):
    def forward(self, x):
        self.seen = type(self)
        return x + 1


class Slotted(nn.Module):
    """Its metaclass and its `__call__` are its own."""

    def __call__(self, x):
        return super().__call__(x) + 1

    def forward(self, x):
        return x * 2


@pytest.fixture
def backend():
    return CountingBackend()


@pytest.fixture
def net():
    return Net().eval()


@pytest.fixture
def fast(net, backend):
    return framejit.optimize(net, backend=backend)


def test_it_computes_the_same(net, fast, backend):
    assert torch.equal(fast(X), net(X))
    assert torch.equal(fast(X, shift=1.5), net(X, shift=1.5))
    assert backend.runs == 2


def test_the_module_it_was_given_stays_eager(net, fast, backend):
    net(X)
    assert backend.graphs == []
    assert type(net) is Net


def test_class_and_names(net, fast):
    assert isinstance(fast, Net)
    assert (type(fast).__name__, type(fast).__qualname__, type(fast).__module__) == (
        Net.__name__, Net.__qualname__, Net.__module__,
    )
    assert repr(fast) == repr(net)
    assert Net.registered == []


def test_modules_of_one_class_share_the_class_made_for_it(net, fast):
    assert type(framejit.optimize(Net())) is type(fast)


def test_state_dict_has_the_same_keys_and_tensors(net, fast):
    assert list(fast.state_dict()) == list(net.state_dict())
    assert all(
        a.data_ptr() == b.data_ptr() for a, b in zip(fast.state_dict().values(), net.state_dict().values(), strict=True)
    )


def test_parameters_buffers_and_children_are_shared(net, fast):
    assert all(a is b for a, b in zip(fast.parameters(), net.parameters(), strict=True))
    assert fast.scale is net.scale
    assert fast.first is net.first
    assert [name for name, _ in fast.named_modules()] == [name for name, _ in net.named_modules()]


def test_load_state_dict_reaches_both(net, fast):
    fast.load_state_dict(Net().state_dict())
    assert torch.equal(fast(X), net(X))


def test_train_and_eval(net, fast, backend):
    before = fast(X)
    assert fast.train() is fast
    assert net.training and net.drop.training
    torch.manual_seed(1)
    trained = fast(X)
    torch.manual_seed(1)
    net.norm.load_state_dict({**net.norm.state_dict()})
    assert not torch.equal(trained, before)
    fast.eval()
    assert not net.training
    assert torch.equal(fast(X), net(X))


def test_to_and_half_convert_in_place(net, fast):
    assert fast.to(torch.float64) is fast
    assert net.first.weight.dtype == torch.float64
    assert torch.equal(fast(X.double()), net(X.double()))


def test_setting_attributes_reaches_both(net, fast):
    fast.scale = torch.tensor(5.0)
    fast.note = "hello"
    fast.first = nn.Linear(4, 8)
    assert net.scale.item() == 5 and net.note == "hello" and net.first is fast.first
    assert torch.equal(fast(X), net(X))
    del fast.note
    assert not hasattr(net, "note")


def test_replacing_a_submodule_after_a_call_is_noticed(net, fast):
    fast(X)
    net.last = nn.Linear(8, 3)
    assert torch.equal(fast(X), net(X))


def test_hooks(net, fast):
    seen = []
    handle = fast.register_forward_hook(lambda module, args, output: seen.append(type(module)) or output + 1)
    assert torch.equal(fast(X), net(X))
    assert seen == [Net, Net]
    handle.remove()
    assert torch.equal(fast(X), net(X))
    assert len(seen) == 2


def test_training_step(net, fast):
    twin = copy.deepcopy(net)
    for model in (fast, twin):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(X).sum().backward()
        optimizer.step()
    assert all(torch.allclose(a, b) for a, b in zip(fast.parameters(), twin.parameters(), strict=True))


def test_methods_call_the_compiled_forward(net, fast, backend):
    assert torch.equal(fast.twice(X), net.twice(X))
    assert backend.runs == 1


def test_forward_sees_the_class_that_was_written():
    module = SelfAware()
    framejit.optimize(module)(X)
    assert module.seen is SelfAware


def test_a_call_of_one_s_own():
    backend = CountingBackend()
    assert torch.equal(framejit.optimize(Slotted(), backend=backend)(X), X * 2 + 1)
    assert backend.runs == 1


def called_twice(self, x):
    return nn.Module.__call__(self, nn.Module.__call__(self, x))


def refusing(self, x):
    raise ValueError("no call")


@pytest.mark.parametrize(
    "call",
    [called_twice, lambda self, x: x * 7, torch.relu, staticmethod(torch.neg), framejit.optimize(lambda m, x: x - 1)],
    ids=["method", "another", "builtin", "static", "optimized"],
)
def test_the_class_is_given_another_call(call, backend):
    class Made(nn.Module):
        def forward(self, x):
            return x * 2

    net = Made()
    fast = framejit.optimize(net, backend=backend)
    outer = framejit.optimize(lambda x: fast(x) + 1, backend=backend)
    for _ in range(2):
        for given in (None, call, None):
            if given is None:
                vars(Made).get("__call__") and delattr(Made, "__call__")
            else:
                Made.__call__ = given
            expected = outcome(net)
            assert same(outcome(fast), expected)
            assert same(outcome(outer), expected if isinstance(expected, str) else expected + 1)
    runs = backend.runs
    fast(X), outer(X)
    assert backend.runs == runs + 2


def outcome(module):
    try:
        return module(X)
    except TypeError as e:
        return str(e)


def same(a, b):
    return a == b if isinstance(a, str) or isinstance(b, str) else torch.equal(a, b)


def test_another_call_of_the_class_is_compiled(backend):
    class Made(nn.Module):
        def forward(self, x):
            return x * 2

    fast = framejit.optimize(Made(), backend=backend)
    fast(X)
    Made.__call__ = called_twice
    for _ in range(2):
        assert torch.equal(fast(X), X * 4)
    assert backend.runs == 3
    Made.__call__ = refusing
    with pytest.raises(ValueError, match="no call"):
        fast(X)


def test_another_class_with_a_call_of_its_own(backend):
    net = nn.Sequential(nn.ReLU())
    fast = framejit.optimize(net, backend=backend)
    assert torch.equal(fast(X), torch.relu(X))
    net.__class__ = type("Twice", (nn.Sequential,), {"__call__": called_twice})
    assert torch.equal(fast(X - 1), torch.relu(X - 1))
    net.__class__ = type("Not", (nn.Sequential,), {"__call__": lambda self, x: -x})
    assert torch.equal(fast(X), -X)


def test_its_class_is_that_of_the_module(net, fast):
    assert fast.__class__ is Net and isinstance(fast, Net) and not isinstance(fast, nn.Linear)
    other = Net.__new__(Net)
    assert type(other) is Net
    for another in (fast.__class__(), type(fast)()):
        assert type(another) is Net and another.first.weight is not fast.first.weight
        assert another(X).shape == (3, 2)
    fast.__class__ = type("Renamed", (Net,), {"forward": lambda self, x: x * 2})
    assert type(net).__name__ == fast.__class__.__name__ == "Renamed" and torch.equal(fast(X), X * 2)


def test_captured_code_sees_the_class_of_the_module(net, fast):
    def fn(x):
        return fast(x), fast.__class__, isinstance(fast, Net), isinstance(fast, nn.Linear), isinstance(fast, Twice)

    class Twice(Net):
        def forward(self, x):
            return x * 2

    backend = CountingBackend()
    outer = framejit.optimize(fn, backend=backend)
    assert outer(X)[1:] == (Net, True, False, False) and len(backend.graphs) == 1
    net.__class__ = Twice
    y, *said = outer(X)
    assert torch.equal(y, X * 2) and said == [Twice, True, False, True]


def test_deepcopy_is_independent_and_optimized(net, fast, backend):
    twin = copy.deepcopy(fast)
    assert isinstance(twin, OptimizedModule) and isinstance(twin, Net)
    assert twin.first.weight is not fast.first.weight
    with torch.no_grad():
        twin.first.weight.zero_()
    assert torch.equal(fast(X), net(X))
    assert not torch.equal(twin(X), fast(X))
    assert backend.runs == 3


def test_deepcopy_of_a_module_that_holds_one(net, fast):
    outer = copy.deepcopy(nn.Sequential(fast, nn.ReLU()))
    assert isinstance(outer[0], OptimizedModule)
    assert torch.equal(outer(X), torch.relu(net(X)))


def test_pickle(net, fast):
    fast = framejit.optimize(net, fullgraph=True)
    twin = pickle.loads(pickle.dumps(fast))
    assert isinstance(twin, OptimizedModule)
    assert twin.__call__.__func__.options.fullgraph
    torch.testing.assert_close(twin(X), net(X))


def test_torch_save(net):
    file = io.BytesIO()
    torch.save(framejit.optimize(net), file)
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    torch.testing.assert_close(twin(X), net(X))


def test_optimizing_twice_takes_the_module_inside(net, fast):
    again = framejit.optimize(fast)
    assert again is not fast
    assert again.__call__.__self__ is net


def test_a_module_inside_a_module(net, fast, backend):
    outer = nn.Sequential(fast, nn.ReLU())
    assert torch.equal(outer(X), torch.relu(net(X)))
    assert backend.runs == 1


def test_the_signature_is_that_of_the_module(net, fast):
    assert inspect.signature(fast) == inspect.signature(net)
    assert inspect.signature(fast.forward) == inspect.signature(net.forward)
    assert inspect.signature(type(fast)) == inspect.signature(Net)


def test_disable_gives_the_module_back(net):
    assert framejit.optimize(net, disable=True) is net


def test_data_parallel_replicas_work(net, fast):
    replica = fast._replicate_for_data_parallel()
    assert torch.equal(replica(X), net(X))


def test_dropping_it_frees_what_was_compiled():
    module = Net().eval()
    fast = framejit.optimize(module)
    fast(X)
    entry = weakref.ref(fast.__call__.__func__)
    optimized, kept = weakref.ref(fast), weakref.ref(module)
    del fast
    gc.collect()
    assert optimized() is None and entry() is None and kept() is module
    del module
    gc.collect()
    assert kept() is None


def test_the_class_made_goes_with_the_class_it_was_made_from():
    class Local(nn.Module):
        def forward(self, x):
            return x + 1

    framejit.optimize(Local())(X)
    local = weakref.ref(Local)
    del Local
    framejit.reset()
    gc.collect()
    assert local() is None
