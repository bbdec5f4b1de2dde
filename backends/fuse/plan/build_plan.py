"""From scheduled steps to a plan: slots for values, allocation, reuse of memory, and what the native executor does one
step after another.

Memory is taken when a step first writes it and given back after the last step that uses it. What only kernels and
operations that surely don't return an alias have made and seen may be taken over by a later buffer of the same size: by
one that the last step to read it writes in its place, or by one made soon after.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from framejit import _native
from framejit.backends.fuse.loop_ir.nodes import Buffer, ExternNode, Kernel, Layout, LoweredGraph
from framejit.backends.fuse.plan.plan_functions import laid_out_as
from framejit.backends.fuse.plan.plan_parts import Launch, PlanParts
from framejit.backends.fuse.schedule.peak_memory import Usage, bytes_of, same_size
from framejit.backends.fuse.targets.lookup import target_of

# steps for which memory is held back for a buffer of the same size, where that does not raise the peak
PATIENCE: Final = 4


def build_plan(graph: LoweredGraph, steps: Sequence[Kernel | ExternNode], launches: dict[Kernel, Launch]) -> PlanParts:
    """The plan for a scheduled graph."""
    return _Builder(graph, steps, launches).build()


class _Builder:
    def __init__(
        self, graph: LoweredGraph, steps: Sequence[Kernel | ExternNode], launches: dict[Kernel, Launch]
    ) -> None:
        self.graph, self.steps, self.launches = graph, steps, launches
        self.buffers = graph.buffers
        self.n_values = graph.n_inputs
        self.slots = {
            buffer.name: buffer.input
            for buffer in self.buffers.values()
            if buffer.input is not None and buffer.memory == buffer.name
        }
        self.plan: list[tuple[Any, ...]] = []
        self.of_aten: set[int] = set()
        """Slots of tensors that calls gave."""
        self.expected: list[tuple[Any, ...]] = []
        """Checks of the shapes of the results of the call that is being laid out."""
        self.last_use = self._last_uses()
        self.used = {self.buffers[name].memory for step in steps for name in step.reads}
        """What something reads: an operation may well return None for a result that nobody wants."""
        self.used |= {output.buffer.memory for output in graph.outputs if isinstance(output, Layout)}
        returned = [output.buffer.name for output in graph.outputs if isinstance(output, Layout)]
        self.returns = {self.buffers[name].memory for name in returned}
        usage = Usage(steps, self.buffers, returned, graph.own_inputs or frozenset())
        profile = usage.profile(range(len(steps)))
        self.own = usage.own
        """Memories that a step of the plan allocates, and that nothing else can know of."""
        self.replaced = profile.replaced
        """For a buffer that is written over what its kernel reads for the last time the name of that."""
        self.alive, self.peak = profile.during, profile.peak
        """Bytes alive while each step runs, with what is held back for heirs, and the most that there may be."""
        self.heirs: dict[str, Buffer] = {}
        """For a buffer that is yet to be made, the dead one whose memory it will take over."""
        self.inherited: set[str] = set()
        """Buffers whose slot, or memory, goes on under another name."""
        self.made = self._made_at()
        self.returned: dict[int, Any] = {}
        """By the identity of a layout, what the plan returns for it."""

    def build(self) -> PlanParts:
        if self.graph.own_inputs is not None:
            self.plan += [("free", slot) for name, slot in self.slots.items() if name not in self.last_use]
        for position, step in enumerate(self.steps):
            if isinstance(step, Kernel):
                self._kernel(step, position)
            else:
                self._extern(step)
            self._give_back(step, position)
        outputs = tuple(self._output(output) if isinstance(output, Layout) else output for output in self.graph.outputs)
        aligned = self._aligned()
        written = {self.buffers[name].memory for step in self.steps for name in step.writes}
        inputs = {
            buffer.input: buffer
            for buffer in self.buffers.values()
            if buffer.input is not None and buffer.memory == buffer.name
        }
        alone = tuple(slot for slot, buffer in inputs.items() if buffer.name in written)
        spans = tuple(inputs[slot].extent * inputs[slot].dtype.itemsize for slot in range(self.graph.n_inputs))
        returned = {
            self.buffers[output.buffer.memory].input for output in self.graph.outputs if isinstance(output, Layout)
        }
        copied = tuple(slot for slot in aligned if slot not in returned and slot not in alone)
        return PlanParts(self.graph.n_inputs, self.n_values, self.plan, outputs, aligned, copied, alone, spans)

    def _aligned(self) -> tuple[int, ...]:
        """The inputs that are pointers of kernels for which memory has to be aligned, or may become memory of ours."""
        inherited = {step[2] for step in self.plan if step[0] == "inherit"}
        names = {name for step in self.steps if isinstance(step, Kernel) for name in step.buffers}
        memories = {self.buffers[name].memory for name in names}
        slots = {
            buffer.input for buffer in self.buffers.values()
            if target_of(buffer.device).is_aligned and (buffer.memory in memories or buffer.input in inherited)
        }
        return tuple(sorted(slot for slot in slots if slot is not None))

    def _last_uses(self) -> dict[str, int]:
        last: dict[str, int] = {}
        for position, step in enumerate(self.steps):
            for name in (*step.reads, *step.writes):
                last[self.buffers[name].memory] = position
        for output in self.graph.outputs:
            if isinstance(output, Layout):
                last[output.buffer.memory] = len(self.steps)
        return last

    def _new_slot(self) -> int:
        self.n_values += 1
        return self.n_values - 1

    def _slot(self, name: str) -> int:
        memory = self.buffers[self.buffers[name].memory]
        slot = self.slots.get(memory.name)
        if slot is None and memory.constant is not None:
            slot = self.slots[memory.name] = self._new_slot()
            self.plan.append(("constant", slot, memory.constant))
        if slot is None:
            raise KeyError(f"{name} is used before it is made")
        return slot

    def _kernel(self, kernel: Kernel, position: int) -> None:
        for buffer in self.made[position]:
            self._allocate(buffer)
        if not kernel.is_empty:
            self.plan.append(self.launches[kernel]([self._slot(name) for name in kernel.buffers]))

    def _allocate(self, buffer: Buffer) -> None:
        old = self.heirs.pop(buffer.name, None)
        if old is None and buffer.name in self.replaced:
            old = self.buffers[self.replaced[buffer.name]]
        if old is not None and old.input is not None:
            slot = self.slots[buffer.name] = self._new_slot()
            kind = buffer.sizes, buffer.strides, buffer.dtype, buffer.device
            self.plan.append(("inherit", slot, self.slots[old.name], *kind, old.extent * old.dtype.itemsize))
            return
        if old is not None:
            self.inherited.add(old.name)
        # ATen's result may be a view for autograd; what the plan returns of a kernel is none
        is_aten = old is not None and self.slots[old.name] in self.of_aten and buffer.name in self.returns
        if old is not None and _same_layout(old, buffer) and not is_aten:
            self.slots[buffer.name] = self.slots[old.name]
            return
        slot = self.slots[buffer.name] = self._new_slot()
        if old is None:
            self.plan.append(("empty", slot, buffer.sizes, buffer.strides, buffer.dtype, buffer.device))
        else:
            self.plan += [
                ("reinterpret", slot, self.slots[old.name], buffer.sizes, buffer.strides, 0, buffer.dtype),
                ("free", self.slots[old.name]),
            ]
            self.slots[old.name] = slot  # where the kernel still reads it

    def _extern(self, node: ExternNode) -> None:
        temporary: list[int] = []
        args = tuple(self._argument(value, temporary) for value in node.args)
        kwargs = {key: self._argument(value, temporary) for key, value in node.kwargs.items()}
        self.plan.append(("call", node.function, args, kwargs or None, self._results(node.results)))
        self.plan += self.expected
        self.expected.clear()
        self.plan += [("free", slot) for slot in temporary]

    def _argument(self, value: Any, temporary: list[int]) -> Any:
        if isinstance(value, Layout):
            return _native.Value(self._view(value, temporary))
        if isinstance(value, list | tuple):
            return type(value)(self._argument(item, temporary) for item in value)
        return value

    def _view(self, layout: Layout, temporary: list[int]) -> int:
        base = self._slot(layout.buffer.name)
        memory = self.buffers[layout.buffer.memory]
        if not layout.offset and layout.sizes == memory.sizes and layout.strides == memory.strides:
            return base
        slot = self._new_slot()
        self.plan.append(("reinterpret", slot, base, layout.sizes, layout.strides, layout.offset, layout.buffer.dtype))
        temporary.append(slot)
        return slot

    def _results(self, results: Any) -> Any:
        if isinstance(results, Buffer) and results.name in self.used:
            slot = self.slots[results.name] = self._new_slot()
            self.of_aten.add(slot)
            self.expected.append(
                ("expect", slot, results.sizes, results.strides, laid_out_as(results.sizes, results.strides))
            )
            return slot
        if isinstance(results, tuple):
            return tuple(self._results(result) for result in results)
        return None

    def _give_back(self, step: Kernel | ExternNode, position: int) -> None:
        for name in dict.fromkeys(self.buffers[name].memory for name in (*step.reads, *step.writes)):
            memory = self.buffers[name]
            if self.last_use[name] != position or name in self.inherited or name not in self.slots:
                continue
            if memory.input is not None:
                if self.graph.own_inputs is not None:
                    self.plan.append(("free", self.slots[name]))
                continue
            heir = self._heir(memory, position) if name in self.own else None
            if heir is None:
                self.plan.append(("free", self.slots[name]))
            else:
                self.heirs[heir.name] = memory

    def _heir(self, memory: Buffer, position: int) -> Buffer | None:
        """A buffer of the same size that one of the next steps makes. Waiting for longer, or at the peak, would keep
        memory from others."""
        size = bytes_of(memory)
        for soon in range(position + 1, min(position + 1 + PATIENCE, len(self.steps))):
            for buffer in self.made[soon]:
                if buffer.name not in self.heirs and buffer.name not in self.replaced and same_size(memory, buffer):
                    for between in range(position + 1, soon):
                        self.alive[between] += size
                    return buffer
            if self.alive[soon] + size > self.peak:
                return None
        return None

    def _made_at(self) -> list[list[Buffer]]:
        """For each step the buffers that it is the first to write, and that the plan allocates."""
        seen = {
            name for name, buffer in self.buffers.items() if buffer.input is not None or buffer.constant is not None
        }
        made: list[list[Buffer]] = []
        for step in self.steps:
            fresh = dict.fromkeys(self.buffers[name].memory for name in step.writes)
            made.append([self.buffers[name] for name in fresh if name not in seen] if isinstance(step, Kernel) else [])
            seen.update(fresh)
        return made

    def _output(self, layout: Layout) -> Any:
        """What is returned for a layout; where the graph returns one tensor twice, it is one layout."""
        known = self.returned.get(id(layout))
        if known is None:
            known = self.returned[id(layout)] = self._returned(layout)
        return known

    def _returned(self, layout: Layout) -> Any:
        return _native.Value(self._view(layout, []))


def _same_layout(a: Buffer, b: Buffer) -> bool:
    return (a.sizes, a.strides, a.dtype, a.device) == (b.sizes, b.strides, b.dtype, b.device)
