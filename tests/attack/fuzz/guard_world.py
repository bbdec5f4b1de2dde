"""Random objects for guard trees to look at, and what a program may do to them."""
from __future__ import annotations

import collections
import gc
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

NAMES = ("a", "b", "c", "weight", "late")
Undo = Callable[[], None]


class Plain:
    shared = 3

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Other(Plain):
    """A class with the layout of its base, so that objects may change from one class to the other."""


class Slotted:
    __slots__ = ("a", "b")


class SlottedWithDict(Slotted):
    pass


class Computed:
    """Attributes by functions: one from a name, one that raises, one that is made at each reading."""

    def __getattr__(self, name: str) -> int:
        if name.startswith("_") or name == "late":
            raise AttributeError(name)
        return len(name)

    @property
    def raising(self) -> int:
        raise ValueError("not today")

    @property
    def fresh(self) -> list[int]:
        return [1, 2]


class Meta(type):
    pass


class OfMeta(metaclass=Meta):
    a = 1


class Sized:
    """Length, truth and items of its own."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        return i * 2

    def __bool__(self) -> bool:
        return self.n != 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sized) and other.n % 3 == self.n % 3

    def __hash__(self) -> int:
        return self.n % 3


class OwnList(list):
    pass


class OwnDict(dict):
    def __missing__(self, key: object) -> int:
        return 7


class TurnedDict(dict):
    def __iter__(self) -> Iterator[Any]:
        return reversed(list(super().__iter__()))


class OwnTuple(tuple):
    pass


class OwnTensor(torch.Tensor):
    pass


Pair = collections.namedtuple("Pair", "left right")
NUMBERS = (0, 1, -1, 2**70, True, False, 0.0, -0.0, float("nan"), 1.5, 2j)
CONSTANTS: tuple[Any, ...] = (*NUMBERS, None, "a", "b", "weight", b"x", ..., (1, 1.0), (), frozenset((1, 2)))


def tensor(rng: random.Random) -> torch.Tensor:
    shape = [rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 6, 7)))]
    dtype = rng.choice(
        (torch.float32, torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.bfloat16)
    )
    made = torch.zeros(shape, dtype=dtype, device=rng.choice(("cpu",) * 9 + ("meta",)))
    kind = rng.randrange(12)
    if kind == 0 and made.dim() >= 2:
        made = made.transpose(0, -1)
    elif kind == 1 and made.dim():
        made = made[..., :1].expand(shape) if 0 not in shape else made
    elif kind == 2 and made.dim():
        made = made[:, ...][1:]
    elif kind == 3 and dtype is torch.complex64:
        made = made.conj()
    elif kind == 4:
        with torch.inference_mode():
            made = made.clone()
    elif kind == 5 and dtype.is_floating_point:
        made = made.requires_grad_()
    elif kind == 6 and dtype.is_floating_point:
        made = torch.nn.Parameter(made)
    elif kind == 7:
        made = made.as_subclass(OwnTensor)
    elif kind == 8 and made.device.type == "cpu" and dtype is torch.float32 and made.dim() == 2:
        made = made.to_sparse()
    elif kind == 9 and dtype is torch.complex64:
        made = made.imag._neg_view() if made.is_conj() else torch._neg_view(made)
    elif kind == 10 and dtype.is_floating_point and made.layout is torch.strided:
        made = made.requires_grad_() * 1
    return made


def value(rng: random.Random, depth: int = 3) -> Any:
    """An object, which may hold others."""
    if depth <= 0 or rng.random() < 0.25:
        return tensor(rng) if rng.random() < 0.4 else rng.choice(CONSTANTS)

    def more() -> Any:
        return value(rng, depth - 1)

    def some() -> list[Any]:
        return [more() for _ in range(rng.randrange(5))]

    def named() -> dict[str, Any]:
        return {name: more() for name in rng.sample(NAMES, rng.randrange(len(NAMES) + 1))}

    kind = rng.randrange(19)
    if kind < 3:
        made: Any = Plain(**named())
    elif kind == 3:
        made = (Slotted, SlottedWithDict)[rng.randrange(2)]()
        for name in rng.sample(("a", "b"), rng.randrange(3)):
            setattr(made, name, more())
    elif kind < 6:
        made = rng.choice((list, list, OwnList, tuple, tuple, OwnTuple))(some())
    elif kind < 10:
        made = rng.choice((dict, dict, dict, OwnDict, TurnedDict, collections.OrderedDict))(named())
        if rng.random() < 0.3:
            made[rng.choice((1, 2.5, None, (1, "a"), Sized(2), torch.float32))] = more()
    elif kind == 10:
        made = Pair(more(), more())
    elif kind == 11:
        made = types.ModuleType("m")
        made.__dict__.update(named())
    elif kind == 12:
        made = function(rng, more)
    elif kind == 13:
        made = rng.choice((type, Meta))("Made", (rng.choice((Plain, object)),), named())
    elif kind == 14:
        made = Computed()
    elif kind == 15:
        made = Sized(rng.randrange(6))
    elif kind == 16:
        made = types.CellType(more()) if rng.random() < 0.8 else types.CellType()
    elif kind == 17:
        made = torch.nn.Linear(rng.randint(1, 3), 2, bias=rng.random() < 0.5)
    else:
        made = rng.choice((set, frozenset))(rng.sample((1, "a", None, 2.5, torch.int64), rng.randrange(5)))
    return made


def function(rng: random.Random, more: Callable[[], Any]) -> types.FunctionType:
    namespace: dict[str, Any] = {name: more() for name in rng.sample(NAMES, rng.randrange(1, len(NAMES) + 1))}
    cells = [more() for _ in range(rng.randrange(3))]
    names = [f"cell{i}" for i in range(len(cells))]
    text = (
        f"def outer({', '.join(names)}):\n    def inner(x=None, *, y=None):\n"
        f"        return x, y{''.join(', ' + name for name in names)}\n    return inner\n"
    )
    exec(text, namespace)
    made: types.FunctionType = namespace.pop("outer")(*cells)
    made.__defaults__ = (more(),)
    made.__kwdefaults__ = {"y": more()}
    if rng.random() < 0.5:
        made.__dict__["a"] = more()
    return made


class World:
    """The frame that a tree looks at: arguments and a function."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.args: list[Any] = [value(rng) for _ in range(rng.randint(1, 5))]
        self.fn: types.FunctionType | None = function(rng, lambda: value(rng, 2)) if rng.random() < 0.9 else None
        if len(self.args) > 1 and rng.random() < 0.3:
            self.args[0] = self.args[-1]

    def holders(self) -> list[Any]:
        """What can be changed."""
        found: list[Any] = []
        seen: set[int] = set()
        todo: list[Any] = [*self.args, self.fn]
        while todo:
            one = todo.pop()
            if (
                id(one) in seen
                or isinstance(one, (str, int, float, type(None)))
                or type(one).__module__ == "builtins"
                and isinstance(one, type)
            ):
                continue
            seen.add(id(one))
            found.append(one)
            todo += parts(one)
        return found

    def change(self) -> Undo:
        """Does something to some object; gives what takes it back as far as that can be."""
        rng = self.rng
        if rng.random() < 0.25:
            return self._change_frame()
        holders = [one for one in self.holders() if one is not self.fn]
        return changed(rng, rng.choice(holders)) if holders else _nothing

    def _change_frame(self) -> Undo:
        rng, args, fn = self.rng, self.args, self.fn
        self.args = list(args)
        kind = rng.randrange(6)
        if kind == 0 and args:
            self.args.pop()
        elif kind == 1:
            self.args.append(value(rng, 1))
        elif kind == 2 and fn is not None:
            self.fn = types.FunctionType(fn.__code__, {**fn.__globals__}, None, fn.__defaults__, fn.__closure__)
        elif kind == 3 and fn is not None and fn.__closure__:
            cells = [types.CellType(value(rng, 1)) for _ in fn.__closure__]
            self.fn = types.FunctionType(fn.__code__, fn.__globals__, None, fn.__defaults__, tuple(cells))
        elif kind == 4 and fn is not None:
            return changed(rng, rng.choice([fn, fn.__globals__]))
        elif args:
            self.args[rng.randrange(len(args))] = value(rng)

        def undo() -> None:
            self.args, self.fn = args, fn

        return undo


def parts(one: Any) -> list[Any]:
    if isinstance(one, (list, tuple)):
        return list(one)
    if isinstance(one, dict):
        return list(dict.values(one))
    if isinstance(one, types.FunctionType):
        globals_ = [v for name, v in one.__globals__.items() if name in NAMES]
        return [*(one.__closure__ or ()), *(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values(), *globals_]
    if isinstance(one, types.CellType):
        try:
            return [one.cell_contents]
        except ValueError:
            return []
    if isinstance(one, type):
        return [v for name, v in vars(one).items() if name in NAMES]
    if isinstance(one, torch.Tensor):
        return []
    found = list(vars(one).values()) if hasattr(one, "__dict__") else []
    return found + [type(one)] if type(one).__module__ == __name__ else found


def _nothing() -> None:
    pass


def changed(rng: random.Random, one: Any) -> Undo:
    try:
        return _changed(rng, one)
    except Exception:
        return _nothing  # what was tried is not for this object


def _changed(rng: random.Random, one: Any) -> Undo:
    if isinstance(one, list):
        old = list(one)
        act: Callable[[], Any] = rng.choice(
            (
                one.clear, one.reverse, one.pop, lambda: one.append(value(rng, 1)),
                lambda: one.__setitem__(0, value(rng, 1)),
            )
        )
        if act is one.pop and not one:
            return _nothing
        act()
        return lambda: one.__setitem__(slice(None), old)
    if isinstance(one, dict):
        return _changed_dict(rng, one)
    if isinstance(one, types.FunctionType):
        new = value(rng, 1)
        return _set(
            one,
            *rng.choice(
                (("__defaults__", (new,)), ("__kwdefaults__", {"y": new}), ("__code__", _code(one)), ("a", new))
            ),
        )
    if isinstance(one, types.CellType):
        return _set(one, "cell_contents", value(rng, 1)) if rng.random() < 0.8 else _deleted(one, "cell_contents")
    if isinstance(one, torch.Tensor):
        return _changed_tensor(rng, one)
    if isinstance(one, type):
        if one.__module__ == __name__ and one.__name__ != "Made":
            return _restored(one, rng.choice((*NAMES, "shared")), value(rng, 1))
        return _set(one, rng.choice(NAMES), value(rng, 1)) if rng.random() < 0.7 else _deleted(one, rng.choice(NAMES))
    kind = rng.randrange(6)
    if kind == 0 and type(one) in (Plain, Other):
        return _set(one, "__class__", Other if type(one) is Plain else Plain)
    if kind == 1 and hasattr(one, "__dict__") and not isinstance(one, (types.ModuleType, torch.nn.Module)):
        return _set(one, "__dict__", dict(vars(one)) if rng.random() < 0.5 else {rng.choice(NAMES): value(rng, 1)})
    if kind == 2:
        return _deleted(one, rng.choice(NAMES))
    if kind == 3 and hasattr(one, "__dict__"):
        return _changed_dict(rng, vars(one))
    if isinstance(one, Sized):
        return _set(one, "n", rng.randrange(6))
    return _set(one, rng.choice(NAMES), value(rng, 1))


def _changed_dict(rng: random.Random, one: dict[Any, Any]) -> Undo:
    old = list(one.items())
    keys = [key for key in one if not (isinstance(key, str) and key.startswith("__"))]
    kind = rng.randrange(7)
    if kind == 0 and keys:
        del one[rng.choice(keys)]
    elif kind == 1 and keys:
        key = rng.choice(keys)
        one[key] = one.pop(key)
    elif kind == 2:
        one.update({f"more{i}": i for i in range(rng.choice((1, 3, 40)))})
    elif kind == 3 and keys:
        key = rng.choice(keys)
        one[key] = one[key]
    elif kind == 4 and len(keys) == len(one):
        one.clear()
    elif keys:
        one[rng.choice(keys)] = value(rng, 1)
    else:
        one[rng.choice(NAMES)] = value(rng, 1)

    def undo() -> None:
        for key in [key for key in dict.keys(one) if key not in dict(old)]:
            del one[key]
        one.update(old)

    return undo


def _changed_tensor(rng: random.Random, one: torch.Tensor) -> Undo:
    kind = rng.randrange(9)
    with torch.no_grad():
        if kind == 0:
            one.t_()
            return lambda: one.t_() and None
        if kind == 1:
            one.requires_grad_(not one.requires_grad)
            return lambda: one.requires_grad_(not one.requires_grad) and None
        if kind == 2:
            one.add_(1)
            return _nothing
        if kind == 3:
            shape = tuple(one.shape)
            one.resize_(2, 3)
            return lambda: one.resize_(shape) and None
        if kind == 4:
            old = one.data
            one.data = one.data.double() if one.dtype is torch.float32 else one.data.new_zeros(3, 1)

            def undo() -> None:
                one.data = old

            return undo
        if kind == 5:
            one.unsqueeze_(0)
            return lambda: one.squeeze_(0) and None
        if kind == 6:
            one.set_(torch.zeros(4, dtype=one.dtype))
            return _nothing
        if kind == 7:
            one.as_strided_(one.shape, [1] * one.dim())
            return _nothing
        return _set(one, "__class__", OwnTensor if type(one) is torch.Tensor else torch.Tensor)


def _set(one: Any, name: str, new: Any) -> Undo:
    missing = object()
    old = getattr(one, name, missing)
    setattr(one, name, new)
    return (lambda: _delete(one, name)) if old is missing else lambda: setattr(one, name, old)


def _restored(one: type, name: str, new: Any) -> Undo:
    """Set an attribute of a class that all worlds share: always taken back when the present world ends."""
    old = vars(one).get(name, _restored)
    setattr(one, name, new)

    def undo() -> None:
        if old is _restored:
            _delete(one, name)
        else:
            setattr(one, name, old)

    SHARED_CHANGES.append(undo)
    return undo


SHARED_CHANGES: list[Undo] = []
"""What takes back the changes to the classes of this file."""


def put_classes_back() -> None:
    while SHARED_CHANGES:
        SHARED_CHANGES.pop()()


def _delete(one: Any, name: str) -> None:
    try:
        delattr(one, name)
    except AttributeError:
        pass


def _deleted(one: Any, name: str) -> Undo:
    old = getattr(one, name)
    delattr(one, name)
    return lambda: setattr(one, name, old)


def _code(fn: types.FunctionType) -> types.CodeType:
    return fn.__code__.replace(co_name=fn.__code__.co_name + "_")


def collect(rng: random.Random) -> None:
    """Sometimes: what nobody holds any more goes, and its memory to others."""
    if rng.random() < 0.1:
        gc.collect(1)  # all of torch is older
