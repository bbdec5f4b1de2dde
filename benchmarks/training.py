"""Training steps (forward, backward, AdamW) of models with random weights: time, first call and peak memory of
framejit, eager and torch.compile, in turns.

    python benchmarks/training.py [--device cuda] [--dtype bfloat16] [--only gpt2,resnet50] [--impls ours,eager,compile]
        [--mode reduce-overhead] [--json FILE]

Each side has a model and an optimiser of its own with equal weights, and compiles the function from inputs to loss;
`loss.backward()` and the optimiser's step stand outside. Rows that end in `_results` compile the function from inputs
to all that the model gives, logits and caches among it, as one does who compiles the model alone. `ms` is milliseconds
a step, with half the range of the rounds in percent; `first` the seconds of the first step; `MB` the most bytes alive
in a step, on GPUs without what other sides hold, on CPUs without weights and the optimiser's state. A row is WRONG
where the loss or a gradient of the first step is further from eager's in float64 than eager's own by more than rounding
(rows with dropout: where the loss is).
Wanted:
  GPU   time at most 0.85 of torch.compile's, memory at most 0.9 of its, first step at most a quarter
  CPU   time at most 1/1.1 of torch.compile's, first step at most a tenth
"""
from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from measure import (
    ROUNDING,
    Result,
    allocated_on_cpu,
    command,
    exit_code,
    figure,
    geometric_mean,
    implement,
    interleaved,
    ratio,
    reported_in,
    sync,
    write_json,
)
from model_table import measured_rows
from torch import nn
from workloads import Draw, Setting, Workload

WANTED = {"cuda": {"time": 0.85, "memory": 0.9, "first call": 0.25}, "cpu": {"time": 1 / 1.1, "first call": 0.1}}
SETTLING_STEPS = 12  # a backward is captured as a CUDA graph some steps behind its forward
MODELS: dict[str, Workload] = {}


@dataclass
class Training:
    """`given(module, *args)` is what a side compiles, and the loss `loss` of what it gives."""

    module: nn.Module
    given: Callable[..., Any]
    args: tuple[Any, ...]
    has_dropout: bool = False
    loss: Callable[[Any], torch.Tensor] = lambda given: given


def trained(text: str) -> Callable[[Callable[[Setting], Any]], Callable[[Setting], Any]]:
    def register(make: Callable[[Setting], Any]) -> Callable[[Setting], Any]:
        MODELS[make.__name__] = Workload(make.__name__, "training", text, make)
        return make

    return register


def _language_model(
    s: Setting, model: str, config: str, vocabulary: int, shape: tuple[int, int], has_dropout: bool = False,
    has_results: bool = False, **settings: Any,
) -> Training:
    import transformers

    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**settings)).train()
    made, ids = made.to(s.device, s.dtype), Draw(s, 0).below(vocabulary, *shape)
    if has_results:
        called = lambda module, ids: module(input_ids=ids, labels=ids)  # noqa: E731
        return Training(made, called, (ids,), has_dropout, lambda given: given.loss)
    return Training(made, lambda module, ids: module(input_ids=ids, labels=ids).loss, (ids,), has_dropout)


@trained("GPT-2 124M, 8 x 1024")
def gpt2(s: Setting) -> Training:
    return _gpt2(s)


@trained("GPT-2 124M, 8 x 1024, all results")
def gpt2_results(s: Setting) -> Training:
    return _gpt2(s, has_results=True)


def _gpt2(s: Setting, has_results: bool = False) -> Training:
    narrow = s.pick({"n_embd": 32, "n_head": 2, "n_layer": 1}, {"n_embd": 256, "n_head": 8, "n_layer": 4}, {})
    words = s.pick(500, 8000, 50257)
    still = {
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 1,
        "vocab_size": words,
    }
    return _language_model(
        s, "GPT2LMHeadModel", "GPT2Config", words, s.pick((2, 16), (4, 128), (8, 1024)), has_results=has_results,
        **narrow, **still
    )


@trained("Llama-style, 8 layers x 1024, 8 x 1024")
def llama(s: Setting) -> Training:
    width, words = s.pick(32, 256, 1024), s.pick(500, 8000, 32000)
    heads = {
        "num_attention_heads": s.pick(4, 8, 16),
        "num_key_value_heads": s.pick(2, 4, 4),
        "num_hidden_layers": s.pick(1, 4, 8),
    }
    sizes = {"hidden_size": width, "intermediate_size": s.pick(64, 704, 2816), "vocab_size": words, "use_cache": False}
    return _language_model(
        s, "LlamaForCausalLM", "LlamaConfig", words, s.pick((2, 16), (4, 128), (8, 1024)), **heads, **sizes
    )


@trained("BERT-base with dropout 0.1, 32 x 128")
def bert(s: Setting) -> Training:
    narrow = s.pick(
        {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 64},
        {"num_hidden_layers": 2},
        {},
    )
    shape = s.pick((2, 16), (4, 128), (32, 128))
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.0}
    return _language_model(s, "BertForMaskedLM", "BertConfig", 30000, shape, has_dropout=True, **dropout, **narrow)


def _image_model(s: Setting, name: str, shape: tuple[int, int]) -> Training:
    from workloads import prepare_imports

    prepare_imports()
    import torchvision

    torch.manual_seed(0)
    made = getattr(torchvision.models, name)().train().to(s.device, s.dtype)
    draw, (batch, side) = Draw(s, 0), shape
    return Training(
        made,
        lambda module, x, y: F.cross_entropy(module(x).float(), y),
        (draw.normal(batch, 3, side, side), draw.below(1000, batch)),
    )


@trained("ResNet-50, 64 x 3 x 224 x 224")
def resnet50(s: Setting) -> Training:
    return _image_model(s, "resnet50", s.pick((2, 32), (4, 64), (64, 224)))


@trained("ResNet-18, 64 x 3 x 224 x 224")
def resnet18(s: Setting) -> Training:
    return _image_model(s, "resnet18", s.pick((2, 32), (8, 64), (64, 224)))


@trained("ViT-B/16, 32 x 3 x 224 x 224")
def vit(s: Setting) -> Training:
    import transformers

    torch.manual_seed(0)
    narrow = s.pick(
        {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
        {"hidden_size": 192, "num_attention_heads": 3},
        {},
    )
    config = transformers.ViTConfig(num_hidden_layers=s.pick(1, 4, 12), image_size=s.pick(32, 64, 224), **narrow)
    made = transformers.ViTModel(config).train().to(s.device, s.dtype)
    x = Draw(s, 0).normal(s.pick(2, 4, 32), 3, config.image_size, config.image_size)
    return Training(made, lambda module, x: module(pixel_values=x).last_hidden_state.float().square().mean(), (x,))


class Tagger(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding, self.lstm, self.out = (
            nn.Embedding(words, width),
            nn.LSTM(width, width, num_layers=2, batch_first=True),
            nn.Linear(width, words),
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.out(self.lstm(self.embedding(ids))[0]).flatten(0, 1), ids.flatten())


@trained("LSTM of two layers, 32 x 64")
def lstm(s: Setting) -> Training:
    torch.manual_seed(0)
    words = s.pick(50, 1000, 10000)
    made = Tagger(words, s.pick(16, 256, 1024)).to(s.device, s.dtype)
    return Training(
        made, lambda module, ids: module(ids), (Draw(s, 0).below(words, s.pick(2, 32, 32), s.pick(8, 64, 64)),)
    )


def stepping(case: Training, name: str, options: Any) -> tuple[Callable[..., Any], nn.Module]:
    """A step of one side, with a model and an optimiser of its own."""
    module = copy.deepcopy(case.module)
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-5, fused=True)
    compiled = implement(name, case.given, options.backend, options.mode)

    def step(*args: Any) -> torch.Tensor:
        loss = case.loss(compiled(module, *args))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    return step, module


def first_gradients(
    case: Training, compiled: Callable[..., Any], dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The loss, and the gradients of a first backward, of a copy of the model, perhaps in another dtype."""
    module = copy.deepcopy(case.module)
    args = case.args
    if dtype is not None:
        module = module.to(dtype)
        args = tuple(a.to(dtype) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)
    torch.manual_seed(0)
    loss = case.loss(compiled(module, *args))
    loss.backward()
    return loss.detach().double(), [p.grad.double() for p in module.parameters() if p.grad is not None]


def errors(
    exact: tuple[torch.Tensor, list[torch.Tensor]], found: tuple[torch.Tensor, list[torch.Tensor]]
) -> tuple[float, float]:
    """Relative errors of the loss, and of all gradients together. Infinite where gradients are missing or not
    finite."""
    (loss, gradients), (expected_loss, expected) = found, exact
    if len(gradients) != len(expected):
        return math.inf, math.inf
    norm = torch.stack([g.norm() for g in expected]).norm()
    off = (torch.stack([(a - b).norm() for a, b in zip(gradients, expected)]).norm() / norm).item()
    return ((loss - expected_loss).abs() / expected_loss.abs()).item(), off if math.isfinite(off) else math.inf


def measured(case: Training, s: Setting, options: Any) -> dict[str, Result]:
    """All sides, compiled, checked and timed in turns."""
    results: dict[str, Result] = {name: Result() for name in options.impls}
    sides: dict[str, Callable[..., Any]] = {}
    exact = first_gradients(case, case.given, torch.float64)
    eager = errors(exact, first_gradients(case, case.given))
    for name in options.impls:
        result = results[name]
        with reported_in(result):
            before = torch.cuda.memory_allocated() if s.device == "cuda" else 0
            sync(s.device)
            start = time.perf_counter()
            step, _ = stepping(case, name, options)
            step(*case.args)
            sync(s.device)
            result.first_s = time.perf_counter() - start
            for _ in range(SETTLING_STEPS):
                step(*case.args)
            if s.device == "cuda":
                sync(s.device)
                torch.cuda.reset_peak_memory_stats()
                step(*case.args)
                sync(s.device)
                result.peak_bytes = torch.cuda.max_memory_allocated() - before
            else:
                result.peak_bytes = allocated_on_cpu(step, case.args)
            sides[name] = step
            found = errors(exact, first_gradients(case, implement(name, case.given, options.backend, options.mode)))
            looked_at = slice(0, 1) if case.has_dropout else slice(0, 2)
            limit = 0.05 if case.has_dropout else 4 * ROUNDING[s.dtype]
            result.error_norm, result.error_worst = found
            result.right = all(mine <= 2 * theirs + limit for mine, theirs in zip(found[looked_at], eager[looked_at]))
    interleaved(sides, case.args, s.device, options.rounds, results)
    return results


def main() -> int:
    parser = command(__doc__, MODELS, rounds=5)
    parser.add_argument("--mode", choices=("default", "reduce-overhead"), help="of framejit and torch.compile")
    options = parser.parse_args()
    about, rows, written = measured_rows([MODELS[name] for name in options.only], options, WANTED, measured)
    speed = ratio(1.0, geometric_mean(row.of_compile for row in rows))
    of_eager = ratio(1.0, geometric_mean(row.of_eager for row in rows))
    print(f"geometric mean: {figure(of_eager, '.2f')} times as fast as eager, {figure(speed, '.2f')} as torch.compile")
    write_json(options.json, about, written, speed_against_eager=of_eager, speed_against_compile=speed)
    return exit_code(rows)


if __name__ == "__main__":
    sys.exit(main())
