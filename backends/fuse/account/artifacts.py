"""What was made of a graph, stage by stage, as files to read and to run: `FRAMEJIT_DEBUG=folder`.

A folder for each graph:

    graph.py               the graph as it was captured
    reproduce.py           builds the graph and random inputs, runs both eagerly and compiled, and compares
    graphs/                the graph as it was recorded, and as each pass left it that changed it
                           (backends/fuse/graph/graph_text.py)
    ir_before_fusion.txt   the loops it was lowered to
    ir_after_fusion.txt    the schedule: what runs in which kernel, and what ATen carries out
    kernels/               the kernels' sources
    summary.json           counts, reasons, and once it is decided how long both ways took
    error.txt              if compiling failed, the traceback
"""
from __future__ import annotations

import json
import os
import tempfile
import traceback
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import fx

from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.account.graph_script import script
from framejit.backends.fuse.targets.lookup import source_suffix
from framejit.config import config
from framejit.events import warn
from framejit.version import __version__


def write_artifacts(
    graph: CompiledGraph, gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor], error: Exception | None = None
) -> str:
    """Write what is known of a graph to a folder of its own and return its path; empty if that was impossible, of which
    a warning tells.

    The folder is made in `config.artifacts`, or among the temporary files if none is set. Never raises: this must not
    change what a program does.
    """
    try:
        folder = _new_folder(config.artifacts or _temporary_folder(os.getpid()), graph.name)
        graph.artifacts = str(folder)
        texts: dict[str, Callable[[], str]] = {
            "graph.py": lambda: _readable(gm),
            "reproduce.py": lambda: script(gm, example_inputs, f"{graph.name}, as framejit {__version__} captured it"),
            "graphs/0_recorded.txt": lambda: str(graph.recorded or ""),
            **{
                f"graphs/{number}_{name}.txt": partial(str, text) for number, (name, text) in enumerate(graph.passes, 1)
            },
            "ir_before_fusion.txt": lambda: graph.before_fusion,
            "ir_after_fusion.txt": lambda: graph.after_fusion,
            **{
                f"kernels/{source.name}.{source_suffix(source.language)}": partial(getattr, source, "source")
                for source in graph.kernels
            },
            "summary.json": lambda: _summary(graph, example_inputs),
        }
        if error is not None:
            texts["error.txt"] = lambda: "".join(traceback.format_exception(error))
        for name, text in texts.items():
            _write(folder / name, text)
        return str(folder)
    except OSError as e:
        warn(f"what was compiled can't be written to {config.artifacts or 'a temporary folder'} ({e.strerror or e})")
        return ""


def note_decision(graph: CompiledGraph) -> None:
    """Note in the summary which way proved quicker."""
    path = Path(graph.artifacts) / "summary.json"
    try:
        path.write_text(_json({**json.loads(path.read_text()), **_measured(graph)}))
    except (OSError, ValueError):  # somebody has removed or changed it
        pass


def _write(path: Path, text: Callable[[], str]) -> None:
    path.parent.mkdir(exist_ok=True)
    try:
        written = text()
    except Exception as e:  # a graph that can't be written down must not cost the user the other files
        written = f"# This can't be written: {type(e).__name__}: {e}\n"
    path.write_text(written if written.endswith("\n") else written + "\n")


def _new_folder(base: str, name: str) -> Path:
    number = 1
    while True:
        folder = Path(base).expanduser() / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            if not folder.is_dir():
                raise
            number += 1  # it is another process's, perhaps of an earlier day


@cache
def _temporary_folder(process: int) -> str:
    """One for all graphs of a process."""
    return tempfile.mkdtemp(prefix="framejit-")


def _readable(gm: fx.GraphModule) -> str:
    return str(gm.print_readable(print_output=False, include_stride=True, include_device=True))


def _summary(graph: CompiledGraph, example_inputs: Sequence[Any]) -> str:
    return _json(
        {
            "graph": graph.name,
            "framejit": __version__,
            "torch": torch.__version__,
            "kernel_count": len(graph.kernels),
            "kernels": [
                {"name": kernel.name, "language": kernel.language, "origins": kernel.origins}
                for kernel in graph.kernels
            ],
            "externs": graph.externs,
            "reason": graph.reason,
            "inputs": [_metadata(value) for value in example_inputs],
            **_measured(graph),
        }
    )


def _measured(graph: CompiledGraph) -> dict[str, Any]:
    compiled, eager = graph.times
    return {"state": graph.state, "compiled_us": compiled, "eager_us": eager}


def _metadata(value: Any) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        return {"type": type(value).__name__}
    return {
        "dtype": str(value.dtype), "sizes": list(value.shape), "strides": list(value.stride()),
        "device": str(value.device),
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"
