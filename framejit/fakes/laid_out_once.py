"""What `t_` and its like do to fakes with symbolic sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LaidOutOnce(TorchDispatchMode):
    """Entered within the mode of the fakes: has a tensor laid out anew by one operation, for torch would do `t_` to a
    fake twice."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.inplace_view in func.tags and func._schema.name in _LAID_OUT_ANEW:
            return _lay_out_anew(func, args, kwargs)
        return func(*args, **kwargs)


_LAID_OUT_ANEW = frozenset(f"aten::{name}_" for name in "t squeeze unsqueeze transpose swapaxes swapdims".split())


def _lay_out_anew(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    name = func._schema.name.removeprefix("aten::").removesuffix("_")
    tensor: torch.Tensor = args[0]
    view = getattr(torch.ops.aten, name)(*args, **kwargs)  # its overloads may have other names than those of `func`
    result: torch.Tensor = torch.ops.aten.as_strided_.default(tensor, view.shape, view.stride(), view.storage_offset())
    return result
