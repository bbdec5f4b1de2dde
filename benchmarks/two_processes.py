"""A GPT-2's training step in two processes, by DDP and by FSDP2: framejit, eager and torch.compile in turns.

    python benchmarks/two_processes.py [--device cuda] [--ways ddp,fsdp] [--impls eager,ours,compile] [--rounds 3]
        [--json FILE]

On GPUs by NCCL, one for each process; on CPUs by gloo, a small model. Each side has a model and an optimiser of its own
with equal weights, and compiles the function from inputs to loss; `loss.backward()` and the optimiser's step stand
outside. `ms` is milliseconds a step, the slower process's, with half the range of the rounds in percent; `first` the
seconds of the first step; `MB` the most bytes alive in a step; `loss` is that after all steps, which may differ from
eager's by rounding.
"""
from __future__ import annotations

import argparse
import copy
import os
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from measure import choice, implement, sync, use_empty_caches, write_json
from torch import multiprocessing, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from training import MODELS
from workloads import Setting

WAYS = ("ddp", "fsdp")
IMPLEMENTATIONS = ("eager", "ours", "compile")
SETTLING_STEPS, STEPS = 12, 10


def distributed(module: nn.Module, way: str, device: str) -> nn.Module:
    if way == "ddp":
        return DistributedDataParallel(module, device_ids=[torch.cuda.current_device()] if device == "cuda" else None)
    for block in module.transformer.h:
        fully_shard(block)
    return fully_shard(module)


def stepping(way: str, name: str, options: argparse.Namespace) -> Callable[[], torch.Tensor]:
    """A step of one side, which gives the loss."""
    setting = Setting(options.device, torch.bfloat16 if options.device == "cuda" else torch.float32, options.size)
    case = MODELS["gpt2"].make(setting)
    module = distributed(copy.deepcopy(case.module), way, options.device)
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
    compiled = implement(name, case.given, "fuse")
    # each process has a batch of its own
    args = tuple(ids.roll(1 + dist.get_rank(), 1) for ids in case.args)

    def step() -> torch.Tensor:
        loss = case.loss(compiled(module, *args))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def seconds(step: Callable[[], Any], steps: int, device: str) -> float:
    """Of so many steps together, in the process that takes longest."""
    sync(device)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    sync(device)
    taken = torch.tensor(time.perf_counter() - start, device=device)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return float(taken)


def measured(way: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """All sides of one way."""
    sides, found = {}, {}
    for name in options.impls:
        step = sides[name] = stepping(way, name, options)
        found[name] = {"first_s": seconds(step, 1, options.device)}
        seconds(step, SETTLING_STEPS, options.device)
        if options.device == "cuda":
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            seconds(step, 1, options.device)
            found[name]["MB"] = (torch.cuda.max_memory_allocated() - before) / 1e6
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, step in sides.items():
            times[name].append(seconds(step, STEPS, options.device) / STEPS)
    for name, step in sides.items():
        spread = (max(times[name]) - min(times[name])) / 2 / statistics.median(times[name])
        found[name] |= {"ms": statistics.median(times[name]) * 1e3, "spread": spread, "loss": float(step())}
    return found


def process(rank: int, port: int, options: argparse.Namespace) -> None:
    """What each of the two does."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    use_empty_caches()
    if options.device == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo", rank=rank, world_size=2)
    rows = []
    for way in options.ways:
        results = measured(way, options)
        if rank == 0:
            for name, result in results.items():
                memory = f"{result['MB']:7.0f} MB" if "MB" in result else ""
                of_first = result["ms"] / results[options.impls[0]]["ms"]
                print(
                    f"{way:5} {name:8} | {result['ms']:8.2f} ms +-{result['spread']:.0%}, {of_first:.2f} of "
                    f"{options.impls[0]}, first {result['first_s']:6.2f} s{memory}, loss {result['loss']:.4f}",
                    flush=True,
                )
            rows.append({"name": way, **results})
    if rank == 0:
        write_json(options.json, {"torch": torch.__version__, "device": options.device}, rows)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=("tiny", "small", "large"))
    parser.add_argument("--ways", type=choice(WAYS), default=[*WAYS], metavar="WAYS")
    parser.add_argument("--impls", type=choice(IMPLEMENTATIONS), default=[*IMPLEMENTATIONS], metavar="NAMES")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    options.size = options.size or ("large" if options.device == "cuda" else "tiny")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.start_processes(process, (port, options), nprocs=2, start_method="spawn")


if __name__ == "__main__":
    main()
