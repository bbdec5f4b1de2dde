"""The process that compares programs: seeds come in, outcomes go out, a line each. It may crash or hang; `pool.py`
starts another."""
from __future__ import annotations

import gc
import json
from typing import Any, TextIO


def work(seeds: TextIO, outcomes: TextIO, mutated: bool, device: str) -> None:
    """Compares until the seeds end, or the device is lost."""
    import torch

    import framejit
    from tests.attack import devices
    from tests.attack.compare import Difference, compare
    from tests.attack.generator.program import program
    from tests.attack.mutation.mutate import mutate

    torch.set_num_threads(1)
    torch.set_warn_always(True)
    devices.use(device)
    outcomes.write("ready\n")
    outcomes.flush()
    for line in iter(seeds.readline, ""):
        forget_what_lives()
        try:
            made = program(int(line))
            found = (mutate if mutated else compare)(made)
        except Exception as e:
            found = Difference("attack", -1, f"{type(e).__name__}: {e}")
        lost = devices.is_lost()  # then what differs may be what the GPU says of everything
        outcome: dict[str, Any] = {"kind": "equal", **({"lost": True} if lost else {})}
        if found and not lost:
            outcome = {
                "kind": found.kind, "call": found.call, "signature": found.signature, "backend": made.backend,
                "message": found.message[:4000],
            }
        outcomes.write(json.dumps(outcome) + "\n")
        outcomes.flush()
        if lost:
            return
        framejit.reset()


def forget_what_lives() -> None:
    """Modules and caches are gone through by no collection from here on: a program's collections then look at what the
    program made."""
    gc.collect()
    gc.freeze()
