"""flex_attention in captured code: one graph, whatever scores and masks the program computes."""
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from support import Pair, check, seed


def heads(count=2, dtype=torch.float32, dim=8):
    return torch.randn(2, count, 16, dim, dtype=dtype)


seed(3)
Q, K, V = heads(), heads(), heads()
BIAS, DOCUMENTS = torch.randn(2, 16), torch.arange(16) // 5


@pytest.fixture(autouse=True)
def warned():
    """Plain Python says once in a process that it does not compile this, which is no difference."""
    flex_attention(Q, K, V)


def test_scores_that_are_left_as_they_are():
    check(lambda q, k, v: flex_attention(q, k, v) * 2, Q, K, V, changed=[(K, V, Q)])


def test_scores_by_place_and_by_tensors_from_outside():
    def fn(q, k, v, bias, slope):
        def score(s, b, h, i, j):
            return s * slope + bias[h, j] - (i - j).abs()

        return flex_attention(q, k, v, score_mod=score, scale=0.5, return_lse=True)

    changed = [(Q, K, V, BIAS * 3, 2.0)]
    if torch.__version__ < "2.14":  # there Dynamo traces the score, and raises for another number
        changed.append((Q, K, V, BIAS, -1.0))
    check(fn, Q, K, V, BIAS, 2.0, changed=changed)


def test_a_mask_that_was_made_before():
    def causal(b, h, i, j):
        return i >= j

    mask, other = (
        create_block_mask(m, None, None, 16, 16, device="cpu", BLOCK_SIZE=8) for m in (causal, lambda b, h, i, j: i < j)
    )
    world = {"mask": mask}

    def make():
        return lambda q, k, v: flex_attention(q, k, v, block_mask=world["mask"])

    pair = Pair(make)
    pair.call(Q, K, V)
    pair.call(K, Q, V, captures=False)
    world["mask"] = other
    pair.call(Q, K, V)
    pair.expect(breaks=0)


def test_a_mask_that_is_made_inside():
    def fn(q, k, v, documents):
        def same(b, h, i, j):
            return (documents[i] == documents[j]) & (i >= j)

        mask = create_block_mask(same, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)
        return flex_attention(q, k, v, block_mask=mask), mask.kv_num_blocks, mask.to_dense()

    check(fn, Q, K, V, DOCUMENTS, changed=[(Q, K, V, DOCUMENTS * 0)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes_layouts_and_shared_heads(dtype):
    def fn(q, k, v):
        out, sums = flex_attention(q.transpose(1, 2), k, v, enable_gqa=True, return_lse=True)
        return out.transpose(1, 2).reshape(2, 16, -1), sums

    check(fn, heads(4, dtype).transpose(1, 2).contiguous(), heads(2, dtype), heads(2, dtype, 4))


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"])
def test_gradients(device, monkeypatch):
    """Torch refuses them on CPUs, though what it does in plain Python has them there too."""
    def fn(q, k, v, bias):
        def score(s, b, h, i, j):
            return s.tanh() * 3 + bias[h, j] + i * 0.1

        return flex_attention(q * 1, k, v, score_mod=score).sin().sum()

    given = [t.to(device) for t in (Q, K, V, BIAS)]
    if device == "cpu":
        check(fn, *(t.clone().requires_grad_() for t in given), raises=NotImplementedError)
        monkeypatch.setattr(torch.nn.attention.flex_attention, "_validate_device", lambda *tensors: None)
    pair = check(fn, *(t.clone().requires_grad_() for t in given))
    eager, own = ([t.clone().requires_grad_() for t in given] for _ in range(2))
    fn(*eager).backward()
    pair.compiled(*own).backward()
    for a, b in zip(eager, own):
        torch.testing.assert_close(a.grad, b.grad)


def test_what_torch_refuses_raises_as_it_does():
    check(lambda q, k, v: flex_attention(q, k, v), Q, K[:, :1], V[:, :1], raises=ValueError)
    check(lambda q, k, v: flex_attention(q[0], k, v), Q, K, V, raises=NotImplementedError)
