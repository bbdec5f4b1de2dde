"""ATen operations to loops: index functions composed as long as nothing needs memory, and compute nodes where something
does."""
