"""Launch-bound inference on a GPU: eager, framejit, mode="reduce-overhead" of both compilers, and
framejit's "max-autotune", in turns in one run.

    python benchmarks/launches.py [--only decode,bert] [--impls eager,ours,ours-ro,ours-max] [--kernels] [--json FILE]

`--kernels` says what the device does in a call. `decode` is one token of a Llama of 1.1 billion parameters with a
static cache of 1024, batch 1; the models are those of models.py. `us` is microseconds a call, with half the range of
the rounds in percent, `host` those until the call returns, `err` the norm of the difference from eager over its norm,
on inputs that were not compiled with. Wanted of ours-ro: the models at least 1.25 times as fast as compile-ro, in the
geometric mean.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import measure
import torch
from measure import (
    Result,
    forget,
    geometric_mean,
    interleaved,
    per_call,
    ratio,
    reported_in,
    tensors_in,
    use_empty_caches,
    write_json,
)
from torch import nn
from workloads import Setting, of_kind

IMPLEMENTATIONS = ("eager", "ours", "ours-ro", "ours-max", "compile-ro")
MODES = {"": "default", "ro": "reduce-overhead", "max": "max-autotune"}
MODELS = ("bert", "gpt2", "llama", "resnet50", "vit")
WANTED = 1.25
POSITION, CACHE, VOCABULARY = 500, 1024, 32000

RESTART: Final = 128
"""Calls after which a side begins again."""

Made = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]], Callable[[], None]]
"""A function, its arguments by a seed, and what is to be called before it has been called some 500 times."""


def llama() -> nn.Module:
    """Of 1.1 billion parameters, in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
        vocab_size=VOCABULARY, max_position_embeddings=4096,
    )
    before = torch.get_default_dtype()
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(before)
    return model


def decode(batch: int = 1, model: nn.Module | None = None) -> Made:
    from transformers import StaticCache

    model = model or llama()
    cache = StaticCache(config=model.config, max_cache_len=CACHE)
    prompt = torch.randint(0, VOCABULARY, (batch, POSITION), device="cuda")
    with torch.no_grad():
        model(
            input_ids=prompt, past_key_values=cache, use_cache=True,
            cache_position=torch.arange(POSITION, device="cuda"),
        )

    def restart() -> None:
        for layer in cache.layers:
            layer.cumulative_length.fill_(POSITION)  # which each call counts up, and no row can be beyond the last

    def step(token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        answer = model(
            input_ids=token, past_key_values=cache, cache_position=position, position_ids=position[None], use_cache=True
        )
        return answer.logits[:, -1]

    def arguments(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        token = torch.randint(
            0, VOCABULARY, (batch, 1), device="cuda", generator=torch.Generator("cuda").manual_seed(seed)
        )
        return token, torch.tensor([POSITION], device="cuda")

    return step, arguments, restart


def model(name: str) -> Made:
    case = of_kind("model")[name].make(Setting("cuda", torch.bfloat16, "large"))
    return case.fn, case.args, lambda: None


def implement(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    compiler, _, mode = name.partition("-")
    return measure.implement(compiler, fn, "fuse", MODES[mode])


def measured(made: Made, options: argparse.Namespace) -> dict[str, Result]:
    fn, arguments, restart = made
    results, sides = {}, {}
    args = arguments(0)
    with torch.no_grad():
        fn(*args)
        for name in options.impls:
            results[name] = result = Result()
            with reported_in(result):
                start = time.perf_counter()
                side = implement(name, fn)
                side(*args)
                torch.cuda.synchronize()
                result.first_s = time.perf_counter() - start
                for _ in range(30):
                    per_call(side, args, "cuda", 1)
                sides[name] = _endless(side, restart)
                restart()
        interleaved(sides, args, "cuda", options.rounds, results)
        if options.kernels:
            for name, side in sides.items():
                print("\n".join(f"          {name} {line}" for line in kernels_of(side, args)), flush=True)
        for seed in (1, 2):
            fresh = arguments(seed)
            restart()
            expected = [tensor.double() for tensor in tensors_in(fn(*fresh))]
            for name, side in sides.items():
                with reported_in(results[name]):
                    restart()
                    got = [tensor.double() for tensor in tensors_in(side(*fresh))]
                    far = max(((g - e).norm() / e.norm()).item() for g, e in zip(got, expected, strict=True))
                    results[name].error_norm = max(results[name].error_norm or 0.0, far)
    return results


def _endless(side: Callable[..., Any], restart: Callable[[], None]) -> Callable[..., Any]:
    calls = 0

    def call(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if not calls % RESTART:
            restart()
        return side(*args)

    return call


def kernels_of(side: Callable[..., Any], args: tuple[Any, ...], calls: int = 5) -> list[str]:
    """What the device does in a call, and what the host asks it for, longest first."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.no_grad(), torch.profiler.profile(activities=activities) as profile:
        for _ in range(calls):
            side(*args)
        torch.cuda.synchronize()
    kernels, asked = Counter(), Counter()
    times: Counter[str] = Counter()
    for event in profile.events():
        on_device = event.device_type == torch.autograd.DeviceType.CUDA
        if on_device or event.name.startswith("cu"):
            (kernels if on_device else asked)[event.name] += 1
            times[event.name] += event.time_range.elapsed_us()
    return [
        f"{what}: {sum(times[name] for name in count) / calls:.0f} us, {count.total() / calls:.0f} a call; "
        + ", ".join(
            f"{times[name] / calls:.0f} us {count[name] / calls:.0f} x {name[:50]}"
            for name in sorted(count, key=lambda name: -times[name])[:12]
        )
        for what, count in (("device", kernels), ("host", asked))
    ]


def cell(result: Result) -> str:
    if result.error or result.seconds is None:
        return f"{(result.error or 'no figure')[:60]}"
    return (
        f"{result.seconds * 1e6:8.0f} us ±{result.noise:3.0%} host {(result.host_s or 0) * 1e6:6.0f} "
        f"first {result.first_s:5.1f} s err {result.error_norm:.0e}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(("decode", *MODELS)))
    parser.add_argument("--impls", default=",".join(IMPLEMENTATIONS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernels", action="store_true", help="what the device does in a call, by torch's profiler")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    options.impls = options.impls.split(",")
    use_empty_caches()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    rows, speeds = [], []
    for name in options.only.split(","):
        results = measured(decode() if name == "decode" else model(name), options)
        for side, result in results.items():
            print(f"{name:9} {side:10} | {cell(result)}", flush=True)
        theirs, ours = (results.get(side, Result()).seconds for side in ("compile-ro", "ours-ro"))
        if name in MODELS:
            speeds.append(ratio(theirs, ours))
        if "ours-ro" in results:
            import framejit

            for graph in framejit.status().launched:
                print(f"          {graph.state}: {graph}", flush=True)
        rows.append({"name": name, **{side: result.as_json() for side, result in results.items()}})
        forget()
    speed = geometric_mean(speeds)
    print(f"reduce-overhead: {'-' if speed is None else f'{speed:.2f}'} times as fast as compile's; wanted {WANTED}")
    write_json(options.json, {"torch": torch.__version__}, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
