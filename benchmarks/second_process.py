"""What the first call costs in a second process: with nothing on the disk, with kernels and plans there, and with
captures there too (`config.keep_captures`).

    python benchmarks/second_process.py [--only bert_2,bert_12,llama_2,llama_22,generate_2] [--rounds 3]

Each figure is the seconds from `import framejit` to the result of the first call, after a first eager call, the median
over the rounds; the models are transformers' from small configurations, on the CPU. `generate` is Llama's, optimized as
a whole, of 8 tokens: a program with graph breaks. `of cold` is that of a process that finds everything. Wanted: 0.15
for large models, 0.5 for BERT.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

CASES = ("bert_2", "bert_12", "llama_2", "llama_22", "generate_2")
CLOSE = 1e-4
SMALL = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "vocab_size": 1000}
CHILD = {"OMP_NUM_THREADS": "1"}
"""Threads of OpenMP that wait for work count as processor time."""
Run = dict[str, float]


def first_call(name: str) -> Run:
    """What a child process does."""
    import transformers

    kind, layers = name.split("_")
    tokens = torch.arange(64).reshape(2, 32)
    torch.manual_seed(0)
    if kind == "bert":
        model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=int(layers), **SMALL)).eval()
        args = {"input_ids": tokens}
    else:
        config = transformers.LlamaConfig(num_hidden_layers=int(layers), num_key_value_heads=2, **SMALL)
        model, args = transformers.LlamaForCausalLM(config).eval(), {"input_ids": tokens, "use_cache": False}
    called = model
    if kind == "generate":
        model.generation_config.pad_token_id, model.generation_config.eos_token_id = 0, None
        called, args = model.generate, {"inputs": tokens, "max_new_tokens": 8, "do_sample": False}
    with torch.no_grad():
        expected = called(**args)[0]
        wall, processor = time.perf_counter(), time.process_time()
        import framejit

        got = framejit.optimize(called)(**args)[0]
        seconds = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
    error = ((got.double() - expected.double()).norm() / expected.double().norm()).item()
    if not error < CLOSE:
        raise ArithmeticError(f"the result is wrong: relative error {error:.1e}")
    return seconds | {"captured": float("framejit.capture.capture" in sys.modules)}


def in_fresh_process(name: str, caches: str, captures: bool) -> Run:
    environment = os.environ | CHILD | {
        "FRAMEJIT_CACHE_DIR": caches, "FRAMEJIT_KEEP_CAPTURES": str(int(captures)),
    }
    child = [sys.executable, __file__, "--child", name]
    run = subprocess.run(child, capture_output=True, text=True, env=environment, timeout=600)
    if run.returncode:
        raise RuntimeError(run.stderr)
    found: Run = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(first_call(options.child)))
        return 0
    columns = f"{'cold':>7} {'plans':>7} {'captures':>8} {'of cold':>7}"
    print(f"{'':10} | {columns} | processor: cold, plans, captures, of cold")
    failed = False
    for name in options.only:
        runs: dict[str, list[Run]] = {"cold": [], "plans": [], "captures": []}
        with tempfile.TemporaryDirectory(prefix="benchmark-caches-") as warm:
            in_fresh_process(name, warm, captures=True)
            for _ in range(options.rounds):
                with tempfile.TemporaryDirectory(prefix="benchmark-caches-") as cold:
                    runs["cold"].append(in_fresh_process(name, cold, captures=True))
                runs["plans"].append(in_fresh_process(name, warm, captures=False))
                runs["captures"].append(in_fresh_process(name, warm, captures=True))
        if not name.startswith("generate"):  # a few of whose parts can't be kept
            failed |= any(run["captured"] for run in runs["captures"])
        wall, processor = (
            {kind: statistics.median(run[clock] for run in taken) for kind, taken in runs.items()}
            for clock in ("wall", "processor")
        )
        print(
            f"{name:10} | {wall['cold']:7.3f} {wall['plans']:7.3f} {wall['captures']:8.3f} "
            f"{wall['captures'] / wall['cold']:7.2f} | {processor['cold']:.3f}, {processor['plans']:.3f}, "
            f"{processor['captures']:.3f}, {processor['captures'] / processor['cold']:.2f}", flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
