"""The command line of the attack."""
from __future__ import annotations

import argparse
import itertools
import pathlib


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run programs and count differences")
    run.add_argument("--programs", type=int, default=1000)
    run.add_argument("--seed", type=int, default=1, help="which million of programs")
    run.add_argument("--seeds", type=span, metavar="FIRST:END", help="these programs, instead of --programs of --seed")
    run.add_argument("--jobs", type=int, default=1, help="processes")
    run.add_argument("--minutes", type=float, help="begin no program after that")
    run.add_argument(
        "--folder", type=pathlib.Path, default=pathlib.Path("build/attack"),
        help=(
            "keeps what was run, and each difference as a line of differences.jsonl; a second run goes on where the "
            "first ended"
        ),
    )
    run.add_argument("--seconds", type=float, default=120.0, help="what takes longer hangs")
    run.add_argument("--device", default="cpu", help="where programs make their tensors")
    run.add_argument(
        "--mutate",
        action="store_true",
        help="change one thing at a time that the first call can look at, instead of calling as the program does",
    )
    for name, text in (
        ("show", "print a program"),
        ("check", "compare it"),
        ("reduce", "print a smaller one that differs in the same way"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("program", help="a program's number, or a file with its text")
        command.add_argument(
            "--backend", choices=("eager", "fuse"), help="by default eager for even numbers, fuse for odd ones"
        )
        command.add_argument("--seconds", type=float, default=120, help="for how long smaller programs are tried")
        command.add_argument("--mutate", action="store_true")
        command.add_argument("--device", default="cpu")
    soak = commands.add_parser("soak", help="threads that compile, call, reset and drop at once")
    soak.add_argument("--minutes", type=float, default=30)
    soak.add_argument("--threads", type=int, default=16)
    soak.add_argument("--seed", type=int, default=0)
    fuzz = commands.add_parser(
        "fuzz", help="guard trees and the inputs of plans: random ones, against what they mean in Python"
    )
    fuzz.add_argument("--minutes", type=float, default=15)
    fuzz.add_argument("--seed", type=int, default=1, help="which million")
    fuzz.add_argument("--only", choices=("guards", "plans"))
    worker = commands.add_parser("work", help=argparse.SUPPRESS)
    worker.add_argument("--mutate", action="store_true")
    worker.add_argument("--device", default="cpu")
    worker.add_argument("seeds_from", type=int)
    worker.add_argument("outcomes_to", type=int)
    options = parser.parse_args()
    if options.command == "work":
        from tests.attack.worker import work

        with open(options.seeds_from) as seeds, open(options.outcomes_to, "w") as outcomes:
            work(seeds, outcomes, options.mutate, options.device)
        return 0
    if options.command == "soak":
        return soak_all(options)
    if options.command == "fuzz":
        return fuzz_all(options)
    if options.command == "run":
        return run_all(options)
    return one(options)


def span(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def run_all(options: argparse.Namespace) -> int:
    from tests.attack.pool import SPAN, Pool, groups, summary

    seeds = options.seeds or range(options.seed * SPAN, options.seed * SPAN + options.programs)
    pool = Pool(seeds, options.folder, options.jobs, options.seconds, options.minutes, options.mutate, options.device)
    done = pool.run()
    for signature, found in groups(done):
        print(f"{len(found):5d}  {signature}  ({', '.join(map(str, found[:5]))})")
    print(summary(done) + (f", {len(pool.todo)} not run" if pool.todo else ""))
    return int(any(outcome["kind"] != "equal" for outcome in done.values()))


def soak_all(options: argparse.Namespace) -> int:
    import torch

    from tests.attack.soak import Soak

    torch.set_num_threads(1)
    soak = Soak(options.minutes * 60, options.threads, options.seed)
    found = soak.run()
    print("\n".join([*found[:20], *(f"plain Python answers in two ways: {text}" for text in soak.unsteady[:20])]))
    print(f"{soak.steps} steps of {options.threads} threads, {len(found)} differences")
    return int(bool(found))


def fuzz_all(options: argparse.Namespace) -> int:
    import torch

    from tests.attack.fuzz import guard_fuzz, plan_fuzz

    torch.set_num_threads(1)
    kinds = {"guards": guard_fuzz.fuzz, "plans": plan_fuzz.fuzz}
    chosen = [options.only] if options.only else [*kinds]
    failed = False
    for kind in chosen:
        seeds = itertools.count(options.seed * 1_000_000)
        tried, found = kinds[kind](seeds, options.minutes * 60 / len(chosen))
        print("\n".join(found[:20]))
        print(f"{kind}: {tried} tried, {len(found)} differences")
        failed |= bool(found)
    return int(failed)


def one(options: argparse.Namespace) -> int:
    import torch

    from tests.attack import devices
    from tests.attack.compare import compare
    from tests.attack.generator.program import Program, program
    from tests.attack.mutation.mutate import mutate
    from tests.attack.reduce import reduced

    torch.set_num_threads(1)
    torch.set_warn_always(True)
    devices.use(options.device)
    if options.program.isdigit():
        wanted = program(int(options.program))
    else:
        wanted = Program(0, pathlib.Path(options.program).read_text(), "eager", {})
    if options.backend:
        wanted.backend = options.backend
    if options.command == "show":
        print(wanted.text)
        return 0
    run = mutate if options.mutate else compare
    found = run(wanted)
    print(f"# backend {wanted.backend}, options {wanted.options}")
    if found is None:
        print("# no difference")
        return 0
    if options.command == "reduce":
        wanted = reduced(wanted, found.signature, options.seconds, run)
        found = run(wanted) or found
        print(wanted.text)
    print(f"# call {found.call}, {found.kind}: {found.message}")
    return 1
