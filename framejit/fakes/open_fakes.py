"""What operations give on fakes with open sizes, worked out once: the layers of a model ask the same questions again.

Torch keeps results for fakes itself, but not for symbols that are not its own. Here a result is found by the operation, the layouts of its tensors with
expressions for sizes, and its other arguments. Only operations are kept whose results are tensors with memory of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from framejit.fakes.arguments import tensors_in
from framejit.symbols.expression import Expression
from framejit.symbols.node import IntegerNode, symbolic


class _NotKept(Exception):
    """Something in the arguments says nothing by which a result could be found."""


_PLAIN = (bool, int, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout)
_Layout = tuple[tuple[Any, ...], tuple[Any, ...], torch.dtype, torch.device]


class KnownResults(TorchDispatchMode):
    """Entered within the mode of the fakes: answers what it knows."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Any, list[_Layout]] = {}
        self._conditions: Any = None

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.inplace_view in func.tags and func._schema.name in _LAID_OUT_ANEW:
            return _lay_out_anew(func, args, kwargs)
        key = self._key(func, args, kwargs)
        known = self._known.get(key) if key is not None else None
        if known is not None:
            results = tuple(map(self._made, known))
            return results if len(func._schema.returns) > 1 else results[0]
        result = func(*args, **kwargs)
        if key is not None:
            made = result if isinstance(result, tuple) else (result,)
            given = {tensor.untyped_storage()._cdata for tensor in tensors_in((args, tuple(kwargs.values())))}
            if all(_is_own(fake) and fake.untyped_storage()._cdata not in given for fake in made):
                self._known[key] = [(self._place(fake.shape), self._place(fake.stride()), fake.dtype, fake.device) for fake in made]
        return result

    def _key(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = func._schema
        if func.namespace != "aten" or schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
            return None
        if not schema.returns or any(str(r.type) != "Tensor" or r.alias_info is not None for r in schema.returns):
            return None
        try:
            return func, self._part(args), self._part(tuple(kwargs.items()))
        except _NotKept:
            return None

    def _part(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if not hasattr(value, "fake_mode") or value.is_conj() or value.is_neg() or getattr(value, "constant", None) is not None:
                raise _NotKept
            return self._place(value.shape), self._place(value.stride()), value.dtype, value.device
        if isinstance(value, (tuple, list)):
            return tuple([self._part(item) for item in value])
        if isinstance(value, torch.SymInt):
            return self._place((value,))
        if isinstance(value, float):
            return float, repr(value)
        if type(value) in _PLAIN:
            return type(value), value
        raise _NotKept

    def _place(self, sizes: Any) -> tuple[Any, ...]:
        """Sizes that can be compared: what is known to be equal is the same expression."""
        found: list[Any] = []
        for size in sizes:
            if isinstance(size, torch.SymInt):
                node = size.node
                if not isinstance(node, IntegerNode):
                    raise _NotKept
                self._conditions = node.conditions
                size = node.conditions.simplified(node.expression)
                size = size if size.value is None else size.value
            found.append(size)
        return tuple(found)

    def _made(self, layout: _Layout) -> torch.Tensor:
        sizes, strides, dtype, device = layout
        return torch.empty_strided(self._sizes(sizes), self._sizes(strides), dtype=dtype, device=device)

    def _sizes(self, sizes: tuple[Any, ...]) -> list[Any]:
        return [symbolic(size, self._conditions) if isinstance(size, Expression) else size for size in sizes]


_LAID_OUT_ANEW = frozenset(f"aten::{name}_" for name in "t squeeze unsqueeze transpose swapaxes swapdims".split())


def _lay_out_anew(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """What `t_` and its like do to a tensor with open sizes: torch would do it to a fake twice."""
    name, overload = func._schema.name.removeprefix("aten::").removesuffix("_"), func._overloadname
    tensor: torch.Tensor = args[0]
    view = getattr(getattr(torch.ops.aten, name), overload)(*args, **kwargs)
    result: torch.Tensor = torch.ops.aten.as_strided_.default(tensor, view.shape, view.stride(), view.storage_offset())
    return result


def _is_own(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and fake.storage_offset() == 0 and not fake.is_conj() and not fake.is_neg() and fake.layout == torch.strided
