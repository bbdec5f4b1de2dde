"""What the first call costs in a fresh process: framejit and torch.compile, each in processes of its own, with empty
disk caches and then with warm ones.

    python benchmarks/cold_start.py [--device cpu] [--only softmax,resnet18] [--impls ours,compile] [--rounds 1]
        [--json FILE]

`cold` is the seconds from asking for compiled code to the result of the first call, the compiler's own imports
included, after a first eager call; `warm` the same in a second process that finds the caches of the first. Not in them:
`start`, the time to start Python and import torch, and building the workload. Modules have their bytecode, as those of
installed packages do. `MB` is the cold process' peak of resident memory. For eager, `cold` is its very first call.
Medians over the rounds. Wanted of `cold`:
  GPU   at most a quarter of torch.compile's
  CPU   0.5 s for kernels and small graphs, 1.5 s for ResNet-18; for other models a quarter of torch.compile's
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
from typing import Any

import torch
from capture import peak_rss_mb
from measure import at_most, caches_in, command, describe, figure, implement, ratio, setting, sync, verdict, write_json
from workloads import WORKLOADS, Setting

DEFAULT = ("matmul_softmax", "pw_sum", "layernorm_gelu", "small_mlp", "bert", "resnet18")
OF_COMPILE = 0.25
SMALL_ON_CPU_S, ON_CPU_S = 0.5, {"resnet18": 1.5}
CLOSE = 0.05
"""A relative error that only another program has: the other commands check results in earnest."""
SLOWEST_S = 600

Run = dict[str, Any]


def first_call(implementation: str, name: str, s: Setting, backend: str, spawned: float) -> Run:
    """What a child process does. `spawned` is the time of the clock when it was started."""
    start_s = time.time() - spawned
    case = WORKLOADS[name].make(s)
    args = case.args(0)
    with torch.no_grad():
        sync(s.device)
        before = time.perf_counter()
        expected = case.fn(*args)
        sync(s.device)
        seconds = time.perf_counter() - before
        if implementation != "eager":
            before = time.perf_counter()
            got = implement(implementation, case.fn, backend)(*args)
            sync(s.device)
            seconds = time.perf_counter() - before
            error = ((got.double() - expected.double()).norm() / expected.double().norm()).item()
            if not error < CLOSE:
                raise ArithmeticError(f"the result is wrong: relative error {error:.1e}")
    return {"seconds": seconds, "start_s": start_s, "peak_mb": peak_rss_mb()}


def in_fresh_process(
    implementation: str, name: str, options: argparse.Namespace, s: Setting, caches: str, bytecode: str
) -> Run:
    request = {
        "implementation": implementation, "name": name, "backend": options.backend, "device": s.device,
        "size": s.size,
    }
    request |= {"dtype": str(s.dtype).removeprefix("torch."), "spawned": time.time()}
    child = [sys.executable, __file__, "--child", json.dumps(request)]
    environment = os.environ | caches_in(caches) | {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    try:
        run = subprocess.run(child, capture_output=True, text=True, env=environment, timeout=SLOWEST_S)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {SLOWEST_S} s"}
    if run.returncode:
        lines = [line for line in run.stderr.splitlines() if line.strip()]
        return {"error": lines[-1][:300] if lines else f"exit code {run.returncode}"}
    return json.loads(run.stdout.splitlines()[-1])


def cold_and_warm(implementation: str, name: str, options: argparse.Namespace, s: Setting, bytecode: str) -> Run:
    with tempfile.TemporaryDirectory(prefix="benchmark-caches-", ignore_cleanup_errors=True) as caches:
        cold = in_fresh_process(implementation, name, options, s, caches, bytecode)
        if "error" in cold:
            return cold
        run = {"cold_s": cold["seconds"], "start_s": cold["start_s"], "peak_mb": cold["peak_mb"]}
        if implementation == "eager":
            return run
        warm = in_fresh_process(implementation, name, options, s, caches, bytecode)
    return run | ({"error": f"with warm caches: {warm['error']}"} if "error" in warm else {"warm_s": warm["seconds"]})


def medians(runs: list[Run]) -> Run:
    failed = [run for run in runs if "error" in run]
    if failed:
        return failed[0]
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def judge(name: str, ours: Run, compiled: Run, s: Setting) -> tuple[str, str]:
    """What is wanted of the cold call, and whether it is so."""
    if "error" in ours:
        return "", "FAILED"
    cold = ours.get("cold_s")
    if s.device == "cpu" and (name in ON_CPU_S or WORKLOADS[name].kind != "model"):
        limit = ON_CPU_S.get(name, SMALL_ON_CPU_S)
        return f"{limit:.1f} s", verdict(at_most(cold, limit))
    return f"{OF_COMPILE:.2f} of compile", verdict(at_most(ratio(cold, compiled.get("cold_s")), OF_COMPILE))


def cell(run: Run) -> str:
    return (
        f"{figure(run.get('cold_s'), '7.3f')} {figure(run.get('warm_s'), '7.3f')} {figure(run.get('start_s'), '6.2f')} "
        f"{figure(run.get('peak_mb'), '6.0f')}"
    )


def main() -> int:
    parser = command(__doc__, WORKLOADS, rounds=1)
    parser.set_defaults(only=list(DEFAULT), impls=["ours", "compile"])
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        request = options.child
        s = Setting(request["device"], getattr(torch, request["dtype"]), request["size"])
        try:
            run = first_call(request["implementation"], request["name"], s, request["backend"], request["spawned"])
        except Exception as e:
            run = {"error": f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"}
        print(json.dumps(run))
        return 0
    s = setting(options)
    about = describe(s, options)
    side = f"{'cold':>7} {'warm':>7} {'start':>6} {'MB':>6}"
    print(f"{'':16} | " + " | ".join(f"{name:^29}" for name in options.impls) + " | of compile    cold at most")
    print(f"{'':16} | " + " | ".join(side for _ in options.impls) + " |  cold  warm", flush=True)
    written, failed = [], False
    for name in options.only:
        runs: dict[str, list[Run]] = {implementation: [] for implementation in options.impls}
        with tempfile.TemporaryDirectory(prefix="benchmark-bytecode-", ignore_cleanup_errors=True) as bytecode:
            for implementation in runs:  # which no measured process writes, for installed packages have theirs
                cold_and_warm(implementation, name, options, s, bytecode)
            for _ in range(options.rounds):
                for implementation, taken in runs.items():
                    taken.append(cold_and_warm(implementation, name, options, s, bytecode))
        results = {implementation: medians(taken) for implementation, taken in runs.items()}
        ours, compiled = results.get("ours", {}), results.get("compile", {})
        ratios = {key: ratio(ours.get(key), compiled.get(key)) for key in ("cold_s", "warm_s")}
        wanted, judged = judge(name, ours, compiled, s)
        cells = " | ".join(cell(run) for run in results.values())
        print(
            f"{name:16} | {cells} | {' '.join(figure(value, '5.2f') for value in ratios.values())}    {wanted} {judged}"
        )
        for implementation, run in results.items():
            if "error" in run:
                print(f"    {implementation}: {run['error'][:150]}")
        sys.stdout.flush()
        failed |= "error" in ours
        written.append(
            {
                "name": name, "what": WORKLOADS[name].text, **results, "of_compile": ratios, "wanted": wanted,
                "verdict": judged,
            }
        )
    write_json(options.json, about, written)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
