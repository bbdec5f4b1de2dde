"""`copy.deepcopy` of tensors: the graph copies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from framejit import _native as native
from framejit.fakes.storages import storage_of
from framejit.guards.sources import CallSource
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.handlers import HANDLERS
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_PRESERVED: Final = {"memory_format": ConstantValue(torch.preserve_format)}


class CopiedTensors:
    """The tensors that one call copies: of two that shared memory the copies would, too."""

    def __init__(self) -> None:
        self._memory: dict[int, TensorValue] = {}
        self._inputs: list[TensorValue] = []

    def copy(self, frame: Frame, tensor: TensorValue) -> Value | None:
        """A deep copy of a tensor; None where the copy would have more than the numbers: a gradient, attributes of the
        program, or memory that the tensor does not fill or shares with another."""
        capture = frame.capture
        if tensor.cls not in (torch.Tensor, torch.nn.Parameter) or capture.transforms or capture.overrides.modes:
            return None
        graph, fake, is_parameter = capture.graph, tensor.fake, tensor.cls is torch.nn.Parameter
        if tensor.attrs or fake._has_symbolic_sizes_strides or fake.is_inference() or not _fills_memory(fake):
            return None
        if fake.requires_grad and not is_parameter:
            return None
        memory = storage_of(fake)
        inputs = [
            known for known in (tensor, *graph.inputs) if known.source is not None and storage_of(known.fake) == memory
        ]
        if self._memory.setdefault(memory, tensor) is not tensor or not self._are_known(frame, inputs):
            return None
        if is_parameter:
            plain = graph.call("detach", [tensor], is_method=True)
            numbers = graph.call("clone", [plain], dict(_PRESERVED), is_method=True)
            return HANDLERS[torch.nn.Parameter](frame, [numbers, ConstantValue(fake.requires_grad)], {})
        # written into, as memory is put into eager's copies, which counts
        return graph.call("copy_", [graph.call(torch.empty_like, [tensor], dict(_PRESERVED)), tensor], is_method=True)

    def _are_known(self, frame: Frame, inputs: list[TensorValue]) -> bool:
        """Whether inputs are all that is in their memory, which is guarded, and that of no other tensor."""
        capture = frame.capture
        for known in inputs:
            found = capture.real_object(known)
            if not _is_nothing_else(found) or any(
                _memory_of(found) is _memory_of(capture.real_object(other)) for other in self._inputs
            ):
                return False
            assert known.source is not None
            capture.add_guard(CallSource(known.source, _is_nothing_else), native.C_ID, True)
        self._inputs += inputs[:1]
        return True

    def tell_apart(self, frame: Frame) -> None:
        """Guard that the tensors do not share memory."""
        memory = [CallSource(known.source, _memory_of) for known in self._inputs if known.source is not None]
        if len(memory) > 1:
            frame.capture.add_guard(memory[0], native.C_DISTINCT, None, tuple(memory[1:]))


def _memory_of(tensor: torch.Tensor) -> Any:
    """The memory of a tensor: one object, which torch keeps as long as it."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.untyped_storage()


def _fills_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor is all that its memory holds, each element once."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.storage_offset() == 0
        and torch._debug_has_internal_overlap(tensor) == 0
        and tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()
    )


def _is_nothing_else(tensor: torch.Tensor) -> bool:
    """Whether an existing tensor fills its memory, and has neither a gradient nor attributes of the program; a
    Parameter is copied without these."""
    is_parameter = type(tensor) is torch.nn.Parameter
    with torch._C.DisableTorchFunctionSubclass():
        return _fills_memory(tensor) and (is_parameter or tensor.is_leaf and tensor.grad is None and not vars(tensor))
