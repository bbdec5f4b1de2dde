"""Tensors that processes exchange with each other in captured code: each collective is a node of the graph, in the
place where the program has it.

The nodes are torch's functional collectives, which take the group by its name; what writes into its argument
(`torch.distributed.all_reduce`) is one of these and a copy. Their order is that of the program in every graph
(`graph/node.py` has them as ordered), none is left out or done again (`backends/may_raise.py`), so that processes that
compile differently, or not at all, exchange the same.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed

from framejit import _native as native
from framejit.guards.answers import same_answer
from framejit.guards.sources import const_source
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.handlers import Handler, looks_up_handler
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_ASYNCHRONOUS_HINT: Final = (
    "without async_op the collective is in the graph; so are those of torch.distributed._functional_collectives"
)


def default_group() -> tuple[str, int, bool]:
    """The default group's name and size, and whether collectives are being gathered to be done as one."""
    c10d = torch.distributed.distributed_c10d
    group = c10d._get_default_group()
    return group.group_name, group.size(), bool(c10d._world.pg_coalesce_state)


def _world() -> torch.distributed.ProcessGroup | None:
    return torch.distributed.GroupMember.WORLD


def _default_group(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.distributed.group.WORLD`, a property of a class."""
    world = _world()
    frame.capture.add_guard(const_source(_world), native.C_PY, same_answer((), world))
    return NONE if world is None else frame.wrap(world, const_source(world, "torch.distributed.group.WORLD"))


def _group(frame: Frame, value: Value | None) -> tuple[str, int]:
    """The name and size of a group; guarded."""
    value = NONE if value is None else realize(frame, value)
    capture = frame.capture
    if is_none(value):
        if not torch.distributed.is_initialized():
            raise Unsupported("a collective without a process group", "FJ107")
        answer = default_group()
        capture.add_guard(const_source(default_group), native.C_PY, same_answer((), answer))
        if answer[2]:
            raise Unsupported("collectives that are gathered to be done as one", "FJ107")
        return answer[:2]
    group = value.obj if isinstance(value, ObjectValue) else None
    if not isinstance(group, torch.distributed.ProcessGroup) or value.source is None or group.rank() < 0:
        raise Unsupported(f"a collective in {value.describe()}", "FJ107")
    capture.add_guard(value.source, native.C_ID, group)
    return group.group_name, group.size()


def _tensor(frame: Frame, value: Value, writes: bool = False) -> TensorValue:
    value = realize(frame, value)
    if not isinstance(value, TensorValue) or value.cls not in _PLAIN or value.fake.is_complex():
        raise Unsupported(f"a collective of {value.describe()}", "FJ107")
    if writes and value.fake.requires_grad:
        raise Unsupported(
            "a collective that writes into a tensor which gradients are wanted of", "FJ107",
            "write into a detached copy",
        )
    return value


def _node(frame: Frame, name: str, *args: Value | Any) -> Value:
    given = [arg if isinstance(arg, Value) else from_python(arg) for arg in args]
    return frame.capture.graph.call(getattr(torch.ops._c10d_functional, name), given)


def _exchanged(frame: Frame, name: str, *args: Value | Any) -> Value:
    return _node(frame, "wait_tensor", _node(frame, name, *args))


def _reduction(frame: Frame, value: Value) -> str:
    """What the functional collectives call a reduction."""
    value = realize(frame, value)
    real = value.obj if isinstance(value, ObjectValue) else value.constant()
    if isinstance(real, str):
        return real.lower()
    if not isinstance(real, torch.distributed.ReduceOp.RedOpType):
        raise Unsupported(f"a collective with the operation {value.describe()}", "FJ107")
    if value.source is not None:
        frame.capture.add_guard(value.source, native.C_ID, real)
    return str(real.name).lower()


# ---- those that write into their arguments -------------------------------------------------------


def _write(frame: Frame, output: TensorValue, result: Value) -> Value:
    shape = ConstantValue(tuple(output.fake.shape))
    if not isinstance(result, TensorValue) or result.fake.numel() != output.fake.numel():
        raise Unsupported("a collective whose output does not hold its result", "FJ107")
    given = frame.capture.graph.call("view", [result, shape], is_method=True)
    frame.capture.graph.call("copy_", [output, given], is_method=True)
    return NONE


def _all_reduce(frame: Frame, given: dict[str, Any], group: tuple[str, int]) -> Value:
    tensor = _tensor(frame, given["tensor"], writes=True)
    return _write(frame, tensor, _exchanged(frame, "all_reduce", tensor, _reduction(frame, given["op"]), group[0]))


def _all_gather(frame: Frame, given: dict[str, Any], group: tuple[str, int]) -> Value:
    output, tensor = _tensor(frame, given["output_tensor"], writes=True), _tensor(frame, given["input_tensor"])
    return _write(frame, output, _exchanged(frame, "all_gather_into_tensor", tensor, group[1], group[0]))


def _reduce_scatter(frame: Frame, given: dict[str, Any], group: tuple[str, int]) -> Value:
    output, tensor = _tensor(frame, given["output"], writes=True), _tensor(frame, given["input"])
    reduction = _reduction(frame, given["op"])
    return _write(frame, output, _exchanged(frame, "reduce_scatter_tensor", tensor, reduction, group[1], group[0]))


def _broadcast(frame: Frame, given: dict[str, Any], group: tuple[str, int]) -> Value:
    source = realize(frame, given["src"])
    if not is_none(realize(frame, given["group"])) or is_none(source):
        raise Unsupported("a broadcast in a part of the processes", "FJ107")  # whose numbers are not the world's
    tensor = _tensor(frame, given["tensor"], writes=True)
    return _write(frame, tensor, _exchanged(frame, "broadcast", tensor, source, group[0]))


_WRITING: Final = {
    "all_reduce": _all_reduce, "all_gather_single": _all_gather, "all_gather_into_tensor": _all_gather,
    "reduce_scatter_single": _reduce_scatter, "reduce_scatter_tensor": _reduce_scatter, "broadcast": _broadcast,
}


# ---- those that give a new tensor ----------------------------------------------------------------
# Outside of captured code they give one that waits for itself when it is first used.


def _functional_all_reduce(frame: Frame, given: dict[str, Any], group: tuple[str, int]) -> Value:
    tensor = _tensor(frame, given["self"])
    return _exchanged(frame, "all_reduce", tensor, _reduction(frame, given["reduceOp"]), group[0])


def _functional_all_gather(frame: Frame, given: dict[str, Any], group: tuple[str, int]) -> Value:
    dim = realize(frame, given["gather_dim"]).constant()
    gathered = _exchanged(frame, "all_gather_into_tensor", _tensor(frame, given["self"]), group[1], group[0])
    return _from_chunks(frame, gathered, group[1], 0, dim)


def _functional_reduce_scatter(frame: Frame, given: dict[str, Any], group: tuple[str, int]) -> Value:
    dim = realize(frame, given["scatter_dim"]).constant()
    scattered = _from_chunks(frame, _tensor(frame, given["self"]), group[1], dim, 0)
    reduction = _reduction(frame, given["reduceOp"])
    return _exchanged(frame, "reduce_scatter_tensor", scattered, reduction, group[1], group[0])


def _from_chunks(frame: Frame, tensor: Value, parts: int, split: int, joined: int) -> Value:
    """A tensor in parts along one dimension, put together along another."""
    if split == joined:
        return tensor
    chunks = frame.capture.graph.call(torch.chunk, [tensor, from_python(parts), from_python(split)])
    return frame.capture.graph.call(torch.cat, [chunks, from_python(joined)])


_FUNCTIONAL: Final = {
    "all_reduce": _functional_all_reduce, "all_gather_single": _functional_all_gather,
    "all_gather_tensor": _functional_all_gather, "all_gather_single_autograd": _functional_all_gather,
    "all_gather_tensor_autograd": _functional_all_gather, "reduce_scatter_single": _functional_reduce_scatter,
    "reduce_scatter_tensor": _functional_reduce_scatter, "reduce_scatter_single_autograd": _functional_reduce_scatter,
    "reduce_scatter_tensor_autograd": _functional_reduce_scatter,
}


@looks_up_handler
def _collective(fn: FunctionType) -> Handler | None:
    """By module and name: torch.distributed may come without them, and the functional ones are imported late."""
    if fn.__module__ == "torch.distributed.distributed_c10d" and not hasattr(fn, "__deprecated__"):  # which warn
        if fn.__qualname__ == "_WorldMeta.WORLD":
            return _default_group
        does = _WRITING.get(fn.__name__)
    elif fn.__module__ == "torch.distributed._functional_collectives":
        if fn.__name__ == "wait_tensor":
            return lambda frame, args, kwargs: _node(frame, "wait_tensor", *args, *kwargs.values())
        does = _FUNCTIONAL.get(fn.__name__)
    else:
        return None
    if does is None:
        return None
    signature = inspect.signature(fn)

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as e:
            raise Unsupported(str(e), "FJ112") from None
        bound.apply_defaults()
        given = {
            name: value if isinstance(value, Value) else from_python(value) for name, value in bound.arguments.items()
        }
        if "async_op" in given and realize(frame, given["async_op"]).constant():
            raise Unsupported("a collective that captured code is not to wait for", "FJ107", _ASYNCHRONOUS_HINT)
        if "tag" in given and realize(frame, given["tag"]).constant() or "group_src" in given and not is_none(
            realize(frame, given["group_src"])
        ):
            raise Unsupported("a collective with a tag, or with a source in its group", "FJ107")
        return does(frame, given, _group(frame, given["group"]))

    return handler
