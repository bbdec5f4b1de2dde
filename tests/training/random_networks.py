"""Random networks: layers, norms, pools, losses, views and writes one after the other, as programs of torch's
functions, on the device of their input. A line that torch refuses for the sizes at hand is left out."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

SIZES = [(4, 6), (1, 8), (6, 1), (2, 4, 8), (3, 6, 5), (1, 4, 6, 6), (2, 6, 4, 5), (2, 8, 3, 4)]
MOST_ELEMENTS = 3000
"""Of each result."""

POINTWISE = """
F.relu(X) | F.gelu(X) | F.gelu(X, approximate='tanh') | F.silu(X) | F.mish(X) | F.softplus(X, 2) | F.elu(X, 0.7)
F.selu(X) | F.celu(X, 1.3) | F.leaky_relu(X, 0.2) | F.hardtanh(X) | F.hardswish(X) | F.hardsigmoid(X) | F.logsigmoid(X)
F.softsign(X) | F.tanhshrink(X) | F.softshrink(X, 0.3) | F.hardshrink(X, 0.3) | F.threshold(X, 0.1, -1.0) | F.relu6(X)
X.sigmoid() | X.tanh() | X.sin() | X.exp().clamp(max=4) | (X * X + 1).log() | (X.abs() + 0.1).sqrt() | X * 0.3 - 1
(X.abs() + 0.5).pow(-1.5) | X.clamp(-0.5, 1) | X.erf() | X.atan() | torch.where(X > 0, X, X * X) | X - X.detach() * 0.5
torch.lerp(X, X * 2, 0.3) | X.square().add(0.3).rsqrt() | X.abs().log1p() | torch.hypot(X, X + 1) | X.fmod(1.7)
torch.atan2(X, X.abs() + 1) | X.remainder(0.9) | torch.addcmul(X, X, X + 1, value=0.3) | X.logit(0.2) | X.sinc()
X.floor() * 0.1 + X | X.sign() * X.square() | torch.maximum(X, -X * 0.5) | torch.logaddexp(X, X * 0.5)
F.prelu(X, P(S[1])) | torch.view_as_real(torch.complex(X, X.cos()) * 1j).sum(-1)
"""
ALONG_A_DIMENSION = """
F.softmax(X, D) | F.log_softmax(X, D) | F.softmin(X, D) | X.logsumexp(D, keepdim=True) + X | X.cumsum(D) | X.flip(D)
X.sigmoid().cumprod(D) | X.logcumsumexp(D) | X.roll(1, D) | X - X.mean(D, keepdim=True) | X - X.amax(D, keepdim=True)
X / (X.std(D, keepdim=True, correction=0) + 1) | X * X.norm(dim=D, keepdim=True) | X + X.sum(D, keepdim=True) * 0.1
X.sort(D).values | X.cummax(D).values + X | X.var(D, keepdim=True, correction=0) + X | X + X.max(D, keepdim=True).values
X - X.median(D, keepdim=True).values | X + X.prod(D, keepdim=True) | X.gather(D, X.argsort(D)) | F.normalize(X, dim=D)
X * X.softmax(D).max(D, keepdim=True)[0]
X.index_select(D, torch.arange(S[D], device=x0.device).flip(0)) | torch.diff(X, dim=D)
X.mean(D) | X.amax(D) | X.sum(D) | X.select(D, -1) | X.logsumexp(D) | X.std(D, correction=0) | X.max(D)[0] | F.glu(X, D)
torch.cat([X, X * 0.5], D) | X.chunk(2, D)[1] | torch.mul(*X.chunk(2, D)) | X.narrow(D, 0, 1) | torch.stack([X, -X], D)
"""
LAYERS = """
F.layer_norm(X, S[-1:], P(S[-1]), P(S[-1])) | F.layer_norm(X, S[-2:]) | F.group_norm(X, 2, P(S[1]), P(S[1]))
F.batch_norm(X, None, None, P(S[1]), P(S[1]), True) | F.instance_norm(X) | F.rms_norm(X, S[-1:], P(S[-1]))
F.batch_norm(X, x0.new_zeros(S[1]), x0.new_ones(S[1]) * 2, P(S[1])) | F.local_response_norm(X, 3)
F.linear(X, P(6, S[-1]), P(6)) | F.linear(X, P(4, S[-1])) | F.linear(X, torch._weight_norm(P(4, S[-1]), P(4, 1)))
F.conv2d(X, P(4, S[1], 3, 3), P(4), padding=1) | F.conv2d(X, P(6, S[1], 1, 1))
F.conv2d(X, P(S[1], 1, 3, 3), groups=S[1])
F.conv2d(X, P(8, S[1], 2, 2), stride=2) | F.conv_transpose2d(X, P(S[1], 4, 2, 2), P(4), stride=2)
F.conv1d(X, P(4, S[1], 3), P(4), padding=1) | F.max_pool2d(X, 2) | F.avg_pool2d(X, 2) | F.adaptive_avg_pool2d(X, 1)
F.adaptive_avg_pool2d(X, 2) | F.adaptive_max_pool2d(X, 2) | F.avg_pool2d(X, 3, 1, 1) | F.max_pool2d(X, 3, 2, 1)
F.avg_pool2d(X, 3, 2, 1, count_include_pad=False) | F.max_pool1d(X, 2) | F.avg_pool1d(X, 2) | F.pixel_shuffle(X, 2)
F.interpolate(X, scale_factor=2) | F.interpolate(X, scale_factor=2, mode='bilinear') | F.interpolate(X, size=(7, 9))
F.interpolate(X, scale_factor=2, mode='linear') | F.pad(X, (1, 1)) | F.pad(X, (1, 0, 0, 1), value=0.5)
F.pad(X, (-1, 0))
F.pad(X, (1, 1, 1, 1), mode='reflect') | F.pad(X, (1, 1), mode='replicate') | F.pad(X, (1, 1, 1, 1), mode='circular')
F.scaled_dot_product_attention(X, X, X) | F.scaled_dot_product_attention(X, X.flip(1), X, is_causal=True)
(X @ X.mT).softmax(-1) @ X | torch.bmm(X, X.mT).tril() @ X | torch.einsum('btd,bsd->bts', X, X).softmax(1) @ X
torch.addmm(X, X @ X.t(), X, beta=0.5) | torch.cdist(X, X) @ X | F.cosine_similarity(X[:, None], X[None], dim=-1) @ X
F.dropout(X, 0.3) | F.dropout(X, 0.3, training=False) | X * torch.rand_like(X) | F.embedding(X.argmax(-1), P(S[-1], 4))
"""
VIEWS = """
X.transpose(D, -1) | X.flatten(2).transpose(1, 2) | X.permute(0, 2, 3, 1) | X.contiguous() | X.unsqueeze(D)
X[..., ::2]
X[:, :, None].expand(-1, -1, 2, -1) | X.reshape(S[0], -1) | X.squeeze() | X.diagonal(dim1=-2, dim2=-1) | X.unbind(D)[0]
X.contiguous(memory_format=torch.channels_last)
"""
OF_TWO = """
X + Y | X * Y.sigmoid() | torch.where(X > Y, X, Y * 0.5) | X - Y.mean() | torch.maximum(X, Y) | X.lerp(Y, 0.2)
X @ Y.mT
torch.addcdiv(X, Y, X.abs() + 1) | torch.cat([X, Y], D)
"""
WRITES = """
X[0] = 0.5 | X.mul_(0.5) | X[..., 0] *= 2 | F.relu_(X) | X.clamp_(-1, 1) | X[..., -1:].add_(X[..., :1]) | X.sigmoid_()
X.masked_fill_(X > 1, 0) | X.add_(x0.mean()) | X.index_fill_(0, torch.tensor([0], device=x0.device), 0.3)
X.copy_(X.flip(D) * 2)
"""
LOSSES = """
X.mean() | X.square().mean() | X.sum() | F.mse_loss(X, T) | F.l1_loss(X, T) | F.smooth_l1_loss(X, T, beta=0.5)
X.norm()
F.huber_loss(X, T, delta=0.7) | F.binary_cross_entropy(X.sigmoid(), T.sigmoid()) | X.std(correction=0) | (X * T).sum()
F.binary_cross_entropy_with_logits(X, T.sigmoid()) | F.poisson_nll_loss(X.clamp(max=2), T.abs()) | X.logsumexp(D).mean()
F.kl_div(F.log_softmax(X, D), F.softmax(T, D), reduction='batchmean') | F.soft_margin_loss(X, T.sign())
F.gaussian_nll_loss(X, T, X.detach().abs() + 1) | F.mse_loss(X, T, reduction='none').amax()
X.flatten().topk(2)[0].sum()
-(F.softmax(X, D) * F.log_softmax(X, D)).sum(D).mean() | F.triplet_margin_loss(X, T, -T)
F.hinge_embedding_loss(X, T.sign())
F.cross_entropy(X, L, reduction=R).mean() | F.cross_entropy(X, L, label_smoothing=0.1)
F.nll_loss(X, L, reduction=R).sum()
F.cross_entropy(X, L, ignore_index=1, reduction=R).sum() | F.nll_loss(F.log_softmax(X, D), L, reduction=R).mean()
F.cross_entropy(X, L, T.new_ones(S[1]) * 0.7, reduction=R).sum() | F.cross_entropy(X, F.softmax(T, 1))
"""
KINDS = (POINTWISE, POINTWISE, ALONG_A_DIMENSION, ALONG_A_DIMENSION, LAYERS, LAYERS, LAYERS, VIEWS, OF_TWO, WRITES)


def _choices(text: str) -> list[str]:
    return [choice.strip() for line in text.strip().splitlines() for choice in line.split(" | ")]


class Network:
    """A network and what it is called with. `function` takes the input and the list of parameters."""

    def __init__(self, seed: int, dtype: torch.dtype = torch.float64) -> None:
        self._rng, self._seed, self.dtype = random.Random(seed), seed, dtype
        self.sizes = self._rng.choice(SIZES)
        self.parameters: list[tuple[int, ...]] = []
        self._lines: list[str] = []
        self._results = ["x0"]
        self._namespace: dict[str, Any] = {"torch": torch, "F": F, "KIND": dtype, "x0": self.input(0), "p": []}
        for _ in range(self._rng.randint(3, 10)):
            kind = self._rng.choice(KINDS)
            if kind is WRITES and self._add("X * 1"):
                self._add(self._rng.choice(_choices(kind)), is_statement=True)
            elif kind is not WRITES:
                self._add(self._rng.choice(_choices(kind)))
        while not self._add(self._rng.choice(_choices(LOSSES)), is_loss=True):
            pass
        body = "".join(f"    {line}\n" for line in self._lines)
        self.source = f"def network(x0, p):\n{body}    return {self._results[-1]}\n"
        self.function = self.with_dtype(dtype)

    def with_dtype(self, dtype: torch.dtype) -> Callable[..., torch.Tensor]:
        """The network for inputs and parameters of a dtype."""
        names: dict[str, Any] = {"torch": torch, "F": F, "KIND": dtype}
        exec(compile(self.source, f"<network {self._seed}>", "exec"), names)
        made: Callable[..., torch.Tensor] = names["network"]
        return made

    def input(self, number: int, more: int = 0) -> torch.Tensor:
        """The input of a call, with so many more rows, or images, than the network was made with."""
        sizes = (self.sizes[0] + more, *self.sizes[1:])
        made = torch.randn(sizes, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
        made = made.to(self.dtype)
        if len(self.sizes) == 4 and self._seed % 3 == 0:
            made = made.contiguous(memory_format=torch.channels_last)
        elif self._seed % 5 == 0:
            made = made.transpose(0, -1).contiguous().transpose(0, -1)
        return made.requires_grad_()

    def own_parameters(self) -> list[torch.Tensor]:
        """New parameters, the same each time."""
        numbers = torch.Generator().manual_seed(self._seed)
        made = [torch.randn(size, generator=numbers, dtype=torch.float64) * 0.5 for size in self.parameters]
        return [each.to(self.dtype).requires_grad_() for each in made]

    def _add(self, text: str, is_statement: bool = False, is_loss: bool = False) -> bool:
        """Add a line, if torch takes it."""
        current = self._results[-1]
        sizes = tuple(self._namespace[current].shape)
        known = len(self.parameters)
        scope: dict[str, Any] = {"S": sizes}
        try:
            line = self._filled(text, current, sizes, scope)
            name = current if is_statement else f"x{len(self._results)}"
            line = line if is_statement else f"{name} = {line}"
            trial = {**self._namespace, "p": self.own_parameters()}
            torch.manual_seed(self._seed)
            exec(line, trial)
            made = trial[name]
            usable = made.dim() == 0 if is_loss else 0 < made.numel() <= MOST_ELEMENTS and made.dim() > 1
            if not usable or not made.isfinite().all():
                raise ValueError("too large, too small, or no number")
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError):
            del self.parameters[known:]
            return False
        self._lines.append(line)
        self._namespace = trial
        if not is_statement:
            self._results.append(name)
        return True

    def _filled(self, text: str, current: str, sizes: tuple[int, ...], scope: dict[str, Any]) -> str:
        """The text with names and numbers in the place of capital letters."""
        rng = self._rng

        def parameter(match: re.Match[str]) -> str:
            sizes_of_it = eval(f"({match[1]},)", {**scope})
            self.parameters.append(sizes_of_it)
            return f"p[{len(self.parameters) - 1}]"

        dimension = str(rng.randrange(-len(sizes), len(sizes)))
        text = re.sub(r"\bD\b", dimension, text)
        text = re.sub(r"P\(((?:[^()]|\([^()]*\))*)\)", parameter, text)
        text = re.sub(r"\bS\[([^\]]*)\]", lambda match: repr(eval(match[0], {**scope})), text)
        target = f"torch.linspace(-2, 2, {current}.numel(), dtype=KIND, device=x0.device).view({current}.shape)"
        first = f"{current}.detach().select(1, 0)"
        labels = f"(torch.arange({first}.numel(), device=x0.device).view({first}.shape) % {current}.shape[1])"
        for letter, stands_for in (
            ("X", current), ("Y", rng.choice(self._results)), ("T", target), ("L", labels),
            ("R", repr(rng.choice(("mean", "sum", "none")))),
        ):
            text = re.sub(rf"\b{letter}\b", lambda _, named=stands_for: named, text)
        return text
