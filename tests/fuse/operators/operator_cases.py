"""Every operator of torch's own test database, with samples of its arguments, as functions of tensors only."""

from __future__ import annotations

import itertools
import random
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy
import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

DTYPES: Final = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
OTHER_DTYPES: Final = (torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64)
"""Dtypes in which an operator is tried if it is not meant for them."""
MOST_ERRORS: Final = 12
SAMPLES: Final = {torch.float32: 6}
"""How many samples of an operator are tried in a dtype; others: `FEW`."""
FEW: Final = 3
LOOKED_AT: Final = 40
"""Samples among which those that are tried are chosen, evenly spread: the first ones tend to be alike."""
MOST_ELEMENTS: Final = 50_000
UNDEFINED: Final = frozenset(
    ("empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted")
)
"""Operators whose results have no values to compare."""


@dataclass(eq=False)
class Case:
    """A call of an operator: `function` of `tensors` alone gives its results as a flat list."""

    operator: str
    variant: str
    """`function`, `method`, `inplace`, `out`, `error`, or `dtype` for one in a dtype that the operator is not for."""
    dtype: torch.dtype
    function: Callable[..., list[Any]]
    tensors: list[torch.Tensor]
    defined: bool = True

    def __str__(self) -> str:
        shapes = ", ".join(
            f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}{list(t.stride())}" for t in self.tensors
        )
        return f"{self.operator} ({self.variant}, {str(self.dtype).removeprefix('torch.')}) of {shapes}"


@cache
def operators() -> dict[str, Any]:
    """torch's descriptions of operators, by name."""
    if "expecttest" not in sys.modules:
        try:
            import expecttest  # noqa: F401
        except ImportError:  # torch's tests want it for nothing that is needed here
            stub: Any = types.ModuleType("expecttest")
            stub.TestCase = unittest.TestCase
            sys.modules["expecttest"] = stub
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db

    # some descriptions seed the generator within the operator; the stream of random numbers is to be the same without
    # that
    replaced: dict[str, Callable[..., Any]] = {"wrapper_set_seed": lambda op, *args, **kwargs: op(*args, **kwargs)}
    # both look at the whole stack for each sample, which takes longer than what is done with it: for the method of
    # unittest's that asks for samples, where there is none, and for tracebacks of what CUDA is to do once it is there
    replaced["extract_test_fn"] = lambda: None
    replaced["set_rng_seed"] = lambda seed=None: _seed(common_utils.SEED if seed is None else seed)
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal"):
            vars(module).update({name: function for name, function in replaced.items() if name in vars(module)})
    return {f"{op.name}{'.' if op.variant_test_name else ''}{op.variant_test_name}": op for op in op_db}


def _seed(seed: int) -> None:
    """Seed random numbers as torch's tests do, on a CPU."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def cases(name: str) -> Iterator[Case]:
    """The cases of an operator. Those whose arguments hold no tensor, or sparse or quantized ones, are left out."""
    op = operators()[name]
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        samples = _spread(_samples(op, dtype), SAMPLES.get(dtype, FEW))
        for number, sample in enumerate(samples):
            yield from _variants(name, op, dtype, sample, all_of_them=not number and dtype == torch.float32)
    if op.error_inputs_func is not None:
        for error in itertools.islice(op.error_inputs("cpu"), MOST_ERRORS):
            sample = error.sample_input
            if isinstance(sample.input, torch.Tensor):
                made = _case(name, "error", sample.input.dtype, op.op, (sample.input, *sample.args), sample.kwargs)
                if made is not None:
                    yield made
    yield from _of_other_dtypes(name, op)


def _of_other_dtypes(name: str, op: Any) -> Iterator[Case]:
    """A sample of an operator in each dtype that it is not meant for."""
    supported = op.supported_dtypes("cpu")
    base = next((dtype for dtype in (torch.float32, torch.int64, torch.bool) if dtype in supported), None)
    samples = [] if base is None else [sample for sample in _samples(op, base)[:LOOKED_AT] if _is_of(sample, base)]
    for dtype in OTHER_DTYPES:
        if dtype in supported or not samples:
            continue
        sample = samples[len(samples) // 2]
        args, kwargs = tree_map(
            lambda value, dtype=dtype: _converted(value, dtype), ((sample.input, *sample.args), sample.kwargs)
        )
        for variant, function in (("dtype", op.op), ("dtype in place", op.inplace_variant)):
            made = _case(name, variant, dtype, function, args, kwargs) if function is not None else None
            if made is not None:
                yield made


def _is_of(sample: Any, dtype: torch.dtype) -> bool:
    return isinstance(sample.input, torch.Tensor) and sample.input.dtype == dtype and _is_plain(sample.input)


def _converted(value: Any, dtype: torch.dtype) -> Any:
    """Floating-point tensors in another dtype; indices and masks as they are."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().abs().add(1).to(dtype) if not dtype.is_floating_point else value.detach().to(dtype)


def _samples(op: Any, dtype: torch.dtype) -> list[Any]:
    torch.default_generator.manual_seed(0)
    try:
        return list(itertools.islice(op.sample_inputs("cpu", dtype), LOOKED_AT))
    except (RuntimeError, TypeError, ValueError, ImportError, NotImplementedError):
        # the database has operators that do not exist on every machine
        return []


def _spread(items: Sequence[Any], number: int) -> list[Any]:
    if len(items) <= number:
        return list(items)
    return [items[position * (len(items) - 1) // (number - 1)] for position in range(number)]


def _variants(name: str, op: Any, dtype: torch.dtype, sample: Any, all_of_them: bool) -> Iterator[Case]:
    args, kwargs = (sample.input, *sample.args), sample.kwargs
    variants = [("function", op.op)]
    if op.inplace_variant is not None:
        variants.append(("inplace", op.inplace_variant))
    if all_of_them and op.method_variant is not None:
        variants.append(("method", op.method_variant))
    for variant, function in variants:
        made = _case(name, variant, dtype, function, args, kwargs)
        if made is not None:
            yield made
    if all_of_them and op.supports_out:
        made = _out_case(name, op, dtype, args, kwargs)
        if made is not None:
            yield made


def _case(
    name: str, variant: str, dtype: torch.dtype, function: Callable[..., Any], args: Any, kwargs: Any
) -> Case | None:
    leaves, spec = tree_flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[place].detach() for place in places]
    if not tensors or not all(_is_plain(tensor) for tensor in tensors):
        return None

    def call(*given: torch.Tensor) -> list[Any]:
        own = list(leaves)
        for place, tensor in zip(places, given, strict=True):
            own[place] = tensor
        own_args, own_kwargs = tree_unflatten(own, spec)
        return tree_flatten(function(*own_args, **own_kwargs))[0]

    return Case(name, variant, dtype, call, tensors, defined=name not in UNDEFINED)


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_quantized
        and tensor.numel() <= MOST_ELEMENTS
    )


def _out_case(name: str, op: Any, dtype: torch.dtype, args: Any, kwargs: Any) -> Case | None:
    try:
        results = op.op(*args, **kwargs)
    except Exception:
        return None
    flat = tree_flatten(results)[0]
    if not flat or not all(isinstance(result, torch.Tensor) and _is_plain(result) for result in flat):
        return None
    out = [torch.empty_strided(result.shape, result.stride(), dtype=result.dtype).zero_() for result in flat]
    return _case(
        name, "out", dtype, op.op, args, {**kwargs, "out": out[0] if isinstance(results, torch.Tensor) else tuple(out)}
    )
