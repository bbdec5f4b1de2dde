"""ATen operations to loops: index functions composed as long as nothing needs memory, and compute nodes where something does."""

from framejit.backends.fuse.lowering.graph import lower

__all__ = ["lower"]
