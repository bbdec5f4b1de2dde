"""Capture time and peak memory of framejit and torch.compile, the same counting backend, each in a fresh process.

    python benchmarks/capture.py [--rounds 3] [--models bert,gpt2] [--json FILE]

`first call` is the first call of the model, after a trivial function has been compiled; `start` is that trivial first
call, which pays for imports and warm-up. Wanted: a first call of at most half of torch.compile's, and a peak of
resident memory that is not above it.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SHIMS = pathlib.Path(__file__).resolve().parent.parent / "tests"
IMPLEMENTATIONS = ("framejit", "torch.compile")


def transformers_model(name: str, config: str, **settings: Any) -> Any:
    import transformers

    return getattr(transformers, name)(getattr(transformers, config)(**settings)).eval()


def ids(length: int = 16) -> Any:
    import torch

    return torch.randint(3, 500, (2, length))


def image(size: int) -> Any:
    import torch

    return torch.randn(1, 3, size, size)


def torchvision_model(name: str, **settings: Any) -> Any:
    import torchvision

    return getattr(torchvision.models, name)(**settings).eval()


def timm_model(name: str) -> Any:
    import timm

    return timm.create_model(name, num_classes=10).eval()


SIZES = {"vocab_size": 512, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
DEEP = {**SIZES, "num_hidden_layers": 12}
VIT = {
    "hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 64,
    "patch_size": 16,
}

# name -> (model, keyword arguments of the call): published depth, small width, random weights
MODELS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "bert": lambda: (transformers_model("BertModel", "BertConfig", **DEEP), {"input_ids": ids()}),
    "gpt2": lambda: (
        transformers_model(
            "GPT2LMHeadModel", "GPT2Config", vocab_size=512, n_embd=64, n_layer=12, n_head=4, use_cache=False
        ),
        {"input_ids": ids()},
    ),
    "llama": lambda: (
        transformers_model("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, use_cache=False, **DEEP),
        {"input_ids": ids()},
    ),
    "t5": lambda: (
        transformers_model(
            "T5Model", "T5Config", vocab_size=512, d_model=64, d_ff=128, d_kv=16, num_layers=6, num_heads=4,
            use_cache=False,
        ),
        {"input_ids": ids(), "decoder_input_ids": ids(8)},
    ),
    "vit": lambda: (transformers_model("ViTModel", "ViTConfig", **VIT), {"pixel_values": image(64)}),
    "resnet18": lambda: (torchvision_model("resnet18", num_classes=10), {"x": image(64)}),
    "vit_b_16": lambda: (
        torchvision_model(
            "VisionTransformer", image_size=32, patch_size=16, num_layers=12, num_heads=4, hidden_dim=64, mlp_dim=128
        ),
        {"x": image(32)},
    ),
    "efficientnet_lite0": lambda: (timm_model("efficientnet_lite0"), {"x": image(64)}),
}


class CountingBackend:
    def __init__(self) -> None:
        self.graphs = 0
        self.ops = 0

    def __call__(self, gm: Any, inputs: Any) -> Callable[..., Any]:
        self.graphs += 1
        self.ops += sum(node.op.startswith("call_") for node in gm.graph.nodes)
        return gm.forward


def prepare_imports() -> None:
    """Lets torchvision, which transformers may import, load beside a CPU build of torch."""
    sys.path.insert(0, str(SHIMS))
    try:
        import torchvision_shim  # noqa: F401
    except ModuleNotFoundError:
        pass


def compile_with(implementation: str, target: Any, backend: Any) -> Any:
    if implementation == "framejit":
        import framejit

        return framejit.optimize(target, backend=backend)
    import torch

    return torch.compile(target, backend=backend, dynamic=False)


def peak_rss_mb() -> float:
    """The high-water mark of this process alone; getrusage would include the parent's."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel reports no VmHWM")


def measure(implementation: str, name: str) -> dict[str, Any]:
    """What a child process does."""
    prepare_imports()
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, inputs = MODELS[name]()
    with torch.no_grad():
        model(**inputs)
        start = time.perf_counter()
        compile_with(implementation, lambda x: x + 1, CountingBackend())(torch.ones(2))
        warm = time.perf_counter()
        backend = CountingBackend()
        fn = compile_with(implementation, model, backend)
        before = time.perf_counter()
        fn(**inputs)
        after = time.perf_counter()
        graphs = backend.graphs
        fn(**inputs)
    recompiled = backend.graphs - graphs
    return {
        "start_s": warm - start, "first_s": after - before, "peak_mb": peak_rss_mb(), "graphs": graphs,
        "ops": backend.ops, "recompiled": recompiled,
    }


def in_fresh_process(implementation: str, name: str) -> dict[str, Any]:
    run = subprocess.run([sys.executable, __file__, "--child", implementation, name], capture_output=True, text=True)
    if run.returncode:
        lines = run.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {run.returncode}"}
    return json.loads(run.stdout.splitlines()[-1])


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    failed = [r for r in runs if "error" in r]
    return failed[0] if failed else {key: statistics.median(r[key] for r in runs) for key in runs[0]}


def row(name: str, result: dict[str, dict[str, Any]]) -> str:
    cells = []
    for implementation in IMPLEMENTATIONS:
        r = result[implementation]
        if "error" in r:
            return f"{name:20s} {implementation}: {r['error']}"
        cells.append(
            f"{r['first_s']:8.3f} {r['start_s']:8.3f} {r['peak_mb']:7.0f} {int(r['graphs']):3d} {int(r['ops']):5d}"
        )
    ours, theirs = (result[i] for i in IMPLEMENTATIONS)
    time_ratio, memory_ratio = ours["first_s"] / theirs["first_s"], ours["peak_mb"] / theirs["peak_mb"]
    note = "  RECOMPILED" if ours["recompiled"] else ""
    verdict = "ok" if time_ratio <= 0.5 and memory_ratio <= 1 and not note else "MISSED"
    return f"{name:20s} {cells[0]} | {cells[1]} | {time_ratio:5.2f} {memory_ratio:6.2f} {verdict}{note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated names (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(*options.child)))
        return
    columns = f"{'first s':>8} {'start s':>8} {'peak MB':>7} {'gr':>3} {'ops':>5}"
    print(f"{'':20s} {'framejit':^35} | {'torch.compile':^35} | ratios (at most 0.50, 1.00)")
    print(f"{'model':20s} {columns} | {columns} | {'time':>5} {'memory':>6}", flush=True)
    results = {}
    for name in options.models.split(","):
        runs: dict[str, list[dict[str, Any]]] = {i: [] for i in IMPLEMENTATIONS}
        for _ in range(options.rounds):
            for implementation in IMPLEMENTATIONS:
                runs[implementation].append(in_fresh_process(implementation, name))
        results[name] = {i: medians(runs[i]) for i in IMPLEMENTATIONS}
        print(row(name, results[name]), flush=True)
    complete = [r for r in results.values() if not any("error" in r[i] for i in IMPLEMENTATIONS)]
    if complete:
        ours, theirs = (sum(r[i]["first_s"] for r in complete) for i in IMPLEMENTATIONS)
        print(f"{'all':20s} {ours:8.3f}{'':28s}| {theirs:8.3f}{'':28s}| {ours / theirs:5.2f}")
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps({"python": sys.version.split()[0], "models": results}, indent=1)
        )


if __name__ == "__main__":
    main()
