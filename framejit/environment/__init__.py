"""What framejit relies on of the process it runs in: versions, CPython's internals, builtins, modules half imported."""
