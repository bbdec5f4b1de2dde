"""torchvision, which transformers imports when it is there, needs help to import beside a CPU build of torch."""
import contextlib

with contextlib.suppress(ModuleNotFoundError):  # without torchvision its tests skip
    import torchvision_shim  # noqa: F401
