"""Programs through the passes that a GPU's graphs go through, run on the CPU, whose kernels take any layout."""

import pytest
import torch
import torch.nn.functional as F

from framejit.backends.fuse.graph.passes import layouts
from framejit.backends.fuse.targets.cpu import CpuTarget
from framejit.backends.fuse.training import assemble, channels_last
from framejit.backends.fuse.training.recorded_layers import recorded_layers

from twins import Twins, leaf


@pytest.fixture(autouse=True)
def layouts_of_a_gpu(monkeypatch):
    monkeypatch.setattr(CpuTarget, "prefers_layouts", True)
    monkeypatch.setattr(CpuTarget, "adds_bias_apart", True)
    for module in (layouts, channels_last):
        monkeypatch.setattr(module, "HALF", (torch.float32,))


IMAGES, WEIGHT, BIAS = (2, 3, 8, 8), (4, 3, 2, 2), (4,)


def numbers_written(x, w, b):
    y = F.conv2d(x, w, b)
    y[:, 0] = 2
    y[y > 1] = 0.5
    return y * 2


def written_through_a_view(x, w, b):
    y = F.conv2d(x, w, b, padding=1)
    y.view(2, -1)[:, 3] = torch.tensor(7.0)
    y.select(1, 2).mul_(3)
    return y.clone()


def patches_written(x, w, b):
    y = F.conv2d(x, w, b, stride=2)
    y += 1
    y[:, 1] = -1.0
    return y.relu_()


def tensors_of_numbers(x, w, b):
    return F.conv2d(x, w, b).flatten(2) * torch.tensor([[1.0], [2.0], [3.0], [4.0]])


def attention_with_some_left_out(x, w, b):
    q = x.view(2, 1, 24, 8)
    mask = torch.arange(24)[None] < torch.tensor([24, 9])[:, None]
    mask = mask[:, None, None].expand(2, 1, 24, 24).clone()
    mask[0, :, :, 5] = False
    first = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    mask[:, :, 0] = True
    return F.scaled_dot_product_attention(first, q, q, attn_mask=mask) * w.sum() + b[0]


def attention_written_over(x, w, b):
    q = x.view(2, 1, 24, 8)
    mask = torch.zeros(24, 24)
    mask[:, 12:] = float("-inf")
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask) * w.sum() + b[0]


def patches_as_tokens(x, w, b):
    return F.conv2d(x, w, b, stride=2).flatten(2).transpose(1, 2).contiguous()


def normed(x, w, b):
    return F.layer_norm(F.conv2d(x, w, b).permute(0, 2, 3, 1), (4,), b, b)


def one_by_one(x, w, b):
    return F.conv2d(x, w[:, :, :1, :1], b, stride=1).amax((2, 3))


def expanded(x, w, b):
    return F.conv2d(x[:1].expand(2, -1, -1, -1), w, b, stride=2).tanh()


PROGRAMS = [
    numbers_written, written_through_a_view, patches_written, tensors_of_numbers, attention_with_some_left_out,
    attention_written_over, patches_as_tokens, normed, one_by_one, expanded,
]


@pytest.mark.parametrize("with_gradients", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_give_the_same_in_a_gpus_layouts(program, with_gradients):
    def gradients(fn, *inputs):
        result = fn(*inputs)
        return result, torch.autograd.grad(result.square().sum(), inputs)

    def values(fn, *inputs):
        return fn(*(each.detach() for each in inputs))

    inputs = [leaf(*sizes, dtype=torch.float32) for sizes in (IMAGES, WEIGHT, BIAS)]
    Twins(program, *inputs).both(gradients if with_gradients else values)


class Stages(torch.nn.Module):
    """Patches of an image, and enough layers alike for them to be recorded once (`layers/lengthening.py`)."""

    def __init__(self, alike: type[torch.nn.Module]) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, 2, stride=2)
        self.layers = torch.nn.ModuleList([alike() for _ in range(12)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patches(x)
        for layer in self.layers:
            y = layer(y)
        return y.square().mean()


class OfImages(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.GroupNorm(2, 8)
        self.convs = torch.nn.ModuleList([torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        for conv in self.convs:
            y = conv(y).tanh()
        return x + y


class OfTokens(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(8) for _ in range(3)])
        self.linears = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.flatten(2).transpose(1, 2)
        for norm, linear in zip(self.norms, self.linears):
            y = linear(norm(y)).tanh()
        return x + y.transpose(1, 2).reshape(x.shape)


@pytest.mark.parametrize("alike", [OfImages, OfTokens])
def test_layers_alike_keep_their_own_weights(alike, monkeypatch):
    met = []

    def recorded(*args):
        met.append(recorded_layers(*args))
        return met[-1]

    monkeypatch.setattr(assemble, "recorded_layers", recorded)
    torch.manual_seed(0)
    module = Stages(alike)

    def gradients(fn, module, x):
        loss = fn(module, x)
        return loss, torch.autograd.grad(loss, [*module.parameters(), x])

    Twins(lambda module, x: module(x), leaf(*IMAGES, dtype=torch.float32), module=module).both(gradients)
    assert met and all(met)
