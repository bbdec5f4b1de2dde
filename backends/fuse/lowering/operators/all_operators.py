"""The files of lowerings; importing one registers what is in it."""

from __future__ import annotations

from importlib import import_module
from typing import Final

FILES: Final = (
    *(
        "pointwise", "activations", "reductions", "moments", "scans", "normalisation", "softmax", "losses", "creation",
        "rearrange", "indexing", "pooling", "attention", "convolutions", "tiled_products",
        "random_numbers",
    ),
    "gradients",
)


def load() -> None:
    """Register all lowerings."""
    for name in FILES:
        import_module(f"framejit.backends.fuse.lowering.operators.{name}")
