"""Things given to `optimize` that are no ordinary Python functions, and switches that turn everything off."""
import os

import pytest
import torch

import framejit
from framejit.errors import FramejitError

import forked
from support import CountingBackend

X = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize("target", [5, "text", [1]], ids=repr)
def test_not_callable(target):
    with pytest.raises((FramejitError, TypeError)):
        framejit.optimize(target)


@pytest.mark.parametrize("target", [torch.sin, torch.Tensor.sin, abs], ids=["torch.sin", "Tensor.sin", "abs"])
def test_c_functions_work_or_are_refused(target):
    try:
        fn = framejit.optimize(target, backend="eager")
    except FramejitError:
        return
    torch.testing.assert_close(fn(X), target(X))


def test_callable_object_and_partial():
    import functools

    class Op:
        def __call__(self, x, k=2):
            return x * k

    for target in (Op(), functools.partial(Op(), k=3), Op().__call__):
        backend = CountingBackend()
        torch.testing.assert_close(framejit.optimize(target, backend=backend)(X), target(X))
        assert len(backend.graphs) == 1


def test_optimized_twice():
    backend = CountingBackend()
    fn = framejit.optimize(framejit.optimize(lambda x: x + 1, backend=backend), backend=backend)
    torch.testing.assert_close(fn(X), X + 1)
    assert len(backend.graphs) == 1


def test_unsupported_option_is_refused_in_one_sentence():
    for options in ({"mode": "no-such-mode"}, {"options": {"no_such_option": 1}}):
        with pytest.raises(FramejitError) as caught:
            framejit.optimize(lambda x: x, backend="eager", **options)(X)
        assert len(str(caught.value).splitlines()) == 1


def subprocess_output(code: str, **env: str) -> str:
    run = forked.run(["-c", code], env={**os.environ, **env}, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_environment_variable_switches_everything_off():
    code = """
import framejit, torch
def backend(gm, inputs):
    print("compiled")
    return gm.forward
fn = framejit.optimize(lambda x: x + 1, backend=backend, fullgraph=True)
print(fn(torch.ones(2)).tolist())
"""
    assert subprocess_output(code, FRAMEJIT_DISABLE="1") == "[2.0, 2.0]"
    assert subprocess_output(code, FRAMEJIT_DISABLE="0") == "compiled\n[2.0, 2.0]"


def test_config_switches_everything_off_and_on_again():
    backend = CountingBackend()
    fn = framejit.optimize(lambda x: x + 1, backend=backend)
    with framejit.config.patch(disable=True):
        torch.testing.assert_close(fn(X), X + 1)
        assert not backend.graphs
    torch.testing.assert_close(fn(X), X + 1)
    assert len(backend.graphs) == 1


def test_disabled_function_of_an_optimized_one():
    backend = CountingBackend()
    fn = framejit.disable(framejit.optimize(lambda x: x + 1, backend=backend))
    torch.testing.assert_close(fn(X), X + 1)
    assert not backend.graphs
