"""Gradients on a GPU, of every parameter and input, against eager's: in a first and a second step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit

pytestmark = pytest.mark.gpu

FAR = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}
"""How far gradients may be from eager's, of their norm."""


class Attention(nn.Module):
    """Heads of a width, with what `scaled_dot_product_attention` is given."""

    def __init__(self, width: int = 64, heads: int = 2, mask: str = "", causal: bool = False, groups: int = 1) -> None:
        super().__init__()
        self.heads, self.width, self.mask, self.causal, self.groups = heads, width, mask, causal, groups
        self.queries = nn.Linear(64, heads * width)
        self.keys, self.values = (nn.Linear(64, heads // groups * width, bias=False) for _ in range(2))
        self.norm, self.out = nn.LayerNorm(64), nn.Linear(heads * width, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = (
            each(y).unflatten(-1, (-1, self.width)).transpose(1, 2) for each in (self.queries, self.keys, self.values)
        )
        mask = None
        if self.mask == "lengths":
            mask = (torch.arange(x.shape[1], device=x.device) < x.shape[1] - 3)[None, :]
        elif self.mask == "distances":
            places = torch.arange(x.shape[1], device=x.device)
            mask = -(places[:, None] - places[None, :]).abs().to(q.dtype) / 8
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.causal, enable_gqa=self.groups > 1
        )
        return x + self.out(y.transpose(1, 2).flatten(2))


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.deep, self.groups, self.head = nn.Conv2d(16, 32, 3), nn.GroupNorm(4, 32), nn.Linear(32, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.max_pool2d(self.norm(self.stem(x)).relu(), 3, stride=2, padding=1)
        return self.head(F.gelu(self.groups(self.deep(y))).mean((2, 3)))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.block = nn.Embedding(99, 64), Attention(causal=True)
        self.up, self.down, self.norm = nn.Linear(64, 256), nn.Linear(256, 64), nn.RMSNorm(64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.block, self.embedding(ids), use_reentrant=False)
        x = x + self.down(F.silu(self.up(self.norm(x))))
        logits = F.linear(x, self.embedding.weight)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def sequences(dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(2, 40, 64, device="cuda", dtype=dtype)


def images(dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(4, 3, 20, 18, device="cuda", dtype=dtype)


def words(dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, 99, (2, 33), device="cuda")


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.dtype], torch.Tensor]]] = {
    "attention": (Attention, sequences),
    "causal attention": (lambda: Attention(causal=True), sequences),
    "attention of odd heads": (lambda: Attention(width=20, causal=True), sequences),
    "attention with lengths": (lambda: Attention(mask="lengths"), sequences),
    "attention with distances": (lambda: Attention(mask="distances"), sequences),
    "attention of groups": (lambda: Attention(heads=4, groups=2, causal=True), sequences),
    "convolutions": (Images, images),
    "words": (Words, words),
}


def gradients(run: Callable[..., Any], module: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
    given = x.clone().requires_grad_(x.is_floating_point())
    loss = run(module, given)
    loss.backward()
    return loss.detach(), {"input": given.grad, **{name: p.grad for name, p in module.named_parameters()}}


def agree(found: Any, expected: Any, far: float) -> None:
    torch.testing.assert_close(found[0], expected[0], rtol=far, atol=far)
    for name, gradient in expected[1].items():
        mine = found[1][name]
        assert (mine is None) == (gradient is None), name
        if gradient is not None:
            assert mine.dtype == gradient.dtype and mine.stride() == gradient.stride(), name
            off = (mine.double() - gradient.double()).norm() / gradient.double().norm().clamp(min=1e-6)
            assert off < far, (name, off.item())


def loss_of(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = module(x)
    return y if not y.dim() else (y * torch.linspace(-1, 1, y.shape[-1], device=y.device, dtype=y.dtype)).sum()


def stepwise(make: Callable[[], nn.Module], x: torch.Tensor, dtype: torch.dtype, run: Any = loss_of) -> None:
    torch.manual_seed(0)
    module = make().cuda().to(dtype).train()
    sides = [(run, module), (framejit.optimize(run, backend="fuse"), copy.deepcopy(module))]
    optimisers = [torch.optim.SGD(each.parameters(), lr=0.01) for _, each in sides]
    for _ in range(2):
        expected, found = (gradients(side, each, x) for side, each in sides)
        agree(found, expected, FAR[dtype])
        for (_, each), optimiser in zip(sides, optimisers):
            optimiser.step()
            each.zero_grad(set_to_none=True)


@pytest.mark.parametrize("dtype", FAR)
@pytest.mark.parametrize("name", CASES)
def test_steps(name, dtype):
    make, draw = CASES[name]
    stepwise(make, draw(dtype), dtype)


@pytest.mark.parametrize("name", CASES)
def test_steps_under_autocast(name):
    make, draw = CASES[name]

    def run(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return loss_of(module, x).float()

    torch.manual_seed(0)
    module, x = make().cuda().train(), draw(torch.float32)
    other = copy.deepcopy(module)
    agree(gradients(framejit.optimize(run, backend="fuse"), other, x), gradients(run, module, x), FAR[torch.bfloat16])


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
def test_models(name):
    transformers = pytest.importorskip("transformers")
    small = {
        "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
            hidden_size=64, intermediate_size=96, vocab_size=99, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, use_cache=False)),
        "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_embd=64, n_layer=2, n_head=4, vocab_size=99, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            bos_token_id=1, eos_token_id=1)),
        "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=99,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)),
    }

    def run(module: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        return module(input_ids=ids, labels=ids).loss

    torch.manual_seed(0)
    module, ids = small[name]().cuda().train(), words(torch.float32)
    other = copy.deepcopy(module)
    agree(gradients(framejit.optimize(run, backend="fuse"), other, ids), gradients(run, module, ids), 1e-3)


MIXED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "layer norm": lambda x, w: F.layer_norm(x, (4,), w),
    "layer norm's bias": lambda x, w: F.layer_norm(x, (4,), None, w),
    "group norm": lambda x, w: F.group_norm(x[:, :, None], 2, w),
    "batch norm": lambda x, w: F.batch_norm(x, None, None, w, None, True),
    "rms norm": lambda x, w: F.rms_norm(x, (4,), w),
    "prelu": lambda x, w: F.prelu(x, w),
    "squared errors": lambda x, w: F.mse_loss(x, w.expand_as(x)),
    "huber": lambda x, w: F.huber_loss(x, w.expand_as(x)),
    "weighted labels": lambda x, w: F.cross_entropy(x, torch.arange(6, device="cuda") % 4, w.detach()),
    "addcmul": lambda x, w: torch.addcmul(x, w, w),
    "lerp": lambda x, w: torch.lerp(x, x, w),
    "linear": lambda x, w: F.linear(x, w[None]),
    "norm of weights": lambda x, w: torch._weight_norm(x, w[:1, None].expand(6, 1), 0),
}


@pytest.mark.parametrize("dtypes", [(torch.float16, torch.float32), (torch.float32, torch.bfloat16)], ids=str)
@pytest.mark.parametrize("name", MIXED)
def test_dtypes_that_differ(name, dtypes):
    """Kernels of a GPU refuse what those of a CPU take: then that is refused as eager does, though nobody needs it."""
    seen: list[str] = []

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        MIXED[name](x * 2, w)
        seen.append(name)
        return MIXED[name](x, w).float().sum()

    def outcome(call: Callable[..., Any]) -> Any:
        seen.clear()
        torch.manual_seed(0)
        x = torch.randn(6, 4, device="cuda").to(dtypes[0]).requires_grad_()
        w = (torch.rand(4, device="cuda") + 0.1).to(dtypes[1]).requires_grad_()
        try:
            result = call(x, w)
            result.backward()
        except RuntimeError as e:
            return type(e), str(e), len(seen)
        return result.detach(), x.grad, w.grad, len(seen)

    compiled = framejit.optimize(fn, backend="fuse")
    for _ in range(2):
        theirs, mine = outcome(fn), outcome(compiled)
        if isinstance(theirs[0], torch.Tensor):
            torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)
        else:
            assert mine == theirs
