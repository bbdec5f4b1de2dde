"""`x[mask] = value` becomes part of a kernel, with its gradients, where the value does not depend on how many places
there are; what eager refuses is refused, and other writes at places are ATen's."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

X = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
MASK = X > 0.1
ROWS, COLUMNS = torch.tensor([True, False]), torch.tensor([True, False, False, True])
SOME = torch.tensor([[True, False, True], [False, False, True]])


@pytest.fixture(autouse=True)
def captured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framejit.config, "keep_captures", False)


def same(fn: Callable[..., Any], *inputs: Any, fused: bool = True, dynamic: bool | None = None) -> None:
    """Two calls give what eager gives, leave the same in inputs, and have the same gradients."""
    fast = framejit.optimize(fn, dynamic=dynamic)
    floating = [each.is_floating_point() if isinstance(each, torch.Tensor) else False for each in inputs]
    for wanted in (False, True):
        for _ in range(2):
            found = []
            for each in (fn, fast):
                given = [i.detach().clone() if isinstance(i, torch.Tensor) else i for i in inputs]
                leaves = [i.requires_grad_(wanted) for i, is_floating in zip(given, floating) if is_floating]
                result = each(*given)
                gradients = torch.autograd.grad(result.sum(), leaves) if wanted and result.requires_grad else ()
                found.append((result.detach(), [i.detach() for i in given if isinstance(i, torch.Tensor)], gradients))
            torch.testing.assert_close(found[1], found[0], equal_nan=True)
            assert found[0][0].stride() == found[1][0].stride()
    texts = [str(graph) for graph in framejit.inspect(fast).graphs]
    assert any("index_put" in text for text in texts) != fused, texts


def put(x: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    made = x * 2
    made[key] = value
    return made.exp()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("value", [0.0, 3, True, float("-inf"), float("nan"), torch.tensor(2.0), torch.ones(1)])
def test_one_value(value: Any, dynamic: bool | None) -> None:
    same(lambda x, mask: put(x, mask, value), X, MASK, dynamic=dynamic)


@pytest.mark.parametrize("none", [False, True])
def test_values_that_have_gradients(none: bool) -> None:
    mask = MASK & (not none)
    same(put, X, mask, torch.tensor(2.0))
    same(lambda x, mask, value: put(x, mask[0, 0], value), X.permute(2, 0, 1), mask, torch.rand(2, 3))
    same(lambda x, mask, value: put(x, mask[:, 0, 0], value), X, mask, torch.rand(4))


@pytest.mark.parametrize(
    "key",
    [
        lambda: (slice(None), COLUMNS[:3]), lambda: (..., COLUMNS), lambda: (ROWS, ...), lambda: SOME,
        lambda: (SOME, slice(None)), lambda: (ROWS, slice(None), slice(None)), lambda: (slice(None), ..., COLUMNS),
        lambda: (..., COLUMNS[:3], slice(None)),
    ],
)
def test_masks_of_some_dimensions(key: Callable[[], Any]) -> None:
    same(lambda x: put(x, key(), -1.0), X)


def test_the_functions() -> None:
    same(lambda x, mask: (x * 1).index_put_((mask,), torch.tensor(3.0)).exp(), X, MASK)
    same(lambda x, rows: torch.index_put(x, (rows,), torch.tensor(3.0)) * x, X, ROWS)
    same(lambda x, mask: (x * 1).index_put([mask], torch.tensor(3.0), accumulate=False), X, SOME)
    same(lambda x, mask, value: torch.index_put(x, [mask], value, False).exp(), X, SOME, torch.rand(4))
    same(lambda x, mask: torch.ops.aten.index_put_(x * 1, [mask], torch.tensor(3.0)), X, MASK)
    same(lambda x, mask: (x * 1).index_put((mask,), torch.tensor(3.0), True), X, MASK, fused=False)


def test_inputs_and_views_that_are_written() -> None:
    def fn(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x.detach()[mask] = 5.0
        made = x * 2
        made[0][mask[0]] = 1.0
        made.t()[mask[1].unsqueeze(1).expand(-1, 2)] = 4.0
        return made

    same(fn, X[0, :2], MASK[0, :2])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(torch.int64, 7), (torch.uint8, 255), (torch.bool, True), (torch.float16, 6e4), (torch.complex64, 2.5)],
)
def test_dtypes(dtype: torch.dtype, value: Any) -> None:
    def fn(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made = x.to(dtype)
        made[mask] = value
        return made

    fast = framejit.optimize(fn)
    for _ in range(2):
        torch.testing.assert_close(fast(X.abs(), MASK), fn(X.abs(), MASK))


@pytest.mark.parametrize("shape", [(5,), (1, 4), (11,)])
def test_values_for_each_place_are_atens(shape: tuple[int, ...]) -> None:
    value = torch.rand(shape)
    key = SOME if len(shape) == 2 else MASK

    def fn(x: torch.Tensor) -> torch.Tensor:
        made = x * 2
        made[key] = value
        return made.exp()

    for each in (fn, framejit.optimize(fn)):
        if shape == (5,):
            with pytest.raises(RuntimeError, match="shape mismatch"):
                each(X)
        else:
            torch.testing.assert_close(each(X), fn(X))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(torch.uint8, 300), (torch.float16, 1e6), (torch.int32, 1 << 40), (torch.float32, X[0, 0, 0].double())],
)
def test_what_eager_refuses(dtype: torch.dtype, value: Any) -> None:
    def fn(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made = x.to(dtype)
        made[mask] = value
        return made

    outcomes = []
    for each in (fn, framejit.optimize(fn)):
        try:
            outcomes.append(each(X.abs(), MASK).tolist())
        except RuntimeError as e:
            outcomes.append(str(e))
    assert outcomes[1] == outcomes[0]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("sizes", [(1, 3, 4), (2, 3, 1), (1,), (2, 1), (3,), (2, 4)])
def test_masks_of_other_sizes(sizes: tuple[int, ...], dynamic: bool | None) -> None:
    """One element stands for no more than itself."""
    mask = torch.ones(sizes, dtype=torch.bool)
    for each in (put, framejit.optimize(put, dynamic=dynamic)):
        for _ in range(2):
            with pytest.raises(IndexError, match="shape of the mask"):
                each(X, mask, 1.0)
