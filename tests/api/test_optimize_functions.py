"""`optimize` on everything that is not a module: what may be given to it, and what comes back."""
import copy
import functools
import inspect
import operator
import pickle
import types

import pytest
import torch

import framejit
from framejit._native import Dispatcher
from framejit.errors import InvalidOption, InvalidTarget

from support import CountingBackend

X = torch.arange(4.0)


def double(x: torch.Tensor, *, times: int = 2) -> torch.Tensor:
    """Doubles."""
    return x * times


@framejit.optimize
def decorated(x):
    return x + 1


@framejit.optimize(fullgraph=True)
def decorated_with_arguments(x):
    return x + 2


class Scaler:
    factor = 3

    @framejit.optimize
    def scale(self, x):
        return x * self.factor

    @framejit.optimize
    @classmethod
    def scale_by_class(cls, x):
        return x * cls.factor

    @framejit.optimize
    @staticmethod
    def scale_by_two(x):
        return x * 2

    def __call__(self, x):
        return x * self.factor + 1


def test_decorator_without_arguments():
    assert torch.equal(decorated(X), X + 1)
    assert len(decorated.entries) == 1


def test_decorator_with_arguments():
    assert torch.equal(decorated_with_arguments(X), X + 2)
    assert decorated_with_arguments.options.fullgraph


def test_the_result_looks_like_the_function():
    fast = framejit.optimize(double)
    assert fast.__wrapped__ is double
    assert (fast.__name__, fast.__qualname__, fast.__doc__, fast.__module__) == (
        double.__name__, double.__qualname__, double.__doc__, double.__module__,
    )
    assert inspect.signature(fast) == inspect.signature(double)
    assert torch.equal(fast(X, times=5), X * 5)


def test_keyword_and_default_arguments():
    fast = framejit.optimize(double)
    for arguments in ({}, {"times": 2}, {"times": 3}):
        assert torch.equal(fast(x=X, **arguments), double(X, **arguments))


def test_a_wrong_call_raises_the_function_s_own_error():
    with pytest.raises(TypeError) as expected:
        double()
    with pytest.raises(TypeError) as got:
        framejit.optimize(double)()
    assert str(got.value) == str(expected.value)


def test_methods_in_a_class_body():
    scaler = Scaler()
    assert torch.equal(scaler.scale(X), X * 3)
    assert torch.equal(Scaler.scale(scaler, X), X * 3)
    assert torch.equal(scaler.scale_by_class(X), X * 3)
    assert torch.equal(scaler.scale_by_two(X), X * 2)
    scaler.factor = 5
    assert torch.equal(scaler.scale(X), X * 5)


def test_a_bound_method():
    backend, scaler = CountingBackend(), Scaler()
    fast = framejit.optimize(scaler.__call__, backend=backend)
    assert fast.__self__ is scaler
    assert torch.equal(fast(X), X * 3 + 1)
    assert backend.runs == 1


def test_an_object_that_can_be_called():
    backend = CountingBackend()
    fast = framejit.optimize(Scaler(), backend=backend)
    assert torch.equal(fast(X), X * 3 + 1)
    assert backend.runs == 1


def test_the_class_of_an_object_that_can_be_called_is_given_another_call():
    class Made:
        def __call__(self, x):
            return x * 3

    fast = framejit.optimize(Made())
    assert torch.equal(fast(X), X * 3)
    Made.__call__ = lambda self, x: x - 3
    assert torch.equal(fast(X), X - 3)


def test_a_partial():
    backend = CountingBackend()
    fast = framejit.optimize(functools.partial(double, times=7), backend=backend)
    assert isinstance(fast, functools.partial)
    assert torch.equal(fast(X), X * 7)
    assert backend.runs == 1


def test_a_function_written_in_c():
    backend = CountingBackend()
    fast = framejit.optimize(torch.relu, backend=backend)
    assert torch.equal(fast(X - 2), torch.relu(X - 2))
    assert backend.runs == 1


def test_objects_written_in_c_that_can_be_called():
    @framejit.optimize(backend="eager")
    @functools.lru_cache
    def cached(n):
        return torch.ones(n) * n

    assert cached(2) is cached(2) and cached.cache_info().hits == 1
    cached.cache_clear()
    assert cached.cache_info().hits == 0 and cached(2).tolist() == [2, 2]
    assert framejit.optimize(operator.itemgetter(1), backend="eager")([1, X]) is X


def test_optimizing_twice_takes_the_function_inside():
    again = framejit.optimize(decorated, backend=CountingBackend())
    assert again.__wrapped__ is decorated.__wrapped__
    assert again is not decorated


def test_disable_gives_the_argument_back():
    assert framejit.optimize(double, disable=True) is double
    with framejit.config.patch(disable=True):
        assert framejit.optimize(double) is double


def test_config_disable_stops_what_is_optimized_already():
    backend = CountingBackend()
    fast = framejit.optimize(double, backend=backend)
    with framejit.config.patch(disable=True):
        assert torch.equal(fast(X), X * 2)
    assert backend.graphs == []
    fast(X)
    assert len(backend.graphs) == 1


@pytest.mark.parametrize("target", [int, Scaler, torch.nn.Linear])
def test_a_class_is_refused(target):
    with pytest.raises(InvalidTarget, match="optimize its methods or its instances"):
        framejit.optimize(target)


@pytest.mark.parametrize("target", [3, "name", [], object()])
def test_what_cannot_be_called_is_refused(target):
    with pytest.raises(InvalidTarget, match=type(target).__name__):
        framejit.optimize(target)


@pytest.mark.parametrize(
    "option",
    [
        {"mode": "max-autotune-cudagraphs"}, {"mode": 3}, {"options": {"max_autotune": True}}, {"dynamic": "yes"},
        {"fullgraph": 1},
        {"options": {"activation_memory": 0.5, "trace": 1}},
    ],
)
@pytest.mark.parametrize("disable", [False, True])
def test_unsupported_options_are_refused_in_one_sentence(option, disable):
    with pytest.raises(InvalidOption) as caught:
        framejit.optimize(double, disable=disable, **option)
    assert next(iter(option)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_mode_gets_a_suggestion():
    with pytest.raises(InvalidOption, match="did you mean 'reduce-overhead'"):
        framejit.optimize(double, mode="reduce_overhead")
    with pytest.raises(InvalidOption, match="did you mean 'max-autotune'"):
        framejit.optimize(double, mode="maxautotune")
    with pytest.raises(InvalidOption, match="there are: default, max-autotune, max-autotune-no-cudagraphs, reduce"):
        framejit.optimize(double, mode="quick")


def test_a_misspelt_option_gets_a_suggestion():
    with pytest.raises(InvalidOption, match="did you mean 'same_random_numbers'"):
        framejit.optimize(double, options={"same_random_number": True})
    with pytest.raises(InvalidOption, match="there are: activation_memory, same_random_numbers"):
        framejit.optimize(double, options={"trace": True})
    with pytest.raises(InvalidOption, match="same_random_numbers must be True or False, not 1"):
        framejit.optimize(double, options={"same_random_numbers": 1})


def test_an_option_that_a_backend_does_not_know_is_told_of():
    with pytest.warns(framejit.errors.FramejitWarning, match="the backend 'eager' knows no such option"):
        framejit.optimize(double, backend="eager", options={"same_random_numbers": True})


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_a_mode_that_a_backend_does_not_know_is_told_of(mode):
    with pytest.warns(framejit.errors.FramejitWarning, match="knows no modes"):
        fast = framejit.optimize(double, mode=mode, backend="eager")
    assert torch.equal(fast(X), X * 2)


@pytest.mark.parametrize(
    "option",
    [
        {"mode": "default"}, {"mode": "reduce-overhead"}, {"mode": "max-autotune"}, {"mode": None},
        {"options": {}}, {"options": None},
        {"dynamic": False},
    ],
)
def test_options_that_ask_for_nothing_new_are_accepted(option):
    assert torch.equal(framejit.optimize(double, **option)(X), X * 2)


def closed(gm, inputs):
    """A backend that can't do with sizes that are symbols."""
    if not all(isinstance(value, torch.Tensor) for value in inputs):
        raise TypeError("tensors only")
    return gm.forward


def test_dynamic_warns_once_and_specialises_where_the_backend_wants_to_know_sizes():
    fast = framejit.optimize(double, backend=closed, dynamic=True)
    with pytest.warns(
        framejit.FramejitWarning,
        match="'closed' compiles double anew for each new size: it raised TypeError: tensors only",
    ) as caught:
        for size in (3, 4):
            assert torch.equal(fast(torch.ones(size)), torch.ones(size) * 2)
    assert len(caught) == 1
    assert caught[0].filename == double.__code__.co_filename
    assert len(fast.entries) == 2


def test_pickling_leads_back_to_a_decorated_function():
    assert pickle.loads(pickle.dumps(decorated)) is decorated


def test_pickling_keeps_function_and_options():
    fast = pickle.loads(pickle.dumps(framejit.optimize(double, backend="eager", fullgraph=True)))
    assert isinstance(fast, Dispatcher)
    assert fast.__wrapped__ is double
    assert (fast.options.backend_name, fast.options.fullgraph) == ("eager", True)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_is_the_same_function_for_the_same_backend(duplicate):
    backend = CountingBackend()
    fast = duplicate(framejit.optimize(double, backend=backend))
    assert fast.__wrapped__ is double
    assert fast.options.backend is backend
    assert torch.equal(fast(X), X * 2)


@pytest.mark.parametrize("name", [name for name in framejit.__all__ if inspect.isfunction(getattr(framejit, name))])
def test_public_functions_have_type_hints_and_docstrings(name):
    function = getattr(framejit, name)
    signature = inspect.signature(function)
    assert function.__doc__
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in signature.parameters.values())


def test_torch_fx_traces_the_function_behind():
    """Whether it was called before or not: what is traced are the operations of the program."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        @framejit.optimize(backend="eager")
        def forward(self, x):
            return self.linear(x) + 1

    def fn(x, *, by=2):
        return torch.sin(x) * by

    x, compiled, layer = torch.ones(3), framejit.optimize(fn, backend="eager"), Layer()
    for _ in range(2):
        for ours, original in ((compiled, fn), (layer, layer)):
            traced = torch.fx.symbolic_trace(ours)
            assert torch.equal(traced(x), original(x)) and torch.equal(ours(x), original(x))
        ops = [node.op for node in torch.fx.symbolic_trace(layer).graph.nodes]
        assert ops == ["placeholder", "call_module", "call_function", "output"]
    plain = torch.fx.symbolic_trace(fn, concrete_args={"by": 5})
    assert torch.fx.symbolic_trace(compiled, concrete_args={"by": 5}).code == plain.code
    assert isinstance(compiled, type(fn)) and inspect.isfunction(compiled) and type(compiled) is not type(fn)


def test_captured_code_takes_an_optimized_function_for_a_function():
    inner = framejit.optimize(lambda x: x + 1, backend="eager")

    def fn(x):
        return inner(x), isinstance(inner, types.FunctionType), inner.__class__ is types.FunctionType

    got = framejit.optimize(fn, backend="eager")(torch.ones(2))
    assert got[1:] == fn(torch.ones(2))[1:] == (True, True)
