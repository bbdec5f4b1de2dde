"""How near a GPU's limits whole models come: eager, and three modes of torch.compile and of framejit, in turns in one
run.

    python benchmarks/limits.py [--only decode,prefill] [--impls eager,compile-ro,ours-ro] [--rounds 5] [--json FILE]

In bfloat16. `us` is microseconds a call, with half the range of the rounds in percent; `first` the seconds of the first
call; `err` the norm of the difference from eager over its norm, on inputs that were not compiled with. `bound` is what
the bytes that a call must read take at the bandwidth of a copy, or its operations at the speed of a square product of
8192, both measured in this run. `best` divides the quickest of the other sides by the quickest of ours. Wanted:
  decode     one token of a Llama of 1.1 billion parameters with a static cache of 1024, batch 1: ours-ro at most 800 us
             (0.6 of an H200's bandwidth), ours 3,000 us; batch 8 at most 1.15 of batch 1
  skinny     32 x 131072 @ 131072 x 32: 9 us of the device's time
  others     best at least 1.1, none slower than eager
The products of models alone are products.py's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from launches import Made, cell, decode, kernels_of, llama, measured
from measure import CLOCK_NOISE, Result, choice, copy_ceiling, forget, interleaved, use_empty_caches
from torch import nn

IMPLEMENTATIONS: Final = ("eager", "compile", "compile-ro", "compile-max", "ours", "ours-ro", "ours-max")
BFLOAT16: Final = {"device": "cuda", "dtype": torch.bfloat16}
WANTED: Final = 1.1
WANTED_US: Final = {("decode", "ours-ro"): 800.0, ("decode", "ours"): 3000.0}
WANTED_OF_BATCH_1: Final = 1.15


@dataclass
class Limit:
    """A workload, and what limits it."""

    made: Made
    bytes: int = 0
    operations: float = 0.0

    def bound(self, bandwidth: float, speed: float) -> float:
        """Seconds, by bytes and operations a second."""
        return max(self.bytes / bandwidth, self.operations / speed)


def weights(module: nn.Module, without: str = "embed") -> int:
    """The elements of parameters that a call multiplies with."""
    return sum(each.numel() for name, each in module.named_parameters() if without not in name)


def drawn(fn: Callable[..., Any], draw: Callable[[torch.Generator], torch.Tensor]) -> Made:
    """A function of one tensor, which is drawn anew for each seed."""
    return fn, lambda seed: (draw(torch.Generator("cuda").manual_seed(seed)),), lambda: None


def words(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    return lambda generator: torch.randint(0, 30000, shape, device="cuda", generator=generator)


def numbers(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    return lambda generator: torch.randn(*shape, **BFLOAT16, generator=generator)


def one_token(batch: int) -> Limit:
    model = llama()
    return Limit(decode(batch, model), bytes=2 * weights(model, "embed_tokens"))


def prefill() -> Limit:
    model = llama()
    attention = 22 * 2 * 2 * 2048 * 2048 * 2048  # of the causal half of the scores
    return Limit(
        drawn(lambda ids: model(input_ids=ids, use_cache=False).logits, words(2, 2048)),
        operations=2.0 * weights(model, "embed_tokens") * 2 * 2048 + attention,
    )


def bert_large() -> Limit:
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    model = BertModel(config).eval().to(**BFLOAT16)
    return Limit(
        drawn(lambda ids: model(input_ids=ids).last_hidden_state, words(32, 512)),
        operations=2.0 * weights(model) * 32 * 512 + 24 * 4 * 32 * 512 * 512 * 1024,
    )


def vit_large() -> Limit:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    model = ViTModel(config).eval().to(**BFLOAT16)
    return Limit(
        drawn(lambda x: model(pixel_values=x).last_hidden_state, numbers(64, 3, 224, 224)),
        operations=2.0 * weights(model) * 64 * 197 + 24 * 4 * 64 * 197 * 197 * 1024,
    )


def images(name: str, batch: int, operations: float) -> Limit:
    import torchvision

    model = getattr(torchvision.models, name)().eval().to(**BFLOAT16)
    return Limit(drawn(lambda x: model(x), numbers(batch, 3, 224, 224)), operations=2 * batch * operations)


def mlp() -> Limit:
    inside = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).eval().to(**BFLOAT16)
    norm = nn.LayerNorm(1024).to(**BFLOAT16)
    return Limit(
        drawn(lambda x: norm(x + inside(x)), numbers(16384, 1024)), operations=2.0 * 2 * 16384 * 1024 * 4096
    )


def skinny() -> Limit:
    other = torch.randn(131072, 32, **BFLOAT16)
    return Limit(drawn(lambda x: x @ other, numbers(32, 131072)), bytes=2 * 2 * 32 * 131072)


LIMITS: Final[dict[str, Callable[[], Limit]]] = {
    "decode": lambda: one_token(1),
    "decode_8": lambda: one_token(8),
    "prefill": prefill,
    "bert_large": bert_large,
    "vit_large": vit_large,
    "resnet50": lambda: images("resnet50", 256, 4.09e9),
    "convnext_base": lambda: images("convnext_base", 64, 15.4e9),
    "mlp": mlp,
    "skinny": skinny,
}


def product_speed() -> float:
    """Operations a second of a square product of 8192."""
    x, y = torch.randn(8192, 8192, **BFLOAT16), torch.randn(8192, 8192, **BFLOAT16)
    result = Result()
    interleaved({"product": lambda: x @ y}, (), "cuda", 5, {"product": result})
    return 2 * 8192**3 / (result.seconds or float("nan"))


def judged(name: str, results: dict[str, Result], first: dict[str, Result]) -> dict[str, Any]:
    """The ratios that are wanted of a row; `first`: the results of the row for batch 1."""
    seconds = {side: result.seconds for side, result in results.items() if result.seconds is not None}
    ours = [each for side, each in seconds.items() if side.startswith("ours")]
    others = [each for side, each in seconds.items() if not side.startswith("ours")]
    found: dict[str, Any] = {}
    if ours and others:
        found["best"] = min(others) / min(ours)
    for (row, side), most in WANTED_US.items():
        if row == name and side in seconds:
            found[f"{side} at most {most:.0f} us"] = seconds[side] * 1e6 <= most
    one = [result.seconds for side, result in first.items() if side.startswith("ours") and result.seconds]
    if name == "decode_8" and ours and one:
        found["of batch 1"] = min(ours) / min(one)
        found["holds"] = found["of batch 1"] <= WANTED_OF_BATCH_1
    elif name not in ("decode", "decode_8", "skinny") and "best" in found:
        eager = seconds.get("eager", float("inf"))
        found["holds"] = found["best"] >= WANTED and all(each <= eager * CLOCK_NOISE for each in ours)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=choice(LIMITS), default=[*LIMITS], metavar="NAMES")
    parser.add_argument("--impls", type=choice(IMPLEMENTATIONS), default=[*IMPLEMENTATIONS], metavar="NAMES")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    options.kernels = False
    use_empty_caches()
    bandwidth, speed = copy_ceiling("cuda"), product_speed()
    about = {
        "torch": torch.__version__, "device": torch.cuda.get_device_name(), "bandwidth": bandwidth, "speed": speed,
    }
    print(f"torch {torch.__version__}, {about['device']}: {bandwidth / 1e12:.2f} TB/s, {speed / 1e12:.0f} TFLOP/s")
    rows: list[dict[str, Any]] = []
    first: dict[str, Result] = {}
    for name in options.only:
        limit = LIMITS[name]()
        bound = limit.bound(bandwidth, speed)
        print(f"{name}: bound {bound * 1e6:.0f} us", flush=True)
        results = measured(limit.made, options)
        first = results if name == "decode" else first
        for side, result in results.items():
            of_bound = f" {bound / result.seconds:.2f} of the bound" if result.seconds else ""
            print(f"    {side:11} | {cell(result)}{of_bound}", flush=True)
        found = judged(name, results, first)
        if name == "skinny":
            import framejit

            fn, arguments, _ = limit.made
            side = framejit.optimize(fn)
            for _ in range(30):
                side(*arguments(0))
            found["device"] = kernels_of(side, arguments(0))[0]
        print(f"    {json.dumps(found)}", flush=True)
        rows.append({
            "name": name, "bound_s": bound, **found, **{side: result.as_json() for side, result in results.items()},
        })
        del limit
        forget()
    if options.json:
        with open(options.json, "w") as file:
            json.dump({**about, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
