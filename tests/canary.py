"""Which way each native part found into this torch and this CPython: `make canary TORCH='torch==2.16.0'` prints it, and
fails where one fell back.

Run it with a torch or a CPython that framejit was never run with: what it prints first is what has to be looked at.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

import torch

import framejit
from framejit import _native
from framejit.environment import cpython_layout
from framejit.guards.tensor_layout import LAYOUT

OF_CUDA = "cuda"


def findings() -> Iterator[tuple[str, str, bool]]:
    """Part, the way that was found, and whether it is the quick one."""
    for part, holds in cpython_layout.LAYOUT.items():
        yield f"CPython's {part}", "read where they are" if holds else "not read", holds
    dicts = _native.dict_access()
    yield "changes of dictionaries", dicts, dicts != "comparison"
    told = cpython_layout.ATTRIBUTES_ARE_TOLD
    yield "changes of instances' attributes", dicts if told else "comparison: CPython tells nobody of some", told
    tensors = _native.tensor_access()
    yield "metadata of tensors", tensors, tensors == "direct"
    for name, place in sorted(LAYOUT.items()):
        if isinstance(place, bool):
            yield f"torch's {name}", "found" if place else "not found", place
        elif isinstance(place, int):
            yield f"offset of {name}", str(place), place >= 0
    for name, (exported, instead) in _native.torch_symbols().items():
        if OF_CUDA not in name or torch.cuda.is_available():
            yield name, "exported" if exported else f"not exported: {instead}", exported


def main() -> int:
    print(f"framejit {framejit.__version__}, CPython {platform.python_version()}, torch {torch.__version__}")
    found = list(findings())
    for part, way, quick in found:
        print(f"{'  ' if quick else '! '}{part:55} {way}")
    lost = [part for part, _, quick in found if not quick]
    print(f"{len(lost)} of {len(found)} fell back: {', '.join(lost)}" if lost else f"all {len(found)} are native")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
