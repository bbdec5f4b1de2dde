"""Triton's passes, one after another as triton.compile calls them.

That leaves out its cache folder and the hashing for it, which take as long as half of the passes: equal kernels and
kernels of earlier processes are recognised before, by `TritonSource.key`.

Nothing here imports framejit or torch, but for functions of `device.py` by the kernels that call them: processes that
do nothing but compile (`compile_server.py`) import Triton alone.
"""
from __future__ import annotations

import inspect
import linecache
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any, NamedTuple


class Job(NamedTuple):
    """What machine code is made of. Plain data, which other processes can be sent."""

    name: str
    """The kernel's, for messages."""
    code: str
    """A module that defines the function."""
    function: str
    signature: tuple[tuple[str, str, int], ...]
    """For each argument its name, Triton's type of it, and what divides it: 0 where nothing is known."""
    warps: int
    capability: int
    """The GPU's compute capability, such as 90."""


class MachineCode(NamedTuple):
    """What Triton makes of a job. Plain data."""

    cubin: bytes
    name: str
    """The kernel's name in the cubin."""
    shared_bytes: int
    threads: int
    scratch: int
    """How many addresses of scratch memory are behind the arguments of the signature."""


def outcome(job: Job) -> MachineCode | Exception:
    """Machine code, or what Triton raises, with a note that names the kernel."""
    try:
        return _passes(job)
    except Exception as error:  # whoever asked looks for it, and tries other tiles or raises it
        error.add_note(f"while compiling the GPU kernel {job.name}")
        return error


@contextmanager
def jit_function(name: str, code: str, function: str) -> Iterator[Any]:
    """The triton.jit function of a kernel's module, for Triton's compiler or interpreter. Both read its source again as
    long as they are at it."""
    file = f"<framejit {name} {next(_files)}>"
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    try:
        namespace: dict[str, Any] = {"__name__": "framejit.kernels"}
        exec(compile(code, file, "exec"), namespace)
        yield namespace[function]
    finally:
        del linecache.cache[file]


_files = count()


def import_triton() -> Callable[..., Any]:
    """Import what the passes need, by one thread: Triton's modules import one another in circles. Gives Triton's
    `ASTSource`."""
    with _importing:
        return _ast_source()


_importing = threading.Lock()


@cache
def _ast_source() -> Callable[..., Any]:
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


def _passes(job: Job) -> MachineCode:
    ast_source = import_triton()  # and with it what follows
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    target = GPUTarget("cuda", job.capability, 32)
    signature = {name: kind for name, kind, _ in job.signature}
    attributes = {
        (position,): [["tt.divisibility", divisor]] for position, (_, _, divisor) in enumerate(job.signature) if divisor
    }
    backend = make_backend(target)
    asserts = "tl.device_assert" in job.code  # which are left out but for `debug`
    options = backend.parse_options(
        {"num_warps": job.warps, "enable_fp_fusion": True, "debug": asserts, "sanitize_overflow": False}
    )
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with jit_function(job.name, job.code, job.function) as function:
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
    return MachineCode(module, metadata["name"], metadata["shared"], metadata["num_warps"] * 32, scratch)


def _call(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call with those of the arguments that the function has: Triton's releases differ in them."""
    return function(
        **{name: value for name, value in arguments.items() if name in inspect.signature(function).parameters}
    )


def _parameters(ptx: str) -> int:
    """How many parameters the kernel has. Triton adds some for scratch memory, how many depends on its release."""
    entry = re.search(r"\.entry\s+\w+\s*\((.*?)\)\s*(?:\.|\{)", ptx, re.DOTALL)
    return len(re.findall(r"\.param\b", entry.group(1))) if entry else 0
