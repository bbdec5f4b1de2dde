"""Keys of dicts and members of sets.

Captured containers are Python's own dicts and sets of stand-ins, so that order, resizing, collisions and "changed size
during iteration" are CPython's. A constant stands for itself; an `ObjectKey` stands for any other object, has the hash
the object has, and when CPython compares it with another, asks the captured program.
"""
from __future__ import annotations

import operator
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from framejit import _native as native
from framejit.guards.sources import static_lookup
from framejit.signals import NotConstant, Raised, Unsupported
from framejit.values.base import Value, deep_realize, is_user_object, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.inspection import full_name, is_a
from framejit.values.lazy import LazyValue
from framejit.values.sym_int import SymIntValue, on_sizes
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Capture, Frame

_asking = threading.local()


@contextmanager
def asking(wanted: bool = True) -> Iterator[None]:
    """Around what CPython's code does for the program: keys that it compares ask the program. Elsewhere framejit itself
    reads and moves them, and they are equal only where they stand for one object."""
    before = getattr(_asking, "on", False)
    _asking.on = wanted
    try:
        yield
    finally:
        _asking.on = before


class Refusal(NamedTuple):
    """Says that a key has no hash: what the captured program raises, and the outermost key that was asked."""

    key: ObjectKey
    raised: Raised


_WORDS: Final = "<what was raised>"
"""Said by the TypeError that CPython's code gets in the program's place. From 3.14 on dicts and sets, though not all of
their methods, make another of it, which tells what the key was for."""


class ObjectKey(Value):
    """Stands in a table for an object that is no constant.

    `hashed` is its hash; where that depends on addresses (`exact` is False) it is any number that is the same for the
    same object. `ask` gives the hash that the program defines, as often as CPython's code wants it. `told_apart` are
    the objects by whose identity hash and equality go.
    """

    def __init__(
        self,
        capture: Capture,
        value: Value,
        hashed: int | None,
        told_apart: tuple[Value, ...] = (),
        exact: bool = True,
        ask: Callable[[], int] | None = None,
    ) -> None:
        self.capture, self.value, self.hashed = capture, value, hashed
        self.told_apart, self.exact, self.ask = told_apart, exact, ask

    holds_own = False  # of a frozenset: whether the program defines the hashes of members

    def __hash__(self) -> int:
        if self.ask is not None and (self.hashed is None or is_asking()):
            hashed = self._asked()
            if self.hashed is not None and self.hashed != hashed:
                raise Unsupported(
                    f"{self.value.describe()}, whose hash has changed since it went into a table", "FJ122"
                )
            self.hashed = hashed
        assert self.hashed is not None
        return self.hashed

    def _asked(self) -> int:
        assert self.ask is not None
        try:
            return self.ask()
        except Raised as e:
            if e.value.cls is not TypeError or not is_asking():
                raise
            _asking.refusal = Refusal(self, e)
            raise TypeError(_WORDS) from None
        except TypeError:  # a part of this key has no hash
            if getattr(_asking, "refusal", None) is not None:
                _asking.refusal = _asking.refusal._replace(key=self)
            raise

    def __eq__(self, other: object) -> bool:
        value = key_value(other)
        if is_one(self.value, value):
            return True
        frame = self.capture.frame
        if frame is None or not is_asking():
            return False
        with asking(False):
            return frame.equal(self.value, value)

    def constant(self) -> Any:
        return self.value.constant()

    def children(self) -> Iterator[Value]:
        return iter((self.value,))


def is_asking() -> bool:
    return getattr(_asking, "on", False)


def is_one(a: Value, b: Value) -> bool:
    """Whether two values surely are one object."""
    return a is b or (isinstance(a.identity(), torch.Tensor) and a.identity() is b.identity())


def key_value(key: Any) -> Value:
    """The object that a key of a table stands for."""
    if isinstance(key, ObjectKey):
        return key.value
    return key if isinstance(key, Value) else from_python(key)


def as_key(frame: Frame, value: Value) -> Any:
    """The stand-in for an object as the key of a table (`HashTable.items`). Its hash is asked for, or the TypeError
    raised, when CPython's code wants it."""
    value = realize(frame, value)
    method = static_lookup(value.python_type(), "__hash__", None)
    part = getattr(value, "base", None) or value
    if isinstance(part, TupleValue) and method is tuple.__hash__:
        return _tuple_key(frame, value, part)
    if isinstance(part, HashTable) and method is frozenset.__hash__ and not value.is_constant():
        return frozen_key(frame, part, value)
    key = value.table_key(frame.capture)
    if key is not None:
        return key
    value = deep_realize(frame, [value])[0]
    if method is None:
        return ObjectKey(frame.capture, value, None, ask=partial(_unhashable, frame, value.python_type()))
    if _by_identity(method) and not value.is_constant():
        return ObjectKey(frame.capture, value, hash(id(value.identity())), (value,), exact=False)
    if is_a(method, types.FunctionType) and not (_is_library(method) and value.is_constant()):
        return ObjectKey(frame.capture, value, None, ask=partial(own_hash, frame.capture, value))
    try:
        key = value.constant()
        hash(key)
    except NotConstant:
        raise Unsupported(f"{value.describe()} as a dictionary key", "FJ122") from None
    except TypeError as e:
        return ObjectKey(frame.capture, value, None, ask=partial(_raise, frame, e))
    if isinstance(key, type) and key in frame.capture.made_classes:
        raise Unsupported(f"{value.describe()}, which was made here, as a dictionary key", "FJ122")
    return key


def _by_identity(method: Any) -> bool:
    """Whether a class's `__hash__` is that of object or of tensors. One of the program's own may have any `__eq__`."""
    return method is object.__hash__ or method is torch.Tensor.__hash__


def _unhashable(frame: Frame, cls: type) -> int:
    raise frame.raised(TypeError, f"unhashable type: {native.type_name(cls)!r}")


def _raise(frame: Frame, error: TypeError) -> int:
    raise frame.raised_from(error)


def _is_library(method: types.FunctionType) -> bool:
    """Whether a `__hash__` written in Python belongs to constants of the standard library or torch, and has no
    effects."""
    return (method.__module__ or "").partition(".")[0] in ("enum", "torch", "re", "typing")


def own_hash(capture: Capture, value: Value) -> int:
    """The hash that the program's own `__hash__` gives."""
    frame = capture.frame
    assert frame is not None
    with asking(False):
        given = realize(frame, frame.class_attribute(value, value.python_type(), "__hash__").call(frame, [], {}))
    if not issubclass(given.python_type(), int):
        raise frame.raised(TypeError, "__hash__ method should return an integer")
    number = int(given.constant())
    if not -sys.maxsize - 1 <= number <= sys.maxsize:
        return hash(number)
    return -2 if number == -1 else number


def referent_key(capture: Capture, reference: Value, target: Value) -> ObjectKey:
    """The key for a weak reference, which has the hash of what it leads to."""
    method = static_lookup(target.python_type(), "__hash__", None)
    if method is type.__hash__ and target.is_constant():
        return ObjectKey(capture, reference, hash(target.constant()))
    if not _by_identity(method) or target.is_constant():
        raise Unsupported(f"a weak reference to {target.describe()} as a dictionary key", "FJ122")
    return ObjectKey(capture, reference, hash(id(target.identity())), (target,), exact=False)


def _tuple_key(frame: Frame, value: Value, items: Any) -> Any:
    keys = tuple(as_key(frame, item) for item in items.items)
    items.items[:] = [realize(frame, item) for item in items.items]
    if value is items and value.source is None and not any(isinstance(k, ObjectKey) for k in keys):
        return value.constant()
    asks = any(map(has_own_hash, keys))
    return ObjectKey(
        frame.capture, value, None if asks else hash(keys), _parts(keys), all(map(is_exact, keys)),
        partial(hash, keys) if asks else None,
    )


def frozen_key(frame: Frame, members: Any, value: Value) -> ObjectKey:
    """The key for a set: of a frozenset, or of a set that is looked for among frozensets. The members were asked when
    they came in."""
    exact = all(map(is_exact, members.items))
    key = ObjectKey(frame.capture, value, hash(frozenset(members.items)), _parts(members.items), exact)
    key.holds_own = any(map(has_own_hash, members.items))
    return key


def _parts(keys: Iterable[Any]) -> tuple[Value, ...]:
    return tuple(part for key in keys if isinstance(key, ObjectKey) for part in key.told_apart)


def is_exact(key: Any) -> bool:
    """Whether the hash in the table is the one the real object has."""
    return key.exact if isinstance(key, ObjectKey) else True


def has_own_hash(key: Any) -> bool:
    """Whether the program defines the hash, or that of a part."""
    return isinstance(key, ObjectKey) and (key.ask is not None or key.holds_own)


def existing_key(capture: Capture, value: Value, stored: int) -> Any:
    """The key for an object found in a table from outside, which hashed it when it came in. Unsupported for those that
    framejit can't compare."""
    if isinstance(value, ConstantValue):
        return value.constant()
    if isinstance(value, TupleValue):
        value.items[:] = [i.realize_in(capture) if isinstance(i, LazyValue) else i for i in value.items]
        keys = [existing_key(capture, item, 0) for item in value.items]
        if any(map(has_own_hash, keys)):
            raise Unsupported("a table with tuples of objects that have their own hash among its keys", "FJ122")
        return ObjectKey(capture, value, hash(tuple(keys)), _parts(keys), all(map(is_exact, keys)))
    key = value.table_key(capture)
    if key is not None:
        return key
    method = static_lookup(value.python_type(), "__hash__", None)
    if _by_identity(method) and not value.is_constant():
        return ObjectKey(capture, value, hash(id(value.identity())), (value,), exact=False)
    if is_a(method, types.FunctionType) and is_user_object(value):
        return ObjectKey(capture, value, stored, ask=partial(own_hash, capture, value))
    try:
        key = value.constant()
        hash(key)
    except (NotConstant, TypeError):
        raise Unsupported(f"a table with {value.describe()} among its keys", "FJ122") from None
    return key


class _NoKey:
    """Stands for something that is looked for, and is no key of the table."""


_PLAIN_KEYS = frozenset((int, float, bool, str, bytes, tuple, type(None)))
_MOST_CONDITIONS = 64
"""In a table of more keys an int is looked for by its value."""


def _is_open(key: Any) -> bool:
    """Whether a key is an int that is left open."""
    return isinstance(key, ObjectKey) and isinstance(key.value, SymIntValue)


def _is_same_int(key: Any, number: SymIntValue) -> bool:
    """Whether a key stands for what is computed as an int that is left open."""
    value = key.value if isinstance(key, ObjectKey) else key
    return isinstance(value, SymIntValue) and bool(value.size.node.expression == number.size.node.expression)


def _is_other(key: Any, number: SymIntValue) -> bool:
    """Whether a key is no int that is left open, which may be a condition from here on."""
    if isinstance(key, ObjectKey):
        if key.ask is None and not isinstance(key.value, SymIntValue) and not any(key.value.ids()):
            return True
        key = key.value
    elif type(key) not in _PLAIN_KEYS:
        return False
    elif not isinstance(key, (int, float)):
        return True
    outcome = on_sizes(operator.eq, number, key_value(key))
    return outcome is not None and not outcome.constant()


class HashTable(Value):
    """A dict or a set while capturing; the base class of both. `items` is a real dict or set of stand-ins for the keys
    (`as_key`); only `changing` and `load` may change it."""

    mutable = True
    items: Any

    def __init__(self) -> None:
        self._apart: dict[type, Value] = {}
        self.reshaped = 0  # grows when keys come, go or move
        self.owner: Value | None = None  # the instance of a subclass that this is the built-in part of

    def has_plain_keys(self) -> bool:
        """Whether all keys are text or numbers, which are what they are for ever."""
        return all(type(key) in (str, int) for key in self.items)

    @property
    def whole(self) -> Value:
        """The object that the program knows."""
        return self if self.owner is None else self.owner

    takes_open_numbers = False
    """Whether an int that is left open may be a key as it is."""

    def look_up(self, frame: Frame, value: Value) -> Any:
        """The key that stands for `value`, guarded to be none of the other objects in the table that it could be."""
        key = self._open_key(frame, value) if self.takes_open_numbers else None
        return self.tell_apart(frame, as_key(frame, value)) if key is None else key

    def _open_key(self, frame: Frame, value: Value) -> ObjectKey | None:
        """The key that stands for an int which stays open, as the number of a hook; None where it has to be known."""
        number = realize(frame, value)
        if not isinstance(number, SymIntValue) or number.is_of_data():
            return None
        for key in self.open_keys():
            if _is_same_int(key, number):
                return key
        if not self._is_without(number):
            return None
        frame.capture.has_open_keys = True
        return ObjectKey(frame.capture, number, hash(number.size.node.expression), exact=False)

    def open_keys(self) -> Iterator[Any]:
        """Keys that are ints which were left open."""
        return filter(_is_open, self.items)

    def surely_lacks(self, value: Value) -> bool:
        """Whether it can't hold a value, whatever that turns out to be."""
        return isinstance(value, LazyValue) and value.is_key and not self.items

    def search_key(self, frame: Frame, value: Value) -> Any:
        """The key that stands for `value` where the table is only asked whether it holds it, or for its item: an int
        that is left open, and is no key, is assumed to be none of them instead of what it is."""
        value = realize(frame, value)
        if isinstance(value, SymIntValue) and not value.is_of_data() and self._is_without(value):
            return _NoKey()
        return self.look_up(frame, value)

    def _is_without(self, number: SymIntValue) -> bool:
        """Whether it is a condition from here on that an int is no key; False, too, where other keys than plain ones
        could equal it, or too many."""
        now = number.size.node.hint
        opened = [key.value for key in self.open_keys()]
        plain = [key for key in self.items if type(key) in _PLAIN_KEYS]
        if len(self.items) > _MOST_CONDITIONS or len(plain) + len(opened) < len(self.items):
            return False
        numbers = [ConstantValue(key) for key in plain if isinstance(key, (int, float))]
        if any(key.value == now for key in numbers) or any(other.size.node.hint == now for other in opened):
            return False
        outcomes = (on_sizes(operator.eq, number, key) for key in (*numbers, *opened))
        return all(outcome is not None and not outcome.constant() for outcome in outcomes)

    def tell_apart(self, frame: Frame, key: Any) -> Any:
        self._meet_numbers(frame.capture, key)
        for part in key.told_apart if isinstance(key, ObjectKey) else ():
            if part.source is None:
                continue
            cls = part.python_type()
            if cls not in self._apart:
                if len(key.told_apart) == 1 and key.hashed is not None and key in self.items:
                    continue  # what is found is guarded to be the same object, and the others are others already
                self._apart[cls] = part
                for other in self.items:
                    for theirs in other.told_apart if isinstance(other, ObjectKey) else ():
                        if theirs.source is not None and theirs.python_type() is cls:
                            frame.capture.distinct.tell_apart(part, theirs)
            else:
                frame.capture.distinct.tell_apart(part, self._apart[cls])
        return key

    def _meet_numbers(self, capture: Capture, key: Any) -> None:
        """Where results of id() are looked for among plain numbers, or these among those, the objects behind them are
        assumed. What is looked for among ints that are left open is assumed to be none of them."""
        met: Iterable[Any] = ()
        if capture.has_open_keys:
            met = self.items if _is_open(key) else self.open_keys()
        for other in met:
            one, number = (other, key) if _is_open(key) else (key, other)
            if not _is_same_int(one, number.value) and not _is_other(one, number.value):
                raise Unsupported(f"{key_value(one).describe()} in a table with {number.value.describe()}", "FJ122")
        if isinstance(key, ObjectKey):
            ids = list(key.value.ids())
            if ids and (self.source is not None or any(type(other) in (int, tuple) for other in self.items)):
                for number in ids:
                    number.assume(capture)
        elif type(key) in (int, tuple) and capture.ids_taken:
            for other in self.items:
                for number in other.value.ids() if isinstance(other, ObjectKey) else ():
                    number.assume(capture)

    def shares_order(self) -> bool:
        """Whether the hashes of all keys are the real ones, so that sets lie in memory as in the program."""
        return all(map(is_exact, self.items))


def hashes_of(keys: Iterable[Any], table: Iterable[Any] = ()) -> tuple[int | None, ...]:
    """For code that builds a real table, or puts keys into `table`: the hashes that are known, None where the object is
    to be asked."""
    keys = list(keys)
    if any(has_own_hash(key) and not key.exact for key in keys):
        raise Unsupported("a table of objects whose own hash depends on addresses", "FJ130")
    found = tuple(key.hashed if has_own_hash(key) else None for key in keys)
    every = {id(key): hash(key) for key in (*keys, *table) if is_exact(key)}
    own = {key.hashed for key in (*keys, *table) if has_own_hash(key)}
    if own and any(n > 1 and h in own for h, n in Counter(every.values()).items()):
        raise Unsupported(
            "a table of objects with equal hashes, which it would compare again when it is built", "FJ130"
        )
    return found


def real_call(
    frame: Frame, function: Any, table: Any, args: list[Any], kwargs: dict[str, Any], tells_use: bool = True
) -> Any:
    """Run a method of CPython's on stand-ins; what it raises itself, the captured program raises. `tells_use` is False
    where the program's own code would not go on to tell what a key without a hash was for."""
    try:
        with asking():
            return function(table, *args, **kwargs)
    except (TypeError, KeyError, RuntimeError, ValueError) as e:
        refusal, _asking.refusal = getattr(_asking, "refusal", None), None
        if refusal is not None and type(e) is TypeError:
            raise _refused(frame, refusal, str(e) if tells_use else _WORDS) from None
        if e.__traceback__ is not None and e.__traceback__.tb_next is not None:
            raise  # from framejit's own code, which the method called
        exc = frame.make_exception(type(e), [key_value(a) for a in e.args])
        frame.chain_context(exc)
        raise Raised(exc) from None


def _refused(frame: Frame, refusal: Refusal, said: str) -> Raised:
    """What the program raises where CPython's code said this of a stand-in that has no hash."""
    if said == _WORDS:
        return refusal.raised
    words = realize(frame, frame.call(from_python(str), [refusal.raised.value], {})).constant()
    return frame.raised(
        TypeError,
        said.replace(full_name(ObjectKey), full_name(refusal.key.value.python_type())).replace(_WORDS, words),
    )
