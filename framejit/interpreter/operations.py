"""What values ask of the frame that runs them: calling, iterating, comparing, raising."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.sources import Source, const_source, static_lookup
from framejit.signals import Exhausted, NotConstant, Raised, Unsupported, forget_frames
from framejit.values import operators
from framejit.values.base import Value, deep_realize, realize
from framejit.values.builtins.formatting import text_of
from framejit.values.complaints import SPECIAL, refused
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.hashing import HashTable
from framejit.values.containers.iterator_values import IteratorValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import fold
from framejit.values.lazy import OpaqueValue
from framejit.values.objects.builtin_attributes import builtin_attribute
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.exception_values import ExceptionValue
from framejit.values.objects.functions.function_values import MethodValue
from framejit.values.objects.user_object import class_attribute
from framejit.values.runtime_numbers.number_texts import NumberTextValue, text_by_template
from framejit.values.shown_objects import text_by_cpython
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors import overrides
from framejit.values.tensors.numbers_in_tensors import called
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import from_python, wrap

if TYPE_CHECKING:
    from framejit.interpreter.capturing import Capture, Frame
    from framejit.values.objects.exception_values import ExceptionValue

_OPEN: Final = (SymIntValue, SymNumberValue, NumberTextValue)


class Operations:
    """Mixed into Frame, and only there."""

    capture: Capture

    # ---- values ---------------------------------------------------------------------------------

    def wrap(self, obj: Any, source: Source) -> Value:
        return wrap(self.capture, obj, source)

    def constants(self, values: list[Value] | Iterator[Value]) -> list[Any]:
        """The Python objects of values that must be known; Unsupported otherwise."""
        found = []
        for value in values:
            try:
                found.append(deep_realize(self, [value])[0].constant())  # type: ignore[arg-type]
            except NotConstant:
                raise Unsupported(f"{value.describe()} must be known before the program runs", "FJ121") from None
        return found

    # ---- attributes and functions ---------------------------------------------------------------

    def builtin_attribute(self: Frame, value: Value, name: str) -> Value:
        """Attribute `name` of a value of a built-in type."""
        return builtin_attribute(self, value, name)

    def class_attribute(self: Frame, value: Value, cls: type, name: str) -> Value:
        """Attribute `name` of a class, bound to `value`."""
        return class_attribute(self, value, cls, name)

    def attribute_of_override(self: Frame, tensor: TensorValue, name: str) -> Value | None:
        """The value of a tensor's attribute by a `__torch_function__` of the program; None where torch asks none."""
        return overrides.attribute_of_override(self, tensor, name)

    def handed_over(self: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        """The result of a call by a `__torch_function__` of the program; None where torch asks none."""
        return overrides.handed_over(self, function, args, kwargs)

    def torch_call(
        self: Frame, target: Any, args: list[Value], kwargs: dict[str, Value], is_method: bool = False
    ) -> Value:
        """What the graph's node for a call gives; tensors may stand in the place of numbers."""
        return called(self, target, args, kwargs, is_method)

    def fold(self: Frame, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
        """The result of a pure function, called now."""
        return fold(self, function, args, kwargs)

    def filled_in(self: Frame, template: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """`template.format(*args, **kwargs)`."""
        args, kwargs = [realize(self, v) for v in args], {name: realize(self, v) for name, v in kwargs.items()}
        found = text_by_template(template, args, kwargs)
        return text_by_cpython(self, text_of, template.format, args, kwargs) if found is None else found

    def filled_in_by_percent(self: Frame, template: str, given: Value) -> Value:
        """`template % given`."""
        return text_by_cpython(self, text_of, template.__mod__, [given], {})

    def call(self: Frame, fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return realize(self, realize(self, fn).call(self, args, kwargs))

    def same(self, a: Value, b: Value) -> bool:
        """The answer to `a is b`, which is a known one."""
        a, b = realize(self, a), realize(self, b)  # type: ignore[arg-type]
        if a is b:
            return True
        if (isinstance(a, _OPEN) or isinstance(b, _OPEN)) and a.python_type() is not b.python_type():
            return False  # whatever the number or text is
        try:
            x, y = a.constant(), b.constant()
        except NotConstant:
            if isinstance(a, MethodValue) and a.source is None or isinstance(b, MethodValue) and b.source is None:
                return False
            if (a.one_of_each or b.one_of_each) and a.python_type() is b.python_type():
                x, y = a.known_content(self), b.known_content(self)  # type: ignore[arg-type]
                return bool(x == y)
            for one, other in ((a, b), (b, a)):  # a class that is known may be one that has no model elsewhere
                if isinstance(one, OpaqueValue) and isinstance(other, ClassValue) and issubclass(one.cls, type):
                    raise one.why.again() from None
            if isinstance(a, ConstantValue) or isinstance(b, ConstantValue):
                return False  # different types, or a constant against an object
            if isinstance(a, TensorValue) and isinstance(b, TensorValue):
                if a.fake is b.fake:
                    return True
                for copy in (a.copy_of, b.copy_of):
                    if copy is not None:
                        copy.refuse()
            if a.source is not None and b.source is not None:
                self.capture.guard_distinct(a.source, b.source)
            return False
        if type(x) is not type(y):
            return False
        if type(x) in (float, complex, int, str, bytes):
            self._guard_identity(a, b, x, y)
        return x is y

    def _guard_identity(self, a: Value, b: Value, x: Any, y: Any) -> None:
        """Guard whether two numbers or texts are one object: of what is read from outside, only the value is
        guarded."""
        equal = x == y or x is y
        first, second = (a, b) if a.source is not None else (b, a)
        if first.source is None or first.source == second.source or not equal or type(x) is int and -5 <= x <= 256:
            return  # made here as the program makes it; unequal; or one of the ints of which there is one each
        if second.source is None:
            other: Source = const_source(y if first is a else x)
        else:
            other = second.source
        (self.capture.guard_same if x is y else self.capture.guard_distinct)(first.source, other)

    def equal(self: Frame, a: Value, b: Value) -> bool:
        return operators.equal(self, a, b)

    def binary(self: Frame, symbol: str, a: Value, b: Value, in_place: bool = False) -> Value:
        return operators.binary(self, symbol, realize(self, a), realize(self, b), in_place)

    def compare(self: Frame, name: str, a: Value, b: Value) -> Value:
        return operators.compare(self, name, realize(self, a), realize(self, b))

    def unary(self: Frame, symbol: str, a: Value) -> Value:
        return operators.unary(self, symbol, realize(self, a))

    def contains(self: Frame, container: Value, item: Value) -> bool:
        container = realize(self, container)
        if isinstance(container, HashTable) and container.surely_lacks(item):
            return False
        return operators.contains(self, container, realize(self, item))

    def subscript(self: Frame, container: Value, key: Value) -> Value:
        return operators.subscript(self, realize(self, container), realize(self, key))

    def truth(self: Frame, value: Value) -> bool:
        return realize(self, value).truth(self)

    @contextmanager
    def catching(self: Frame) -> Iterator[None]:
        """Around framejit code that itself catches what the captured program raises inside."""
        self.catches += 1
        try:
            yield
        except Raised as e:
            forget_frames(e)
            raise
        finally:
            self.catches -= 1

    # ---- iteration ------------------------------------------------------------------------------

    def iterator_over(self: Frame, items: list[Value]) -> Value:
        return TupleValue(items).iterator(self)

    def iterate(self: Frame, value: Value) -> Iterator[Value]:
        """The items of a finite iterable."""
        return realize(self, value).iterate(self)

    def get_iter(self: Frame, value: Value) -> Value:
        """`iter(value)`."""
        return realize(self, value).iterator(self)

    def next(self: Frame, iterator: Value) -> Value:
        """The next item; Exhausted at the end."""
        iterator = realize(self, iterator)
        self.capture.effects.altered(iterator)  # the step can't be taken back
        if isinstance(iterator, IteratorValue):
            item = realize(self, iterator.next(self))
        elif static_lookup(iterator.python_type(), "__next__", None) is None:
            raise Unsupported(f"stepping {iterator.describe()}, which has no __next__ any more", "FJ161")
        else:
            try:
                with self.catching():
                    item = realize(self, iterator.call_method(self, "__next__", [], {}))
            except Raised as e:
                if issubclass(e.value.cls, StopIteration):
                    raise Exhausted(*e.value.args[:1]) from None
                raise
        self.capture.spend(1)
        return item

    def drain(self: Frame, iterator: Value) -> Iterator[Value]:
        """The rest of an iterator, one at a time."""
        for _ in range(1_000_000):
            try:
                item = self.next(iterator)
            except Exhausted:
                return
            yield item
        raise Unsupported(f"{iterator.describe()} does not end")

    # ---- exceptions -----------------------------------------------------------------------------

    def make_exception(self, cls: type, args: list[Value]) -> ExceptionValue:
        return ExceptionValue(cls, args)

    def raised(self: Frame, cls: type, *args: Any) -> Raised:
        """The signal that the captured program raises `cls(*args)`; arguments may be values or constants."""
        exc = self.make_exception(cls, [a if isinstance(a, Value) else ConstantValue(a) for a in args])
        self.chain_context(exc)
        return Raised(exc)

    def raised_from(self: Frame, e: BaseException) -> Raised:
        """The program raises an exception that really happened while framejit folded something."""
        exc = self.make_exception(type(e), [from_python(a) for a in e.args])
        self.chain_context(exc)
        return Raised(exc)

    def chain_context(self: Frame, exc: ExceptionValue) -> None:
        """Make the exception being handled the context of one that is about to be raised."""
        if exc.source is not None:
            return
        current = self.handled_exception()
        if current is None:
            exc.context_of_caller = True
            return
        if not isinstance(current, ExceptionValue) or current is exc:
            return
        walk: Value = current
        seen: set[int] = set()
        # no exception is in its own chain of contexts, but other cycles may be there
        while isinstance(walk, ExceptionValue) and id(walk) not in seen:
            seen.add(id(walk))
            if walk.context is exc:
                walk.context, walk.context_of_caller = NONE, False
            walk = walk.context
        exc.context, exc.context_of_caller = current, False

    def exception_from(self: Frame, value: Value) -> ExceptionValue:
        """The exception that `raise value` raises."""
        value = realize(self, value)
        if isinstance(value, ClassValue) and issubclass(value.cls, BaseException):
            value = value.call(self, [], {})
        if not isinstance(value, ExceptionValue):
            raise Unsupported(f"raising {value.describe()}")
        return value

    def call_special(self: Frame, owner: Value, name: str, args: list[Value], complaint: str) -> Value:
        """Call a special method of the owner's type, as an operator would."""
        owner = realize(self, owner)
        if static_lookup(owner.python_type(), name, None) is None:
            says = f"{native.type_name(owner.python_type())!r} object {complaint}"
            if name not in SPECIAL:
                raise self.raised(TypeError, says)
            raise refused(self, SPECIAL[name], [owner, *(ConstantValue(0) for _ in args)], says)
        return realize(self, owner.call_method(self, name, [realize(self, a) for a in args], {}))
