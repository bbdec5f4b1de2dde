"""What torch refuses though fakes accept it: a graph must not have written anything by then."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal import common_methods_invocations
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import framejit
from framejit.backends.may_raise import DIVISIONS, QUIET, SUBSCRIPTS, always_works, may_raise
from framejit.fakes.metadata import Metadata

INPUTS = (torch.ones(3), torch.ones(2, 4), torch.tensor(1.0), torch.ones(0))
OTHERS = (torch.ones(2), torch.ones(2, 3))
SELF, ONE, TWO = object(), object(), object()
MORE = [
    (), (0,), (1,), (-7,), (0.0,), (SELF,), (SELF, SELF), (ONE,), (TWO,), (ONE, ONE), (0, ONE), (ONE, 0), ([],),
    ((2, 2),), (True,), (5, 1, 9),
]
"""The arguments behind the first one."""


def _forms(name: str) -> Iterator[Callable[..., Any]]:
    for room in (torch, torch.Tensor, F, torch.linalg, torch.special, torch.fft):
        for form in (name, f"{name}_", name.removeprefix("linalg_")):
            function = getattr(room, form, None)
            # that of functorch's dimensions, which does not end
            if callable(function) and not isinstance(function, type) and form != "index":
                yield function


def _calls(name: str) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
    for function in dict.fromkeys(_forms(name)):
        for first in INPUTS:
            values = {SELF: first, ONE: OTHERS[0], TWO: OTHERS[1]}
            for more in MORE:
                yield (
                    function,
                    (first, *[values.get(value, value) if value in (SELF, ONE, TWO) else value for value in more]),
                )


def _given(args: tuple[Any, ...], of: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return tree_map(lambda value: of(value) if isinstance(value, torch.Tensor) else value, args)


def _raises(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        function(*args, **kwargs)
    except Exception:
        return True
    return False


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(4))
def test_what_always_works_is_refused_on_fakes_too(part, monkeypatch):
    monkeypatch.setattr(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)
    metadata, wrong = Metadata(), {}
    for name in sorted(QUIET | SUBSCRIPTS | DIVISIONS)[part::4]:
        for function, args in _calls(name):
            # in the order of what they take
            if (
                name not in wrong
                and always_works(function, args, {}, None)
                and not may_raise(function, args, {})
                and _raises(function, *_given(args, torch.clone))
                and not _raises(metadata.run, function, False, _given(args, metadata.mode.from_tensor), {})
            ):
                wrong[name] = args
    assert not wrong


OTHER_SIZES = {
    "a dimension in front": lambda tensor: tensor.unsqueeze(0), "a dimension behind": lambda tensor: tensor[..., None],
    "one": lambda tensor: tensor[:1] if tensor.dim() else tensor,
    "twice as many": lambda tensor: torch.cat((tensor, tensor)) if tensor.dim() else tensor.expand(2),
    "in a row": lambda tensor: tensor.reshape(-1),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tensors_of_other_sizes_are_refused_on_fakes_too(monkeypatch):
    """Of samples of all operations, each tensor in other sizes."""
    monkeypatch.setattr(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)
    metadata, wrong, tried = Metadata(), {}, 0
    for op in common_methods_invocations.op_db:
        samples = op.sample_inputs("cpu", torch.float32) if torch.float32 in op.dtypes else ()
        for sample in itertools.islice(samples, 4):
            leaves, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
            if any(isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided for leaf in leaves):
                continue
            places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
            for place, (name, change) in itertools.product(places, OTHER_SIZES.items()):
                given = [*leaves]
                given[place] = change(leaves[place].detach())
                args, kwargs = tree_unflatten(given, spec)
                if not always_works(op.op, args, kwargs, None) or may_raise(op.op, args, kwargs):
                    continue
                tried += 1
                args, kwargs = _given((args, kwargs), lambda tensor: tensor.detach().clone())
                fakes = _given((args, kwargs), metadata.mode.from_tensor)
                if _raises(op.op, *args, **kwargs) and not _raises(metadata.run, op.op, False, *fakes):
                    wrong.setdefault(op.full_name, (place, name))
    assert not wrong and tried > 2000


REFUSED = {
    "a dimension that is none": lambda x: x.softmax(5),
    "a number": lambda x: F.celu(x, 0.0),
    "sizes": lambda x: torch.diagonal_scatter(x, x[0]),
    "a target of another size": lambda x: x[0, 0].clamp_(min=x[0]),
    "no elements": lambda x: x[:, :0].max(),
    "a boolean": lambda x: x.sub(True),
    "a device": lambda x: x.to("cuda:99"),
    "a new tensor's device": lambda x: torch.ones(2, device="cuda:99") + 1,
    "what is added to a product": lambda x: torch.addmm(x[None], x, x.T @ x),
    "more than a product": lambda x: torch.addmv(x[:, 0].repeat(2), x, x[0]),
    "a bias": lambda x: F.linear(x, x[:1], x[0]),
    "the weights of a group norm": lambda x: F.group_norm(x, 2, x[0, :1]),
    "statistics of a batch norm": lambda x: F.batch_norm(x, x[:1], x[0].clone(), training=True),
    "fewer statistics of a batch norm": lambda x: F.batch_norm(x, x[0, :2], x[0], training=True),
    "the sizes of what is selected": lambda x: x.select_scatter(x[:, :1], 1, 0),
}


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("kind", REFUSED)
def test_a_write_before_is_done_once(kind, backend):
    def fn(x, y):
        y.add_(1)
        REFUSED[kind](x)

    fast = framejit.optimize(fn, backend=backend)
    for _ in range(4):
        x, y, outcomes = torch.ones(3, 4), torch.zeros(2), []
        for function in (fn, fast):
            with pytest.raises(Exception) as caught:
                function(x, y)
            outcomes.append((type(caught.value), str(caught.value).partition("\n")[0]))
        assert y.tolist() == [2.0, 2.0] and outcomes[0] == outcomes[1]
