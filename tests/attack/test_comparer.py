"""The comparer notices each kind of difference, and the reducer makes the program that shows it small."""
from __future__ import annotations

import contextlib

import pytest
import torch

from tests.attack import compare as comparer
from tests.attack.generator.program import Program
from tests.attack.reduce import reduced
from tests.attack.world import Observed, differentiate

HEAD = "import torch\nimport warnings\nSTATE = [1]\nPLAIN = False\n"
CALLS = """
def call_0(invoke):
    x = torch.arange(6.0).reshape(2, 3)
    return invoke(x)
"""
DIFFERENT = {
    "result.stride": "return x.clone() if PLAIN else x.t().contiguous().t()",
    "result: [": "return x + 1 if PLAIN else x + 2",
    "result.dtype": "return x if PLAIN else x.double()",
    "aliasing differs": "return (x[0], x) if PLAIN else (x[0], x.clone())",
    "arguments[0][0]: [": "x.add_(int(PLAIN))",
    "state[": "STATE.append(1) if PLAIN else None",
    "no exception": "1 / (1 - PLAIN)",
    "message": "raise ValueError(PLAIN)",
    "stdout": "print(PLAIN)",
    "warnings": "warnings.warn(str(PLAIN))",
    "random": "torch.rand(2) if PLAIN else 0",
    "requires_grad": "return x.clone().requires_grad_(PLAIN)",
    "modes": "torch.set_grad_enabled(PLAIN)",
    "length": "return [1] * (1 + PLAIN)",
    "rest[0]": "return iter([1, 2][PLAIN:])",
}


@pytest.fixture
def two_sided(monkeypatch):
    """`PLAIN` is true on eager's side alone."""
    original = comparer.World

    def world(name, text, optimize=None, **options):
        made = original(name, text, None, **options)
        made.globals["PLAIN"] = optimize is None
        made.hidden.add("PLAIN")
        return made

    monkeypatch.setattr(comparer, "World", world)


PARTS = """
    g, lengths = torch.ones(4, 3), {lengths}
    parts = g[: lengths[0]].data, g[-lengths[1] :].data
    leaves = [torch.zeros(n, 3, requires_grad=True) for n in lengths]
    for leaf, part in zip(leaves, parts):
        leaf.grad = part if PLAIN else part.clone()
    return leaves
"""


@pytest.mark.parametrize("lengths, differs", [((2, 2), False), ((1, 3), False), ((4, 4), True)])
def test_gradients_may_be_parts_of_one_storage_but_not_one_memory(two_sided, lengths, differs):
    text = f"{HEAD}\ndef fn(x):{PARTS.format(lengths=lengths)}\n{CALLS}"
    found = comparer.compare(Program(0, text, "eager", {}))
    assert (found is not None and "aliasing differs" in found.message) if differs else found is None, found


def test_how_often_torch_warns_of_a_dtype_for_memory_in_between_is_no_difference(two_sided):
    words = f"{comparer.OF_EACH_MEMORY}."
    body = f"for _ in range(1 + PLAIN):\n        warnings.warn({words!r})\n    return x"
    text = f"{HEAD}\ndef fn(x):\n    {body}\n{CALLS}"
    assert comparer.compare(Program(0, text, "eager", {})) is None
    found = comparer.compare(Program(0, text.replace("1 + PLAIN", "int(PLAIN)"), "eager", {}))
    assert found is not None and found.kind == "warnings"


@pytest.mark.parametrize("message", list(DIFFERENT))
def test_differences_are_seen(two_sided, message):
    text = f"{HEAD}\ndef fn(x):\n    y = x + 1\n    {DIFFERENT[message]}\n{CALLS}"
    for backend in ("eager", "fuse"):
        found = comparer.compare(Program(0, text, backend, {}))
        assert found is not None and message in f"{found.message}{found.kind}", found


def test_a_line_is_seen(two_sided):
    text = f"{HEAD}\ndef fn(x):\n    if PLAIN:\n        raise ValueError\n    raise ValueError\n{CALLS}"
    found = comparer.compare(Program(0, text, "eager", {}))
    assert found is not None and found.kind == "line"


def test_reduction(two_sided):
    body = (
        "class Unused:\n    pass\n\ndef fn(x):\n    y = x + 1\n    if len(STATE):\n        z = y * 2\n"
        "        print('here', PLAIN)\n    return y"
    )
    text = f"{HEAD}\n{body}\n{CALLS}{CALLS.replace('call_0', 'call_1')}"
    program = Program(0, text, "eager", {})
    found = comparer.compare(program)
    small = reduced(program, found.signature)
    assert comparer.compare(small).signature == found.signature
    assert "Unused" not in small.text and "z =" not in small.text and small.text.count("def ") == 2


def test_rounding_is_no_difference():
    """The sum of numbers that cancel differs by as much as rounding can move it."""
    calls = CALLS.replace("torch.arange(6.0).reshape(2, 3)", "torch.randn(7, 33)")
    text = (
        "import torch\ndef fn(x):\n    y = x * 3.3\n"
        f"    return (y.exp() * y.sin()).sum(-1) - y.mean(), (x - x.mean()).sum()\n{calls}"
    )
    assert comparer.compare(Program(1, text, "fuse", {})) is None


def test_a_branch_on_the_sign_of_what_rounding_leaves_is_no_difference():
    """Few worlds in which rounding goes another way may all take the branch that eager takes."""
    calls = "".join(f"def call_{i}(invoke):\n    return invoke(torch.randn(8, 4))\n" for i in range(30))
    text = (
        "import torch\ndef fn(x):\n    y = x + 1\n    y = y - y.mean()\n"
        f"    return torch.where(y.sum() > 0, y - 1, y)\n{calls}"
    )
    assert comparer.compare(Program(1, text, "fuse", {})) is None


@pytest.mark.parametrize("left, differs", [(3e-8, False), (3e-6, True)])
def test_gradients_that_cancel_but_for_rounding_are_no_difference(left, differs):
    """A softmax's numbers sum to one, so that the gradient of their sum is zero, or as much as rounding leaves."""
    strict = comparer.Strict(exact=False)
    strict.same(leaf_with_gradient(0.0), leaf_with_gradient(left), "x")
    program = Program(0, f"{HEAD}\ndef fn(x):\n    return x\n{CALLS}", "eager", {})
    assert strict.suspects
    assert (comparer.beyond_rounding(program, 0, [], strict) is not None) is differs


def leaf_with_gradient(number: float) -> torch.Tensor:
    leaf = torch.ones(4, requires_grad=True)
    leaf.grad = torch.full((4,), number)
    return leaf


def test_frames_of_c_in_messages_are_no_difference():
    def raised(text: str) -> RuntimeError:
        return RuntimeError(f"no such dimension\nframe #0: {text} (0x7f)\nframe #1: _start")

    comparer.Strict(exact=False).same(raised("one"), raised("another"), "exception")
    with pytest.raises(AssertionError, match="no such dimension"):
        comparer.Strict(exact=False).same(raised("one"), RuntimeError("no such size\nframe #0: one"), "exception")


def test_more_than_rounding_is_one(monkeypatch):
    text = "import torch\ndef fn(x):\n    return x.sin() * (1 if PLAIN else 1 + 1e-5)\nPLAIN = True\n" + CALLS
    world = comparer.World

    def changed(name, text, optimize=None, **options):
        made = world(name, text, None, **options)
        made.globals["PLAIN"] = optimize is None
        made.hidden.add("PLAIN")
        return made

    monkeypatch.setattr(comparer, "World", changed)
    found = comparer.compare(Program(1, text, "fuse", {}))
    assert found is not None and found.kind == "numbers"


@pytest.mark.parametrize("exact", [True, False])
def test_halves_of_complex_numbers_are_compared(exact):
    one, two = (torch.tensor([number, complex("nan")]).to(torch.complex32) for number in (1 + 2j, 1 + 3j))
    same, other = comparer.Strict(exact), comparer.Strict(exact)
    same.same(one, one.clone(), "result")
    assert not same.suspects
    with pytest.raises(AssertionError, match="result: ") if exact else contextlib.nullcontext():
        other.same(one, two, "result")
    assert bool(other.suspects) is not exact


@pytest.mark.parametrize("values", ["[time.perf_counter_ns()]", "x + time.perf_counter_ns() % 1000"])
def test_what_differs_in_plain_python_too_is_no_difference(values):
    """Some kernels of torch's, such as the median along an expanded dimension, read memory that nothing was written
    to."""
    assert (
        comparer.compare(
            Program(0, f"import time\nimport torch\ndef fn(x):\n    return {values}\n{CALLS}", "eager", {})
        )
        is None
    )


NORMALISED = (
    "y = torch.nn.functional.batch_norm(torch.full((3, 1), 0.5), None, None, training=True); return y if PLAIN else y "
    "+ "
)
TORCHS_OWN = {
    "sign of a NaN": (
        "y = x.new_full((3,), -1).sqrt(); return torch.ones(3).copysign(y if PLAIN else -y)",
        "y = x.new_full((3,), -1).exp(); return torch.ones(3).copysign(y if PLAIN else -y)",
    ),
    "gelu that overflows": (
        "y = torch.nn.functional.gelu(x + float('inf')); return y if PLAIN else torch.full_like(y, float('inf'))",
        "y = torch.nn.functional.gelu(x + 9.0); return y if PLAIN else torch.full_like(y, float('inf'))",
    ),
    "mean of equal numbers": (f"{NORMALISED}1e-5", f"{NORMALISED}1e-2"),
    "what overflows float16 in between": (
        "y = x.half() * 1e5; return y.float() / 1e5 if PLAIN else x + 0",
        "y = x.half() * 1e4; return y.float() / 1e4 if PLAIN else x + 1",
    ),
    "digits that a kernel keeps": (
        "y = x.bfloat16() / 3 + 1; return y.sum() if PLAIN else (x.bfloat16() / 3).float().add(1).sum().bfloat16()",
        "y = x.bfloat16() / 3 + 1; return y.sum() if PLAIN else (x / 3).add(4).sum().bfloat16()",
    ),
}


TORCHS_OWN |= {
    "digits of complex numbers": (
        "z = torch.complex(x, x + 1) / 3; return z * (1 if PLAIN else 1.0000002) - z",
        "z = torch.complex(x, x + 1) / 3; return z * (1 if PLAIN else 1.001) - z",
    ),
    "what cancels in gelu": (
        "return torch.nn.functional.gelu(-x) + (0 if PLAIN else 1e-7) * x",
        "return torch.nn.functional.gelu(-x) + (0 if PLAIN else 1e-4) * x",
    ),
}


class Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("refused")


def test_a_refused_backward_leaves_no_gradients():
    """How many it leaves depends on how many operations one node holds."""
    weight, other = (torch.ones(3, requires_grad=True) for _ in range(2))
    made = [Refused.apply(weight * 2), other * 3]
    with pytest.raises(RuntimeError):
        torch.autograd.backward([out.sum() for out in made], retain_graph=True)
    assert other.grad is not None
    assert str(differentiate(made)) == "refused"
    assert weight.grad is other.grad is None


@pytest.mark.parametrize(("message", "differs"), [("[4] is at version 1", False), ("", True)])
def test_which_kept_tensor_was_written_is_no_difference(message, differs):
    """A backward that is refused names one that autograd keeps, and another may be kept."""
    refused = "one of the variables needed for gradient computation has been modified by an inplace operation: "
    seen = [Observed(gradient_error=RuntimeError(refused + "[1, 4] is at version 1"))]
    seen.append(Observed(gradient_error=RuntimeError(refused + message) if message else None))
    program = Program(0, f"{HEAD}\ndef fn(x):\n    return x\n{CALLS}", "eager", {})
    assert (comparer.difference_of(program, 0, *seen, captured=False) is not None) is differs


@pytest.mark.parametrize("name", TORCHS_OWN)
def test_what_no_kernel_promises_is_no_difference(two_sided, name):
    own, other = (
        comparer.compare(Program(1, f"{HEAD}\ndef fn(x):\n    {body}\n{CALLS}", "fuse", {}))
        for body in TORCHS_OWN[name]
    )
    assert own is None and other is not None


@pytest.mark.parametrize(("printed", "differs"), [("closed", False), ("opened", True)])
def test_when_a_cycle_dies_is_no_difference(two_sided, printed, differs):
    body = f"""
def steps():
    try:
        yield
    finally:
        print('closed')

def fn(x):
    if PLAIN:
        it = steps()
        next(it)
        own = [it]
        own.append(own)
    else:
        print('{printed}')
"""
    assert (comparer.compare(Program(0, f"{HEAD}{body}{CALLS}", "eager", {})) is not None) == differs


def test_a_history_that_torch_refuses_to_look_for():
    """Of a view made without gradients and written since not even `grad_fn` can be read: that is what came of it."""
    base = torch.ones(2, requires_grad=True).clone()
    with torch.no_grad():
        view = base[:1]
    base.mul_(2)
    assert isinstance(differentiate([view]), RuntimeError)
