"""Existing views in another dtype than their base's, which as a whole may not be seen in it."""

import pytest
import torch

import framejit

VIEWS = {
    "pairs of a row": lambda x: torch.view_as_complex(x.reshape(3, 4, 2)),
    "pairs of a list": lambda x: torch.view_as_complex(x.view(-1)[2:14].view(6, 2)),
    "pairs of pairs": lambda x: torch.view_as_complex(x.view(3, 4, 2))[1:, ::2],
    "parts of pairs": lambda x: torch.view_as_complex(x.view(3, 4, 2)).real,
    "turned around": lambda x: torch.view_as_complex(x.view(3, 4, 2)).conj(),
    "nothing": lambda x: torch.view_as_complex(x[:0].reshape(0, 2)),
}


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_complex_views_of_real_numbers(view, wanted, backend):
    def fn(z, x):
        return z * 2 + 1, z.abs().sum(), x.sum()

    optimized = framejit.optimize(fn, fullgraph=True, backend=backend)
    for n in range(2):
        found = []
        for each in (fn, optimized):
            x = (torch.arange(24.0).view(3, 8) + n).requires_grad_(wanted)
            made = each(view(x), x)
            if wanted:
                (made[1] + made[2]).backward()
            found.append((*made, x.grad))
        torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("dtype", [torch.int16, torch.int64, torch.uint8, torch.float64])
def test_views_of_bytes(dtype):
    def fn(a):
        return a + 1, a.shape

    optimized = framejit.optimize(fn, fullgraph=True)
    x = torch.arange(30, dtype=torch.int32).view(5, 6)
    for part in (x[:, :4], x[1:, 2:], x.view(3, 10)[:, :8]):
        given = part.view(dtype)
        torch.testing.assert_close(optimized(given), fn(given))


def test_writes_through_both():
    def fn(z, x):
        z.mul_(2)
        x.add_(1)
        return z + 1

    optimized = framejit.optimize(fn)
    for _ in range(2):
        found = []
        for each in (fn, optimized):
            x = torch.arange(24.0).view(3, 8)
            found.append((each(torch.view_as_complex(x.view(3, 4, 2)), x), x))
        torch.testing.assert_close(found[0], found[1])


def test_sizes_that_no_memory_has():
    """A resize that raises leaves them behind. Plain Python says what is wrong with the tensor."""
    x = torch.empty((), dtype=torch.float64)
    with pytest.raises(RuntimeError):
        x.resize_([8, 8, 2**29, 2**29])
    optimized = framejit.optimize(lambda t: t + 1)
    with pytest.raises(RuntimeError, match="overflow"):
        optimized(x)
