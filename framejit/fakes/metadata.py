"""Fake tensors: the shapes, dtypes and devices operations would produce, without running them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import zip_longest
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode

from framejit.environment.imports_under_way import met_half_a_module
from framejit.fakes.arguments import tensors_in
from framejit.fakes.data_checks import only_checks_data, run_unchecked
from framejit.fakes.data_sizes import DataSizes, has_data_sizes
from framejit.fakes.dropped_warnings import without_warning_of, without_warnings
from framejit.fakes.fake_mode import PLACED, Fakes, check_reach
from framejit.fakes.laid_out_once import LaidOutOnce
from framejit.fakes.light_torch import light
from framejit.fakes.operation_kinds import LAYS_OUT_ANEW, name_of
from framejit.fakes.operation_results import empty_fake
from framejit.fakes.recurrent_layers import STEPPED, with_few_steps
from framejit.fakes.repeated_calls import RepeatedCalls, tensors_given
from framejit.guards.tensor_layout import NAMES
from framejit.late_dataclass import dataclass
from framejit.signals import AsksForNumber, Unsupported


@dataclass(frozen=True)
class SymbolicLayout:
    """Sizes and strides of an input as ints and SymInts, and which of each are symbolic: bit d stands for dimension
    d."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    free_sizes: int
    free_strides: int


_RETURN_THEIR_ARGUMENT: Final = (torch.dropout, torch.nn.functional.dropout)
"""Operations that, where there is nothing to do, return the tensor that they are given, which their decomposition
copies."""


def _shape_to_stay(target: Any, args: Any, kwargs: Any) -> torch.Size | None:
    """The fake of the first argument, which fakes make larger where an operation in place would have to."""
    is_tensor = bool(args) and isinstance(args[0], torch.Tensor)
    return args[0].shape if is_tensor and "out" not in kwargs and name_of(target) not in LAYS_OUT_ANEW else None


def _may_be_same(shape: torch.Size, other: torch.Size) -> bool:
    """Nothing is asked of symbolic sizes."""
    return all(a == b for a, b in zip_longest(shape, other) if torch.SymInt not in (type(a), type(b)))


def has_fakes(tensor: torch.Tensor) -> bool:
    """Whether a fake can stand for a tensor."""
    with torch._C.DisableTorchFunctionSubclass():
        return not (tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized or has_names(tensor))


def has_names(tensor: torch.Tensor) -> bool:
    """Whether dimensions of a tensor have names. (torch's own question is answered with no within backwards.)"""
    return bool(torch._C._dispatch_keys(tensor).raw_repr() & NAMES)


class Metadata:
    """One mode for fakes per compile, and the fakes of the real tensors seen in it."""

    def __init__(self) -> None:
        with light():
            self.mode = Fakes(allow_fallback_kernels=False)
        self._repeated = RepeatedCalls(self.mode)
        self._laid_out: AbstractContextManager[Any] = nullcontext()
        self.written: set[int] = set()
        self._decompositions: Callable[[], AbstractContextManager[Any]] = nullcontext
        self.data_sizes: DataSizes | None = None

    @contextmanager
    def faking(self) -> Iterator[None]:
        """Operations make fakes, for the duration of the block."""
        with light(), self.mode:
            yield

    def fake_of(self, tensor: torch.Tensor, layout: SymbolicLayout | None = None) -> torch.Tensor:
        """A fake with the metadata of `tensor`, or with `layout` for its sizes and strides."""
        if layout is not None:
            self._make_symbolic()
        is_inference = tensor.is_inference()
        is_fitting = torch.is_inference_mode_enabled() == is_inference
        with nullcontext() if is_fitting else torch.inference_mode(is_inference), without_warning_of(tensor.dtype):
            return self._made(tensor, layout)

    def _made(self, tensor: torch.Tensor, layout: SymbolicLayout | None) -> torch.Tensor:
        if layout is not None or can_be_made_empty(tensor):
            # Much cheaper than from_tensor, and the same for a tensor that owns its storage.
            with light(), torch.no_grad():
                if layout is None:
                    try:
                        fake = empty_fake(self.mode, tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)
                    except RuntimeError as e:  # a resize that raised leaves the sizes that it could not have
                        raise Unsupported(f"a tensor of sizes that no memory has ({e})", "FJ140") from None
                else:
                    with self.mode:
                        fake = torch.empty_strided(
                            layout.sizes, layout.strides, dtype=tensor.dtype, device=tensor.device
                        )
            if tensor.requires_grad:
                fake.requires_grad_(True)
                if not tensor.is_leaf:  # as torch makes those of sizes that are known
                    with light(), self.mode, torch.enable_grad():
                        fake = torch._C._functions.DelayedError("no gradient goes through an example", 1)(fake)
            return fake
        try:
            has_history = not tensor.is_leaf
        except RuntimeError:
            raise Unsupported(
                "a view that was made without gradients, and written since: torch refuses to look for its history",
                "FJ140",
            ) from None
        if tensor.is_inference() and (has_history or tensor._is_view()):
            raise Unsupported("a tensor of autograd's whose data were set to those of an inference tensor", "FJ140")
        base = view_base(tensor)
        if base is not None and not (has_fakes(base) and _is_handled_by_torch(type(base))):
            raise Unsupported(f"a view of a {type(base).__name__} that no fake can stand for", "FJ140")
        if has_left_its_base(tensor):
            raise Unsupported("a view that was given other memory than its base's", "FJ140")
        # It asks for `.grad`, of what is no leaf too, and only keeps from being shown what torch warns of then:
        # a filter of the program's would make an error of it.
        with_gradients = torch.enable_grad() if tensor.requires_grad else torch.no_grad()
        try:
            self.mode.copies_existing = True
            with light(), without_warnings(), with_gradients:
                return self.mode.from_tensor(tensor, static_shapes=True)
        except Exception as e:
            cls = type(tensor)
            if cls in (torch.Tensor, torch.nn.Parameter):
                raise
            # torch asks a tensor for names that a `__getattr__` or another attribute of the program's class answers,
            # or for the tensors that it is made of, which may be missing
            raise Unsupported(
                f"tensor subclass {cls.__qualname__}, of which torch makes no fake ({type(e).__name__}: {e})", "FJ141"
            ) from None
        finally:
            self.mode.copies_existing = False

    def _make_symbolic(self) -> None:
        from framejit.fakes.python_decompositions import python_decompositions  # imports functorch's half of torch

        self.mode.cache_enabled = False  # its keys are made for torch's own symbols
        self._laid_out = LaidOutOnce()
        # some operations compute with symbols only by their decomposition in Python
        self._decompositions = python_decompositions

    def run(self, target: Any, is_method: bool, args: Any, kwargs: Any, note_writes: bool = False) -> Any:
        """Run an operation on fakes.  Unsupported says why it can't be in a graph.

        With `note_writes`, `written` has the storages that it wrote into afterwards; inference tensors do not count
        writes themselves.
        """
        try:
            return self._run_known(target, is_method, args, kwargs, note_writes)
        except DynamicOutputShapeException as e:
            if self.finds_sizes() and self.mode.data_sizes is None:
                self.let_data_decide()
                return self.run(target, is_method, args, kwargs, note_writes)
            raise Unsupported(
                f"the shape of the result of {label(target)} depends on the data of a tensor ({e.func})", "FJ102"
            ) from None

    def let_data_decide(self) -> DataSizes | None:
        """From here on fakes may have sizes that data decides. None where they may not."""
        if self.data_sizes is not None and self.mode.data_sizes is None:
            self._make_symbolic()
            self.mode.data_sizes = self.data_sizes
        return self.data_sizes

    def finds_sizes(self) -> bool:
        """Whether operations may find sizes in data."""
        return self.data_sizes is not None and not self.data_sizes.of_numbers_only

    def decided_by_data(self) -> bool:
        """Whether some fake may have a size that data decides."""
        return self.mode.data_sizes is not None

    def _run_known(self, target: Any, is_method: bool, args: Any, kwargs: Any, note_writes: bool) -> Any:
        self.written = set()
        key = self._repeated.key(target, is_method, args, kwargs)
        if key is not None:
            with light():
                known = self._repeated.known(key, args, kwargs)
            if known is not None:
                return known
        shape = _shape_to_stay(target, args, kwargs)
        try:
            with light():
                given = tensors_given(args, kwargs) if key is not None else []
                versions = [version_of(tensor) for tensor in given]
                if name_of(target) in PLACED:
                    check_reach(*args, **kwargs)
                result = self._run(target, is_method, args, kwargs, note_writes or -1 in versions)
                if shape is not None and not _may_be_same(shape, args[0].shape):
                    raise RuntimeError(
                        f"a tensor of the shape {list(args[0].shape)} is written into one of the shape {list(shape)}"
                    )
                is_new = any(map(has_data_sizes, tensors_in((result,))))  # another call finds another number of places
                if (
                    key is not None
                    and not is_new
                    and not self.written
                    and versions == [version_of(tensor) for tensor in given]
                ):
                    self._repeated.keep(key, result, given)
                return result
        except DataDependentOutputException as e:
            raise AsksForNumber(
                f"{label(target)} returns a Python value that depends on the data of a tensor ({e.func})", "FJ101"
            ) from None
        except DynamicOutputShapeException:
            raise
        except UnsupportedOperatorException as e:
            raise Unsupported(f"operator {e.func} has no metadata function", "FJ103") from None
        except Unsupported:
            raise
        except Exception as e:
            if met_half_a_module(e):
                raise
            # The operation may be wrong (it raises for real when it runs) or merely unknown to fakes.
            raise Unsupported(
                f"{label(target)} raises {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", "FJ104"
            ) from None

    def _run(self, target: Any, is_method: bool, args: Any, kwargs: Any, note_writes: bool) -> Any:
        decompositions = nullcontext if any(target is one for one in _RETURN_THEIR_ARGUMENT) else self._decompositions
        with (
            without_warnings(), decompositions(), self.mode, self._laid_out,
            _Writes(self.written) if note_writes else nullcontext(),
        ):
            if only_checks_data(target):
                return run_unchecked(target, args, kwargs)
            found = with_few_steps(target, args, kwargs) if name_of(target) in STEPPED and not is_method else None
            if found is not None:
                return found
            return getattr(args[0], target)(*args[1:], **kwargs) if is_method else target(*args, **kwargs)

    def forget_results(self) -> None:
        """The thread's state was changed in a way that results may depend on."""
        self._repeated.forget()
        self.mode.operation_results.forget()


def version_of(fake: torch.Tensor) -> int:
    """Grows with each in-place write; inference tensors keep no count."""
    return -1 if fake.is_inference() else fake._version


class _Writes(TorchDispatchMode):
    """Notes the storages of the tensors that operations write into, by their schemas."""

    def __init__(self, written: set[int]) -> None:
        super().__init__()
        self.written = written

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[position] if position < len(args) else kwargs.get(argument.name)
                for tensor in value if isinstance(value, (tuple, list)) else (value,):
                    if isinstance(tensor, torch.Tensor):
                        self.written.add(tensor.untyped_storage()._cdata)
        return func(*args, **kwargs)


def can_be_made_empty(tensor: torch.Tensor) -> bool:
    """Whether an empty tensor of the same sizes, strides, dtype and device has all the metadata of this one."""
    return _is_plain(tensor) and not tensor._is_view() and (not tensor.requires_grad or tensor.is_leaf)


def can_be_symbolic(tensor: torch.Tensor) -> bool:
    """Whether the sizes of an input may be symbols: also those of views, if autograd has nothing to do with them, and
    of what gradients go through, if it is no view."""
    is_free_view = (
        tensor._is_view() and tensor._base is not None and not tensor.requires_grad and not tensor._base.requires_grad
    )
    return _is_plain(tensor) and (is_free_view or not tensor._is_view())


def view_base(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that autograd knows a tensor to be a view of; None for no view."""
    with torch._C.DisableTorchFunctionSubclass():
        return None if tensor.is_inference() or not tensor._is_view() else tensor._base


def _is_handled_by_torch(cls: type) -> bool:
    """Whether no code in Python does the operations on a class of tensors."""
    return cls.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl  # type: ignore[attr-defined]


def has_left_its_base(tensor: torch.Tensor) -> bool:
    """Whether autograd has the tensor as a view of what lies elsewhere: `set_` gave it other memory."""
    base = view_base(tensor)
    with torch._C.DisableTorchFunctionSubclass():
        if base is None or tensor.layout is not torch.strided or base.layout is not torch.strided:
            return False
        return bool(tensor.untyped_storage()._cdata != base.untyped_storage()._cdata)


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_conj() and not tensor.is_neg()


def label(target: Any) -> str:
    """The name of an operation as messages say it, as `torch.add()` or `Tensor.add()`."""
    if isinstance(target, str):
        return f"Tensor.{target}()"
    return f"{getattr(target, '__module__', None) or 'torch'}.{getattr(target, '__name__', target)}()".replace(
        "_operator.", "operator."
    ).replace("builtins.", "")
