"""A compiled graph as bytes and back: its plan, its kernels' sources and what is told of it. Plain data, checked when
it is read.

Kernels are there as text, by which the disk cache has their machine code. Functions are named, and a record can name
only what the recorded operations at hand are carried out by (`PlanKey.functions`); tensors are numbers of the graph's
constants, or bytes. Nothing in a record is run when it is read, but for the recorded operations that it says frozen
weights are put through.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from framejit import _native
from framejit.backends.fuse.cache.folding_record import Folding, read_folding, written_folding
from framejit.backends.fuse.cache.kernel_record import BadRecord, pack, unpack
from framejit.backends.fuse.cache.plan_key import LARGEST, NotCacheable, PlanKey, bytes_of, of_bytes
from framejit.backends.fuse.cache.size_record import read_condition, written_condition
from framejit.backends.fuse.cache.value_record import SEQUENCES, ValueReader, ValueWriter, checked, index
from framejit.backends.fuse.graph.computation import Computation, Result, Weight, plainly
from framejit.backends.fuse.plan.plan_functions import laid_out_as
from framejit.backends.fuse.plan.plan_parts import KERNEL, PlanParts
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize
from framejit.backends.fuse.targets.lookup import target_of
from framejit.late_dataclass import dataclass
from framejit.symbols.conditions import Condition
from framejit.symbols.expression import Symbol

_MARKS: Final = ("# ", "; ")  # what stands before a source line in a text


@dataclass(frozen=True)
class KernelRecord:
    """A kernel, as `compile.load_kernels` takes it."""

    device: torch.device
    origins: tuple[str, ...]
    described: dict[str, Any]
    moved: int | None
    """Bytes that it moves at least, if that is known."""


@dataclass(frozen=True)
class PlanRecord:
    """All that there is to know of a graph that was compiled."""

    parts: PlanParts
    kernels: tuple[KernelRecord, ...]
    externs: tuple[str, ...]
    """The operations that ATen carries out, in order."""
    before_fusion: str
    after_fusion: str
    plain: bool
    """See `LoweredGraph.plain`."""
    pure: bool
    """Whether running it twice does no more than running it once."""
    cuda: bool
    draws: bool
    """Whether its kernels make random numbers, which are not those that ATen draws."""
    aten_launches: int = 0
    """How many kernels ATen launches for the graph at least; 0 where that is not known."""
    folding: Folding = Folding()

    def by_aten(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """What runs where the plan can't: a graph's operations, with the random numbers that its kernels make."""
        if not self.draws:
            return forward
        from framejit.backends.fuse.random_numbers.drawn_again import drawing_as_kernels  # for those who draw

        return drawing_as_kernels(forward)


def write(record: PlanRecord, key: PlanKey) -> bytes:
    """The bytes of a record, with the conditions that the key's symbolic sizes have come to meet.

    Raises NotCacheable for a plan that refers to what can't be written down.
    """
    writer = _Writer(key, record.folding)
    parts = record.parts
    steps = [writer.value(step[:-1] if step[0] == "expect" else step) for step in parts.steps]
    texts: dict[str, int] = {}
    kernels = []
    for kernel in record.kernels:
        described = {
            name: writer.value(texts.setdefault(value, len(texts)) if name in LONG else value)
            for name, value in kernel.described.items()
        }
        kernels.append([str(kernel.device), list(kernel.origins), described, kernel.moved])
    fields = {
        "counts": [parts.n_inputs, parts.n_values],
        "steps": steps,
        "outputs": writer.value(parts.outputs),
        "inputs": [
            list(parts.aligned), list(parts.copied), list(parts.alone), [writer.value(span) for span in parts.spans],
        ],
        "kernels": kernels,
        "texts": [*texts],
        "externs": list(record.externs),
        "stages": [record.before_fusion, record.after_fusion],
        "flags": [record.plain, record.pure, record.cuda, record.draws],
        "aten_launches": record.aten_launches,
        "folding": written_folding(record.folding, writer.computing, writer.operand),
        "origins": list(key.origins),
        "conditions": [writer.condition(condition) for condition in key.sizes.conditions]
        if key.sizes is not None
        else [],
    }
    return pack(fields, writer.blobs)


LONG: Final = frozenset(("text", "code", "remarks"))
"""Texts of kernels, which several may have in common."""
SIZE: Final = (int, SymbolicSize)


def read(data: bytes, key: PlanKey) -> PlanRecord:
    """The record that `write` gave for a graph of the same key. Raises BadRecord for bytes that are none."""
    fields, blobs = unpack(data)
    try:
        record = _read(fields, _Reader(key, blobs))
    except BadRecord:
        raise
    except Exception as e:
        raise BadRecord(f"{type(e).__name__}: {e}") from e
    parts = record.parts
    if (
        parts.n_inputs != key.n_inputs
        or tuple(type(output) is _native.Value for output in parts.outputs) != key.returns
    ):
        raise BadRecord("it takes or gives something else than the graph")
    if not 0 <= parts.n_values - parts.n_inputs <= len(data):  # each is written somewhere in the record
        raise BadRecord(f"{parts.n_values} values in {len(data)} bytes")
    return record


def conditions_of(data: bytes, symbols: Sequence[Symbol]) -> tuple[Condition, ...]:
    """The conditions on symbolic sizes under which a record's plan is right. Raises BadRecord for bytes that are no
    record."""
    fields, _ = unpack(data)
    return tuple(read_condition(condition, symbols) for condition in fields.get("conditions", ()))


def _read(fields: dict[str, Any], reader: _Reader) -> PlanRecord:
    moved_lines = reader.moved_lines(fields["origins"])
    with plainly():
        folding = read_folding(fields["folding"], reader.key.computing, reader.operand, [*reader.key.weights.values()])
    reader.constants += folding.tensors()
    texts = [checked(text, str) for text in fields["texts"]]
    kernels = tuple(_kernel(item, texts, moved_lines, reader) for item in fields["kernels"])
    n_inputs, n_values = (checked(count, int) for count in fields["counts"])
    aligned, copied, alone = (tuple(checked(number, int) for number in numbers) for numbers in fields["inputs"][:3])
    spans = tuple(checked(reader.value(span), SIZE) for span in fields["inputs"][3])
    steps = [reader.step(step) for step in fields["steps"]]
    for step in steps:
        if step[0] == KERNEL:
            _check_launch(step, kernels)
    outputs = checked(reader.value(fields["outputs"]), tuple)
    before, after = (_moved(checked(text, str), moved_lines) for text in fields["stages"])
    plain, pure, cuda, draws = (checked(flag, bool) for flag in fields["flags"])
    parts = PlanParts(n_inputs, n_values, steps, outputs, aligned, copied, alone, spans)
    return PlanRecord(
        parts, kernels, tuple(checked(name, str) for name in fields["externs"]), before, after, plain, pure, cuda,
        draws, checked(fields["aten_launches"], int), folding,
    )


def _kernel(item: Sequence[Any], texts: Sequence[str], moved_lines: Mapping[str, str], reader: _Reader) -> KernelRecord:
    name, origins, described, moved = item
    device = torch.device(checked(name, str))
    types = target_of(device).described
    if described.keys() != types.keys():
        raise BadRecord("a kernel's description is not complete")
    values = {
        name: texts[index(value, len(texts))] if name in LONG else reader.value(value)
        for name, value in described.items()
    }
    for name, kind in types.items():
        checked(values[name], kind)
    values["remarks"] = _moved(values["remarks"], moved_lines)
    if moved is not None:
        checked(moved, int)
    return KernelRecord(device, tuple(moved_lines.get(line, checked(line, str)) for line in origins), values, moved)


def _check_launch(step: tuple[Any, ...], kernels: Sequence[KernelRecord]) -> None:
    _, number, slots = step
    described = kernels[index(number, len(kernels))].described
    if len(slots) != len(described["buffers"]):
        raise BadRecord(f"a kernel is launched with {len(slots)} arguments")


def _moved(text: str, lines: Mapping[str, str]) -> str:
    """The text with the source lines as they are now."""
    if not lines:
        return text
    return "\n".join(
        line[:2] + lines.get(line[2:], line[2:]) if line.startswith(_MARKS) else line for line in text.split("\n")
    )


class _Writer(ValueWriter):
    """Values of steps."""

    def __init__(self, key: PlanKey, folding: Folding) -> None:
        super().__init__(() if key.sizes is None else key.sizes.symbols)
        self.blobs: dict[str, bytes] = {}
        self._computing = {function: name for name, function in key.computing.items()}
        self._functions = {function: name for name, function in key.functions.items()}
        self._constants = {
            id(value): number for number, value in reversed([*enumerate((*key.constants, *folding.tensors()))])
        }

    def condition(self, condition: Condition) -> list[Any]:
        try:
            return written_condition(condition, self.symbols)
        except KeyError as e:
            raise NotCacheable(f"a condition is on {e.args[0]}, which is no symbolic size of an input") from None

    def computing(self, function: Callable[..., Any]) -> str:
        """The name of what is done to weights."""
        if function not in self._computing:
            raise NotCacheable(f"weights are computed by {function}, which has no name to find it by")
        return self._computing[function]

    def operand(self, value: Any, numbers: Mapping[Computation, int]) -> Any:
        """What a computation with weights takes."""
        kind = type(value)
        if kind is Weight:
            return ["weight", value.position]
        if kind is Result:
            return ["result", numbers[value.computation], value.position]
        if kind in (tuple, list):
            return [kind.__name__, *(self.operand(item, numbers) for item in value)]
        if kind is dict:
            return ["dict", *([name, self.operand(item, numbers)] for name, item in value.items())]
        return self.value(value)

    def other(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        name = self._functions.get(value) if callable(value) else None
        if name is None:
            raise NotCacheable(
                f"its plan refers to {getattr(value, '__qualname__', type(value).__name__)}, which has no name to find "
                "it by"
            )
        return ["function", name]

    def _tensor(self, value: torch.Tensor) -> Any:
        number = self._constants.get(id(value))
        if number is not None:
            return ["given", number]
        if (
            type(value) is not torch.Tensor
            or value.layout is not torch.strided
            or value.is_conj()
            or value.is_neg()
            or value.requires_grad
        ):
            raise NotCacheable("a constant is no plain tensor")
        blob = f"constant{len(self.blobs)}"
        self.blobs[blob] = bytes_of(value)
        if sum(map(len, self.blobs.values())) > LARGEST:
            raise NotCacheable(f"its constants have more than {LARGEST} bytes")
        return ["tensor", blob, *map(self.value, (tuple(value.shape), value.stride(), value.dtype, value.device))]


class _Reader(ValueReader):
    """The values that a `_Writer` wrote."""

    def __init__(self, key: PlanKey, blobs: Mapping[str, bytes]) -> None:
        super().__init__(key.sizes)
        self.key, self.blobs = key, blobs
        self.constants = [*key.constants]
        """The constants of the graph, and behind them what was computed from weights."""

    def operand(self, data: Any, computations: Sequence[Computation]) -> Any:
        """What a computation with weights takes."""
        kind, *rest = data if type(data) is list else (None,)
        if kind == "weight":
            position = checked(rest[0], int)
            return Weight(position, self.key.weights[position])
        if kind == "result":
            return Result(
                computations[index(rest[0], len(computations))],
                rest[1] if rest[1] is None else index(rest[1], 1 << 31),
            )
        if kind in ("tuple", "list"):
            return SEQUENCES[kind]([self.operand(item, computations) for item in rest])
        if kind == "dict":
            return {checked(name, str): self.operand(item, computations) for name, item in rest}
        return self.value(data)

    def step(self, data: Any) -> tuple[Any, ...]:
        step = checked(self.value(data), tuple)
        if step[0] == "expect":
            return *step, laid_out_as(step[2], step[3])
        return step

    def other(self, kind: Any, rest: Sequence[Any]) -> Any:
        if kind == "given":
            return self.constants[index(rest[0], len(self.constants))]
        if kind == "function":
            return self.key.functions[rest[0]]
        if kind == "tensor":
            made = of_bytes(self.blobs[rest[0]], *map(self.value, rest[1:]))
            if made is None:
                raise BadRecord("a constant's bytes don't fill it")
            return made
        return super().other(kind, rest)

    def moved_lines(self, before: Sequence[Any]) -> dict[str, str]:
        """For source lines as they were when the plan was made those that they are now, where they differ."""
        if len(before) != len(self.key.origins):
            raise BadRecord("other operations share source lines")
        return {checked(old, str): new for old, new in zip(before, self.key.origins) if old != new}
