"""Whether arguments fit a function written in C: asked of the function itself, before anything framejit knows about it
runs."""

from __future__ import annotations

import builtins
import collections
import functools
import inspect
import itertools
import operator
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from framejit.signals import Unsupported
from framejit.values.base import Value

if TYPE_CHECKING:
    from framejit.values.context import Frame

_ONE, _NONE, _SELF, _SELF_ONE, _SELF_REST = "x, /", "", "self, /", "self, x, /", "self, /, *args"
_SEARCH = "self, x, start=0, end=0, /"

# What takes which arguments, where CPython does not say so itself (no __text_signature__).
_TEXTS: dict[Any, str] = {
    bool: "x=False, /", slice: "start, stop=None, step=None, /", range: "start, stop=0, step=1, /",
    type: "name, bases=(), namespace={}, /, **kwargs",
    int: "x=0, /, base=10", str: "object='', encoding='', errors=''", bytes: "source=b'', encoding='', errors=''",
    super: "cls=None, obj=None, /",
    dict: "items=(), /, **kwargs", collections.OrderedDict: "items=(), /, **kwargs",
    collections.defaultdict: "factory=None, items=(), /, **kwargs",
    set: "iterable=(), /", frozenset: "iterable=(), /", collections.deque: "iterable=(), maxlen=None",
    iter: "iterable, sentinel=None, /", next: "iterator, default=None, /", getattr: "obj, name, default=None, /",
    vars: "obj=None, /",
    max: "x, /, *args, key=None, default=None", min: "x, /, *args, key=None, default=None",
    builtins.__build_class__: "func, name, /, *bases, **kwargs",
    zip: "*iterables, strict=False", map: "function, iterable, /, *iterables", filter: "function, iterable, /",
    weakref.ref: "object, callback=None, /", functools.partial: "func, /, *args, **kwargs",
    functools.reduce: "function, iterable, initial=None, /",
    operator.attrgetter: "name, /, *names", operator.itemgetter: "item, /, *items",
    operator.methodcaller: "name, /, *args, **kwargs",
    itertools.chain: "*iterables", itertools.repeat: "object, times=0",
    itertools.islice: "iterable, start, stop=None, step=None, /",
    itertools.product: "*iterables, repeat=1", itertools.zip_longest: "*iterables, fillvalue=None",
    list.__getitem__: _SELF_ONE, list.__init__: "self, iterable=(), /", dict.__init__: "self, items=(), /, **kwargs",
    set.__init__: "self, iterable=(), /",
    torch.Generator: "device=None",
    torch.autograd.Variable: "data=None, requires_grad=False, volatile=False, _grad_fn=None, name=None",
}
_METHOD_TEXTS: dict[tuple[type, ...], dict[str, str]] = {
    (dict, collections.OrderedDict): {
        "__getitem__ ": _SELF_ONE, "keys values items clear copy": _SELF, "update": "self, items=(), /, **kwargs",
    },
    (dict,): {"pop": "self, key, default=None, /"},
    (collections.OrderedDict,): {"pop": "self, key, default=None"},
    (set, frozenset): {
        "__contains__ isdisjoint issubset issuperset symmetric_difference": _SELF_ONE, "copy": _SELF,
        "difference intersection union": _SELF_REST,
    },
    (set,): {
        "add discard remove symmetric_difference_update": _SELF_ONE, "clear pop": _SELF,
        "difference_update intersection_update update": _SELF_REST,
    },
    (str, bytes, bytearray): {
        "count find index rfind rindex": _SEARCH, "startswith endswith": _SEARCH,
        "isalnum isalpha isascii isdigit islower isspace istitle isupper lower upper title swapcase capitalize": _SELF,
    },
    (str,): {"format": "self, /, *args, **kwargs", "format_map": _SELF_ONE},
    (int,): {"conjugate __trunc__ __floor__ __ceil__": _SELF, "__round__": "self, ndigits=None, /"},
    (range,): {"count index": _SELF_ONE, "__reversed__": _SELF},
    (slice,): {"indices": _SELF_ONE},
    (collections.deque,): {
        "append appendleft extend extendleft count remove": _SELF_ONE,
        "clear copy pop popleft reverse __reversed__ __copy__": _SELF,
        "index": _SEARCH, "insert": "self, index, x, /", "rotate": "self, n=1, /",
        "__init__": "self, iterable=(), maxlen=None",
    },
    (torch.device,): {"__enter__": _SELF, "__exit__": _SELF_REST},
    (types.GeneratorType,): {"send": _SELF_ONE, "close": _SELF, "throw": "self, type, value=None, traceback=None, /"},
}


def _written_down() -> dict[Any, inspect.Signature]:
    texts = dict(_TEXTS)
    for classes, methods in _METHOD_TEXTS.items():
        for cls in classes:
            texts.update(
                {
                    cls.__dict__[name]: text
                    for names, text in methods.items()
                    for name in names.split()
                    if name in cls.__dict__
                }
            )
    return {function: inspect.signature(eval(f"lambda {text}: None")) for function, text in texts.items()}  # noqa: S307  the texts above


_WRITTEN_DOWN = _written_down()


class _StandIn:
    """An argument that has nothing but what every object has; a message that speaks of it is not about the number and
    names of arguments."""


class Misfit:
    """Arguments that the function does not take, and what it says to them; None if only the call itself can tell."""

    def __init__(self, message: str | None) -> None:
        self.message = message


def checked(
    frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]
) -> tuple[list[Value], dict[str, Value]]:
    """The arguments of a call of `function`, by position where that is the same; what the function raises if they do
    not fit."""
    names = tuple(kwargs)
    fit = fitting(function, len(args), names)
    if isinstance(fit, Misfit):
        if fit.message is None:
            raise Unsupported(f"{getattr(function, '__qualname__', function)}() does not take these arguments", "FJ161")
        raise frame.raised(TypeError, fit.message)
    if not fit:
        return args, kwargs
    return [*args, *(kwargs[name] for name in fit)], {name: value for name, value in kwargs.items() if name not in fit}


@functools.lru_cache(4096)
def fitting(function: Any, n_args: int, names: tuple[str, ...]) -> tuple[str, ...] | Misfit:
    """Whether `n_args` arguments and some with these names fit; if so, the names that may as well be given by position,
    in that order."""
    signature = signature_of(function)
    if signature is None:
        return Misfit(None) if names else ()
    try:
        signature.bind(*[None] * n_args, **dict.fromkeys(names))
    except TypeError:
        return Misfit(_complaint(function, n_args, names))
    if function is complex:
        return ()  # from 3.14 on it warns of a complex `real` by name, and not by position
    positional = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    before = sum(p.kind is p.POSITIONAL_ONLY for p in signature.parameters.values())
    rest = positional[max(n_args - before, 0) :] if n_args >= before else []
    return tuple(itertools.takewhile(names.__contains__, rest))


@functools.lru_cache(4096)
def signature_of(function: Any) -> inspect.Signature | None:
    """The signature of a function, method descriptor or class written in C."""
    found = _WRITTEN_DOWN.get(function)
    if found is None:
        try:
            found = inspect.signature(function)
        except (ValueError, TypeError):
            return None
    return found


def _complaint(function: Callable[..., Any], n_args: int, names: tuple[str, ...]) -> str | None:
    """What `function` raises when it is called with that many arguments and these names."""
    args: list[Any] = [_StandIn() for _ in range(n_args)]
    owner = getattr(function, "__objclass__", None)
    if owner is not None and args:
        try:
            args[0] = owner()
        except Exception:  # then it can't be tried
            return None
    try:
        function(*args, **{name: _StandIn() for name in names})
    except TypeError as e:
        message = str(e)
        return None if _StandIn.__name__ in message else message
    except Exception:  # no complaint about how many there are, or of which names
        pass
    return None
