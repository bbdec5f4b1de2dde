"""Models with random weights: steady time, first call and peak memory of framejit, eager and torch.compile, in turns in
one run, checked against float64.

    python benchmarks/models.py [--device cuda] [--dtype bfloat16] [--only bert,resnet50] [--impls ours,eager,compile]
        [--json FILE]

`ms` is milliseconds a call, with half the range of the rounds in percent; `first` the seconds of the first call,
compiling included, with empty caches but in a process that may have compiled before (cold_start.py takes a fresh one);
`MB` the most bytes of tensors alive in a call, weights included: GPU by torch's allocator; CPU by torch's profiler,
which does not see what an implementation keeps between calls. `of compile` is our time, first call and memory over
torch.compile's. Wanted:
  time      GPU: in the geometric mean of BERT, GPT-2, Llama, ResNet-50 and ViT at least 1.3 times as fast as
            torch.compile; no model slower (2 % are noise)
  first     GPU: at most a quarter of torch.compile's
  memory    at most torch.compile's
"""
from __future__ import annotations

import sys
from functools import partial

from measure import (
    CLOCK_NOISE,
    at_least,
    command,
    exit_code,
    figure,
    geometric_mean,
    ratio,
    run_case,
    setting,
    verdict,
    write_json,
)
from model_table import measured_rows
from workloads import of_kind

MEAN_OF = ("bert", "gpt2", "llama", "resnet50", "vit")
MEAN_SPEED = 1.3
MEMORY = 1.001  # not for a few blocks of the allocator's
ANYWHERE = {"time": CLOCK_NOISE, "memory": MEMORY}
WANTED = {"cuda": {**ANYWHERE, "first call": 0.25}, "cpu": ANYWHERE}


def main() -> int:
    models = of_kind("model")
    options = command(__doc__, models).parse_args()
    wanted_models = [models[name] for name in options.only]
    about, rows, written = measured_rows(wanted_models, options, WANTED, partial(run_case, memory=True))
    judged = [row for row in rows if row.workload.name in MEAN_OF]
    speed = ratio(1.0, geometric_mean(row.of_compile for row in judged))
    eager_speed = ratio(1.0, geometric_mean(row.of_eager for row in judged))
    names = ", ".join(row.workload.name for row in judged)
    on_gpu = setting(options).device == "cuda"
    held = verdict(at_least(speed, MEAN_SPEED)) if on_gpu else "-"
    wanted = f"; wanted {MEAN_SPEED}: {held}" if on_gpu else ""
    print(
        f"geometric mean of {names or 'nothing'}: {figure(eager_speed, '.2f')} times as fast as eager, "
        f"{figure(speed, '.2f')} as torch.compile{wanted}"
    )
    write_json(options.json, about, written, speed_against_eager=eager_speed, speed_against_compile=speed, verdict=held)
    return exit_code(rows)


if __name__ == "__main__":
    sys.exit(main())
