"""What the benchmarks of the fusing backend run: memory-bound kernels, small graphs and models, in three sizes.

`tiny` only shows that everything runs, `small` is for CPUs, `large` for GPUs.
"""
from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from capture import prepare_imports
from torch import nn

SIZES = ("tiny", "small", "large")
KINDS = ("kernel", "small", "model")


@dataclass(frozen=True)
class Setting:
    """What a workload is made for. `size` is one of SIZES; it says how large kernels and models are, small graphs are
    always the same."""

    device: str
    dtype: torch.dtype
    size: str

    def pick(self, tiny: Any, small: Any, large: Any) -> Any:
        return (tiny, small, large)[SIZES.index(self.size)]


class Draw:
    """Random tensors for one seed, on the device and of the type of a setting."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self._like: dict[str, Any] = {
            "device": setting.device,
            "generator": torch.Generator(setting.device).manual_seed(seed),
        }
        self._dtype = setting.dtype

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=self._dtype, **self._like)

    def positive(self, *shape: int) -> torch.Tensor:
        """Uniform in 0.5 to 1.5."""
        return torch.rand(*shape, dtype=self._dtype, **self._like) + 0.5

    def below(self, limit: int, *shape: int) -> torch.Tensor:
        """int64 in 0 to limit - 1."""
        return torch.randint(0, limit, shape, **self._like)


@dataclass
class Case:
    """One workload, ready to run.

    `args(seed)` draws arguments, always of the same shapes. `reference` takes such arguments with every floating tensor
    in float64. `moved_bytes` is the fewest bytes of memory that the work has to read and write, None where memory is
    not what bounds it.
    """

    fn: Callable[..., Any]
    args: Callable[[int], tuple[Any, ...]]
    reference: Callable[..., Any]
    moved_bytes: int | None = None
    module: nn.Module | None = None


@dataclass(frozen=True)
class Workload:
    name: str
    kind: str
    text: str
    make: Callable[[Setting], Case]


WORKLOADS: dict[str, Workload] = {}


def workload(kind: str, text: str) -> Callable[[Callable[[Setting], Case]], Callable[[Setting], Case]]:
    def register(make: Callable[[Setting], Case]) -> Callable[[Setting], Case]:
        WORKLOADS[make.__name__] = Workload(make.__name__, kind, text, make)
        return make

    return register


def of_kind(kind: str) -> dict[str, Workload]:
    return {name: w for name, w in WORKLOADS.items() if w.kind == kind}


def bytes_of(setting: Setting, elements: int) -> int:
    return elements * setting.dtype.itemsize


# ---- kernels bound by memory ---------------------------------------------------------------------------------------
def _length(s: Setting) -> int:
    return s.pick(1 << 12, 1 << 22, 1 << 27)


def _matrix(s: Setting) -> tuple[int, int]:
    return s.pick((16, 64), (2048, 1024), (32768, 4096))


@workload("kernel", "sigmoid(relu(w*x + b)*1.5 - 0.25) * x")
def pw_chain(s: Setting) -> Case:
    def fn(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(torch.relu(w * x + b) * 1.5 - 0.25) * x

    n = _length(s)

    def args(seed: int) -> tuple[torch.Tensor, ...]:
        draw = Draw(s, seed)
        return draw.normal(n), draw.normal(n), draw.normal(n)

    return Case(fn, args, fn, bytes_of(s, 4 * n))


@workload("kernel", "(w*x + b).relu().sum()")
def pw_sum(s: Setting) -> Case:
    def fn(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (w * x + b).relu().sum()

    n = _length(s)

    def args(seed: int) -> tuple[torch.Tensor, ...]:
        draw = Draw(s, seed)
        return draw.normal(n), draw.normal(n), draw.normal(n)

    return Case(fn, args, fn, bytes_of(s, 3 * n))


@workload("kernel", "softmax(x/8)")
def softmax(s: Setting) -> Case:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x * 0.125, dim=-1)

    rows, columns = _matrix(s)
    return Case(fn, lambda seed: (Draw(s, seed).normal(rows, columns),), fn, bytes_of(s, 2 * rows * columns))


@workload("kernel", "gelu(layer_norm(x + residual))")
def layernorm_gelu(s: Setting) -> Case:
    def fn(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.layer_norm(x + residual, (x.shape[-1],), weight, bias))

    rows, columns = _matrix(s)

    def args(seed: int) -> tuple[torch.Tensor, ...]:
        draw = Draw(s, seed)
        return draw.normal(rows, columns), draw.normal(rows, columns), draw.normal(columns), draw.normal(columns)

    return Case(fn, args, fn, bytes_of(s, 3 * rows * columns))


@workload("kernel", "RMS norm, in float32 inside")
def rmsnorm(s: Setting) -> Case:
    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        h = x.float()
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight

    def reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

    rows, columns = _matrix(s)

    def args(seed: int) -> tuple[torch.Tensor, ...]:
        draw = Draw(s, seed)
        return draw.normal(rows, columns), draw.normal(columns)

    return Case(fn, args, reference, bytes_of(s, 2 * rows * columns))


@workload("kernel", "silu(a) * b, halves of one tensor")
def swiglu(s: Setting) -> Case:
    def fn(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, dim=-1)
        return F.silu(a) * b

    rows, columns = _matrix(s)
    return Case(fn, lambda seed: (Draw(s, seed).normal(rows, 2 * columns),), fn, bytes_of(s, 3 * rows * columns))


@workload("kernel", "cross entropy, in float32 inside")
def cross_entropy(s: Setting) -> Case:
    def fn(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x.float(), target)

    rows, columns = s.pick((8, 100), (512, 8000), (16384, 32000))

    def args(seed: int) -> tuple[torch.Tensor, ...]:
        draw = Draw(s, seed)
        return draw.normal(rows, columns), draw.below(columns, rows)

    return Case(fn, args, F.cross_entropy, bytes_of(s, rows * columns))


@workload("kernel", "(x.t() + y) * 2")
def transpose_add(s: Setting) -> Case:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.t() + y) * 2.0

    n = s.pick(64, 2048, 8192)

    def args(seed: int) -> tuple[torch.Tensor, ...]:
        draw = Draw(s, seed)
        return draw.normal(n, n), draw.normal(n, n)

    return Case(fn, args, fn, bytes_of(s, 3 * n * n))


@workload("kernel", "relu(batch_norm(x)), as in inference")
def batchnorm_relu(s: Setting) -> Case:
    def fn(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, mean: torch.Tensor, var: torch.Tensor
    ) -> torch.Tensor:
        return F.relu(F.batch_norm(x, mean, var, weight, bias, training=False))

    n, channels, height, width = s.pick((2, 8, 6, 6), (8, 64, 56, 56), (128, 256, 56, 56))

    def args(seed: int) -> tuple[torch.Tensor, ...]:
        draw = Draw(s, seed)
        return draw.normal(n, channels, height, width), *(draw.positive(channels) for _ in range(4))

    return Case(fn, args, fn, bytes_of(s, 2 * n * channels * height * width))


# ---- small graphs, bound by what a call costs ----------------------------------------------------------------------
@workload("small", "(x + y).relu() * 2, 16 elements")
def tiny_op(s: Setting) -> Case:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).relu() * 2

    def args(seed: int) -> tuple[torch.Tensor, ...]:
        draw = Draw(s, seed)
        return draw.normal(16), draw.normal(16)

    return Case(fn, args, fn)


@workload("small", "sum of 64 tensors of 8 elements")
def many_tensors(s: Setting) -> Case:
    def fn(tensors: list[torch.Tensor]) -> torch.Tensor:
        total = tensors[0]
        for t in tensors[1:]:
            total = total + t * 0.5
        return total

    def args(seed: int) -> tuple[Any, ...]:
        draw = Draw(s, seed)
        return ([draw.normal(8) for _ in range(64)],)

    return Case(fn, args, fn)


@workload("small", "softmax(x @ y), 100 x 100")
def matmul_softmax(s: Setting) -> Case:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.softmax(torch.matmul(x, y), dim=1)

    def args(seed: int) -> tuple[torch.Tensor, ...]:
        draw = Draw(s, seed)
        return draw.normal(100, 100), draw.normal(100, 100)

    return Case(fn, args, fn)


@workload("small", "8 x (Linear, GELU, LayerNorm), 4 x 64")
def small_mlp(s: Setting) -> Case:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))]
    return _of_module(s, nn.Sequential(*layers), lambda draw: draw.normal(4, 64))


# ---- models, random weights ----------------------------------------------------------------------------------------
def _of_module(s: Setting, module: nn.Module, draw_input: Callable[[Draw], torch.Tensor], keyword: str = "") -> Case:
    """A module called with one tensor, or by keyword for the first of its results, as models of transformers are."""
    module = module.to(device=s.device, dtype=s.dtype).eval()

    def calling(target: nn.Module) -> Callable[..., Any]:
        if not keyword:
            return target

        def fn(value: torch.Tensor) -> torch.Tensor:
            return target(**{keyword: value})[0]

        return fn

    @functools.cache
    def in_float64() -> Callable[..., Any]:
        return calling(copy.deepcopy(module).double())

    return Case(
        calling(module), lambda seed: (draw_input(Draw(s, seed)),), lambda *args: in_float64()(*args), module=module
    )


def _transformers_model(
    s: Setting, model: str, config: str, vocabulary: int, shape: tuple[int, int], **settings: Any
) -> Case:
    prepare_imports()
    import transformers

    torch.manual_seed(0)
    module = getattr(transformers, model)(getattr(transformers, config)(**settings))
    return _of_module(
        s, module, lambda draw: draw.below(vocabulary, *s.pick((1, 8), shape, shape)), keyword="input_ids"
    )


def _torchvision_model(s: Setting, build: Callable[[Any], nn.Module], large_batch: int, tiny_image: int) -> Case:
    prepare_imports()
    import torchvision

    torch.manual_seed(0)
    batch, size = s.pick((1, tiny_image), (1, 224), (large_batch, 224))
    return _of_module(s, build(torchvision.models), lambda draw: draw.normal(batch, 3, size, size))


def _narrow(s: Setting, **settings: Any) -> dict[str, Any]:
    """`settings` for the tiny size, none (a model's own width) for the others."""
    return settings if s.size == "tiny" else {}


@workload("model", "BERT-base, 8 x 128")
def bert(s: Setting) -> Case:
    width = _narrow(s, hidden_size=32, num_attention_heads=2, intermediate_size=64, vocab_size=512)
    return _transformers_model(
        s, "BertModel", "BertConfig", 500 if width else 30000, (8, 128), num_hidden_layers=s.pick(1, 2, 12), **width
    )


@workload("model", "GPT-2, 4 x 128")
def gpt2(s: Setting) -> Case:
    width = _narrow(s, n_embd=32, n_head=2, vocab_size=512, bos_token_id=1, eos_token_id=1)
    return _transformers_model(
        s, "GPT2LMHeadModel", "GPT2Config", 500 if width else 50000, (4, 128), n_layer=s.pick(1, 2, 12),
        use_cache=False, **width,
    )


@workload("model", "Llama-style, 4 x 256")
def llama(s: Setting) -> Case:
    width = {
        "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4,
        "vocab_size": 32000,
    }
    width |= _narrow(
        s, hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, vocab_size=512
    )
    layers = s.pick(1, 2, 12)
    return _transformers_model(
        s, "LlamaForCausalLM", "LlamaConfig", width["vocab_size"], (4, 256), num_hidden_layers=layers,
        use_cache=False, **width,
    )


@workload("model", "ResNet-50, 224 x 224")
def resnet50(s: Setting) -> Case:
    return _torchvision_model(s, lambda models: models.resnet50(), 32, tiny_image=32)


@workload("model", "ResNet-18, 224 x 224")
def resnet18(s: Setting) -> Case:
    return _torchvision_model(s, lambda models: models.resnet18(), 32, tiny_image=32)


@workload("model", "ViT-B/16, 224 x 224")
def vit(s: Setting) -> Case:
    def build(models: Any) -> nn.Module:
        tiny = s.size == "tiny"
        module = (
            models.VisionTransformer(32, 16, num_layers=1, num_heads=2, hidden_dim=32, mlp_dim=64)
            if tiny
            else models.vit_b_16()
        )
        # it starts as zeros, and with it every result: nothing would be checked
        nn.init.normal_(module.heads.head.weight, std=0.02)
        return module

    return _torchvision_model(s, build, 16, tiny_image=32)
