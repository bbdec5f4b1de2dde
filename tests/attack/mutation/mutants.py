"""Other values for a place: what differs from the old one in a single respect."""
from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import torch

Mutant = tuple[str, Callable[[Any], Any]]  # a name, and what makes the new value of the old one


class ListOfOwn(list):
    """A list by another name."""


class DictOfOwn(dict):
    def __missing__(self, key: Any) -> int:
        return 7


TENSORS: list[Mutant] = [
    ("float64", lambda t: t.detach().double()),
    ("float16", lambda t: t.detach().half()),
    ("int64", lambda t: t.detach().to(torch.int64)),
    ("requires_grad", lambda t: t.detach().clone().requires_grad_(not t.requires_grad)),
    ("one row", lambda t: t[:1]),
    ("another row", lambda t: torch.cat([t, t[:1]])),
    ("no rows", lambda t: t[:0]),
    ("transposed memory", lambda t: t.mT.contiguous().mT),
    ("transposed", lambda t: t.mT),
    ("wide strides", lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]]),
    ("expanded", lambda t: t[:1].expand_as(t)),
    ("offset", lambda t: torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape)),
    ("another object", lambda t: t.detach().clone().requires_grad_(t.requires_grad)),
    ("a view", lambda t: t[:]),
    ("not a leaf", lambda t: t * 1.0),
    ("other numbers", lambda t: -t.detach()),
    ("another rank", lambda t: t.unsqueeze(0)),
    ("a parameter", lambda t: torch.nn.Parameter(t.detach(), requires_grad=False)),
    ("None", lambda t: None),
    ("a number", lambda t: 2.5),
    ("with a gradient", lambda t: with_gradient(t)),
    ("of inference", lambda t: inference(t)),
]
NUMBERS: list[Mutant] = [
    *[(f"{n}", lambda _, n=n: n) for n in (0, 1, -1, 2, 3, 2**40)],
    ("one more", lambda n: n + 1), ("a float", float), ("a bool", bool), ("nan", lambda _: float("nan")),
    ("-0.0", lambda _: -0.0), ("a tensor",
        lambda n: torch.tensor(n)), ("text", str),
]
WORDS: list[Mutant] = [
    ("longer", lambda s: s + "x"), ("empty", lambda _: ""), ("'b'", lambda _: "b"), ("'add'", lambda _: "add"),
    ("None", lambda _: None),
]
LISTS: list[Mutant] = [
    ("longer", lambda v: [*v, *v[:1], 1]), ("shorter", lambda v: v[:-1]), ("reversed", lambda v: v[::-1]),
    ("empty", lambda _: []), ("a tuple", tuple),
        ("of a subclass", ListOfOwn),
    ("one object twice", lambda v: [v[0]] * len(v)), ("another object", list),
]
TUPLES: list[Mutant] = [
    ("longer", lambda v: (*v, 1)), ("shorter", lambda v: v[:-1]), ("reversed", lambda v: v[::-1]), ("a list", list),
    ("one object twice", lambda v: (v[0],) * len(v)),
]
DICTS: list[Mutant] = [
    ("another key", lambda d: {**d, "new": 1}), ("a key less", lambda d: dict(list(d.items())[:-1])),
    ("another order", lambda d: dict(reversed(d.items()))),
        ("empty", lambda _: {}),
    ("a key renamed", lambda d: {(f"{k}_" if i == 0 else k): v for i, (k, v) in enumerate(d.items())}),
    ("of a subclass", DictOfOwn), ("ordered",
        collections.OrderedDict),
    ("with a default", lambda d: collections.defaultdict(int, d)),
    ("values turned round", lambda d: dict(zip(d, reversed(d.values())))),
]
SETS: list[Mutant] = [
    ("another element", lambda s: {*s, "new"}), ("an element less", lambda s: set(list(s)[1:])),
    ("frozen", frozenset), ("empty", lambda s: set()),
]
QUEUES: list[Mutant] = [
    ("longer", lambda d: collections.deque([*d, 1], d.maxlen)), ("bounded", lambda d: collections.deque(d, 2)),
    ("unbounded", lambda d: collections.deque(d)), ("turned", lambda d: collections.deque([*d][::-1], d.maxlen)),
]
FUNCTIONS: list[Mutant] = [
    ("another function", lambda f: other_function(f)),
    ("wrapped", lambda f: lambda *args, **kwargs: f(*args, **kwargs)),
]
OBJECTS: list[Mutant] = [
    ("of a subclass", lambda o: of_subclass(o)),
    ("an attribute more", lambda o: with_attribute(o)),
    ("a method of its own", lambda o: with_method(o)),
]
MODULES: list[Mutant] = [
    ("in another mode", lambda m: m.train(not m.training)), ("with a hook", lambda m: hooked(m)),
    ("frozen", lambda m: m.requires_grad_(False)), ("double", lambda m: m.double()),
]


def mutants(value: Any) -> list[Mutant]:
    """The changes that make sense for a value."""
    if isinstance(value, torch.nn.Module):
        return MODULES
    if isinstance(value, torch.nn.Parameter):
        return [m for m in TENSORS if m[0] == "None"] + [
            ("another parameter", lambda p: torch.nn.Parameter(p.detach() * 2)),
            ("frozen", lambda p: torch.nn.Parameter(p.detach(), requires_grad=False)),
        ]
    kinds = (
        *(
            (torch.Tensor, TENSORS), (bool, NUMBERS), ((int, float), NUMBERS), (str, WORDS), (list, LISTS),
            (dict, DICTS), ((set, frozenset), SETS), (collections.deque, QUEUES),
        ),
        *(
            (types.FunctionType, FUNCTIONS),
            (type(None), NUMBERS[:2]),
            ((type, types.ModuleType, property, classmethod, staticmethod), []),
        ),
    )
    for kind, found in kinds:
        if isinstance(value, kind):
            return found
    if type(value) is tuple:
        return TUPLES
    return OBJECTS if hasattr(value, "__dict__") and type(value).__module__.startswith("program") else []


def with_gradient(t: torch.Tensor) -> torch.Tensor:
    t = t.detach().clone().requires_grad_()
    t.grad = torch.ones_like(t)
    return t


def inference(t: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return t.detach().clone()


def other_function(f: types.FunctionType) -> Any:
    return lambda *args, **kwargs: args[0] if args else 3


def of_subclass(o: Any) -> Any:
    o.__class__ = type(type(o).__name__, (type(o),), {"__module__": type(o).__module__})
    return o


def with_attribute(o: Any) -> Any:
    o.late = 4
    return o


def with_method(o: Any) -> Any:
    o.apply = lambda x: x - 5
    return o


def hooked(m: torch.nn.Module) -> torch.nn.Module:
    m.register_forward_hook(lambda module, args, out: out * 3)
    return m
