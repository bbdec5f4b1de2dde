"""Triton source to machine code, several kernels at a time, without a GPU at hand.

Triton's passes are called one after another as triton.compile calls them. That leaves out its cache folder and the
hashing for it, which take as long as half of the passes: equal kernels and kernels of earlier processes are recognised
before, by `TritonSource.key`.
"""
from __future__ import annotations

import inspect
import linecache
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any

from framejit.backends.fuse.triton.kernel_source import TritonSource
from framejit.backends.fuse.triton.tiles.multiples import ALIGNED
from framejit.environment.collector import resting
from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class GpuBinary:
    """Machine code for one kernel. Plain data, as it can be kept on disk."""

    cubin: bytes
    name: str
    """The kernel's name in the cubin."""
    shared_bytes: int
    threads: int
    pointers: int
    """How many of the arguments are addresses of tensors; they come first."""
    scratch: int
    """How many addresses of scratch memory come last, none of which the kernel uses: null will do."""

    def arguments(self, slots: Sequence[int], scalars: Iterable[tuple[str, Any]] = ()) -> tuple[tuple[Any, ...], ...]:
        """The arguments of a plan's step for tensors in these slots, in the order of the source's `buffers`, and for
        its `scalars`, each with its type."""
        return (*(("p", slot) for slot in slots), *scalars, *(("null",) for _ in range(self.scratch)))


def begun_gpu_kernels(
    sources: Sequence[TritonSource], capability: int
) -> Callable[[], list[GpuBinary | Exception]]:
    """What gives for each of the sources machine code, or what Triton raises, with a note that names the kernel. Other
    threads are at it meanwhile. `capability` is the GPU's compute capability, such as 90."""
    distinct = {source.key: source for source in sources}
    pool = ThreadPoolExecutor(
        max_workers=max(1, min(len(distinct), os.cpu_count() or 1)), thread_name_prefix="framejit-triton"
    )
    running = {key: pool.submit(_at_rest, source, capability) for key, source in distinct.items()}
    pool.shutdown(wait=False)
    return lambda: [running[source.key].result() for source in sources]


def _at_rest(source: TritonSource, capability: int) -> GpuBinary | Exception:
    # imports and passes make many objects that stay; collections of a heap with torch in it would take as long as they
    # do
    with resting():
        return _compiled(source, capability)


def _compiled(source: TritonSource, capability: int) -> GpuBinary | Exception:
    try:
        return _passes(source, capability)
    except Exception as error:  # whoever asked looks for it, and tries other tiles or raises it
        error.add_note(f"while compiling the GPU kernel {source.name}")
        return error


@contextmanager
def jit_function(source: TritonSource) -> Iterator[Any]:
    """The triton.jit function of a source, for Triton's compiler or interpreter. Both read its source again as long as
    they are at it."""
    file = f"<framejit {source.name} {next(_files)}>"
    linecache.cache[file] = (len(source.code), None, source.code.splitlines(keepends=True), file)
    try:
        namespace: dict[str, Any] = {"__name__": "framejit.kernels"}
        exec(compile(source.code, file, "exec"), namespace)
        yield namespace[source.function]
    finally:
        del linecache.cache[file]


_files = count()


@cache
def _triton_imported() -> Callable[..., Any]:
    """Import what the passes need, once and by one thread: Triton's modules import one another in circles."""
    import triton

    # asking ptxas for its version takes as long as the imports that follow; Triton keeps the answer
    threading.Thread(
        target=getattr, args=(triton.knobs.nvidia, "ptxas", None), name="framejit-ptxas", daemon=True
    ).start()
    import triton.compiler.code_generator
    import triton.language.extra.cuda
    import triton.language.extra.libdevice
    from triton.compiler import ASTSource

    from framejit.backends.fuse.triton import device

    assert triton.language.extra.libdevice and device
    return ASTSource


_importing = threading.Lock()


def _passes(source: TritonSource, capability: int) -> GpuBinary:
    with _importing:
        ast_source = _triton_imported()  # and with it what follows
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    target = GPUTarget("cuda", capability, 32)
    signature = {name: kind for name, kind, _ in source.signature}
    attributes = {
        (position,): [["tt.divisibility", 16 if kind.startswith("*") else ALIGNED]]
        for position, (_, kind, aligned) in enumerate(source.signature)
        if aligned
    }
    backend = make_backend(target)
    asserts = "tl.device_assert" in source.code  # which are left out but for `debug`
    options = backend.parse_options(
        {"num_warps": source.warps, "enable_fp_fusion": True, "debug": asserts, "sanitize_overflow": False}
    )
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with jit_function(source) as function:
        kernel = ast_source(fn=function, signature=signature, constexprs={}, attrs=attributes)
        module = _call(
            kernel.make_ir,
            target=target,
            options=options,
            codegen_fns=_call(backend.get_codegen_implementation, options=options),
            module_map=backend.get_module_map(),
            context=context,
        )
    stages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
    _call(backend.add_stages, stages=stages, options=options, language=getattr(kernel, "language", None))
    metadata: dict[str, Any] = {"target": target, **options.__dict__}
    ptx = ""
    for stage, run in stages.items():
        module = run(module, metadata)
        if stage == "ptx":
            ptx = module
    scratch = _parameters(ptx) - len(signature)
    return GpuBinary(
        module, metadata["name"], metadata["shared"], metadata["num_warps"] * 32, len(source.buffers), scratch
    )


def _call(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call with those of the arguments that the function has: Triton's releases differ in them."""
    return function(
        **{name: value for name, value in arguments.items() if name in inspect.signature(function).parameters}
    )


def _parameters(ptx: str) -> int:
    """How many parameters the kernel has. Triton adds some for scratch memory, how many depends on its release."""
    entry = re.search(r"\.entry\s+\w+\s*\((.*?)\)\s*(?:\.|\{)", ptx, re.DOTALL)
    return len(re.findall(r"\.param\b", entry.group(1))) if entry else 0
