"""Guards on classes: what a class is given, or no longer has, between calls, where a captured call saw that it lacked
it or had it from Python or torch."""
import abc
from collections.abc import Mapping

import pytest
import torch

from support import ANY, Pair

X = torch.tensor([1.0, 2.0])


class Changing:
    """A class, its base, a descriptor in that, and an instance; `run` is what is compiled."""

    def __init__(self, run):
        class Descriptor:
            def __get__(self, obj, cls):
                return 13.0

        class Base:
            step = 10.0
            described = Descriptor()

            def method(self, x):
                return x + self.step

        class Middle(Base):
            pass

        class Made(Middle):
            step = 20.0

            def __init__(self):
                self.scale = 2.0
                self.__dict__["described"] = 17.0

            def method(self, x):
                return super().method(x) * 3

        self.descriptor = Descriptor
        self.base, self.middle, self.cls, self.obj = Base, Middle, Made, Made()
        self.function = lambda x: run(x, self.obj)


def scaled(x, obj):
    return x * obj.scale


def decided(x, obj):
    return x + 1 if obj else x - 1


def compared(x, obj):
    return x * (obj == 3)


def asked(x, obj):
    return x * getattr(obj, "absent", 5.0)


def written(x, obj):
    obj.scale = x.sum()
    return obj.scale * x


def called(x, obj):
    return obj.method(x)


def contained(x, obj):
    try:
        return x * len(obj)
    except TypeError as e:
        return str(e), x


def described(x, obj):
    return x * obj.described


def nine(self, name):
    return 9.0 if name == "scale" else object.__getattribute__(self, name)


CHANGES = {
    "__getattribute__": (scaled, "cls", nine),
    "__getattribute__ of a base": (scaled, "base", nine),
    "property": (scaled, "cls", property(lambda self: 7.0)),
    "property of a base": (scaled, "base", property(lambda self: 7.0)),
    "__bool__": (decided, "cls", lambda self: False),
    "__len__": (decided, "base", lambda self: 0),
    "__eq__": (compared, "cls", lambda self, other: True),
    "__getattr__": (asked, "cls", lambda self, name: 4.0),
    "absent": (asked, "base", 6.0),
    "__setattr__": (written, "cls", lambda self, name, value: object.__setattr__(self, name, value * 2)),
    "scale": (written, "cls", property(lambda self: 3.0, lambda self, value: None)),
    "method of a class between": (called, "middle", lambda self, x: x * 100),
    "__set__": (described, "descriptor", lambda self, obj, value: None),
    "__delete__": (described, "descriptor", None),
    "len of what had none": (contained, "middle", lambda self: 2),
}
NAMES = {
    "__getattribute__ of a base": "__getattribute__", "property": "scale", "property of a base": "scale",
    "method of a class between": "method", "len of what had none": "__len__",
}


def captured(run):
    """A pair that was called twice, and the classes of its two sides."""
    sides = []

    def make():
        sides.append(Changing(run))
        return sides[-1].function

    pair = Pair(make)
    pair.call(X, captures=True)
    pair.call(X, captures=False)
    return pair, sides


@pytest.mark.parametrize("change", CHANGES)
def test_a_class_is_given_an_attribute(change):
    run, where, value = CHANGES[change]
    pair, sides = captured(run)
    name = NAMES.get(change, change)
    for side in sides:
        setattr(getattr(side, where), name, value)
    pair.call(X)
    pair.call(X)
    for side in sides:
        delattr(getattr(side, where), name)
    pair.call(X, captures=False)


def test_a_descriptor_that_loses_what_makes_it_come_first():
    sides = []

    def make():
        side = Changing(described)
        side.descriptor.__set__ = lambda self, obj, value: None
        sides.append(side)
        return side.function

    pair = Pair(make)
    pair.call(X, captures=True)
    for side in sides:
        del side.descriptor.__set__
    pair.call(X, captures=True)
    for side in sides:
        side.descriptor.__set__ = lambda self, obj, value: None
    pair.call(X)


def test_a_descriptor_of_a_metaclass_comes_first():
    descriptors = []

    def make():
        class Descriptor:
            def __get__(self, obj, cls):
                return 3.0

        class Meta(type):
            step = Descriptor()

        class Made(metaclass=Meta):
            step = 5.0

        descriptors.append(Descriptor)
        return lambda x: x * Made.step

    pair = Pair(make)
    pair.call(X, captures=True)
    for descriptor in descriptors:
        descriptor.__delete__ = lambda self, obj: None
    pair.call(X, captures=True)
    for descriptor in descriptors:
        del descriptor.__delete__
    pair.call(X, captures=False)


def test_other_bases():
    pair, sides = captured(called)
    for side in sides:
        side.middle.__bases__ = (type("Other", (side.base,), {"method": lambda self, x: x - 1}),)
    pair.call(X, captures=True)
    for side in sides:
        side.cls.__bases__ = (type("Another", (side.base,), {"method": lambda self, x: x - 2}),)
    pair.call(X, captures=True)
    pair.call(X, captures=False)


def test_a_module_that_looks_attributes_up_in_its_own_way():
    classes = []

    def make():
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(2))
                self.scale = 2.0

            def forward(self, x):
                return x * self.weight * self.scale

        classes.append(Net)
        net = Net()
        return lambda x: net(x)

    pair = Pair(make)
    pair.call(X, captures=True)
    pair.call(X, captures=False)
    plain = torch.nn.Module.__getattr__
    for name, answer in {
        "__getattr__": lambda self, name: 3.0 if name == "weight" else plain(self, name),
        "__getattribute__": nine,
        "__call__": lambda self, x: x - 1,
    }.items():
        for cls in classes:
            setattr(cls, name, answer)
        pair.call(X, captures=True)
        for cls in classes:
            delattr(cls, name)
        pair.call(X, captures=False)


def test_numbers_that_a_class_counts_are_no_reason_to_capture_anew():
    def make():
        class Counted:
            calls = 0

            def run(self, x):
                return x + 1

        def count(x):
            Counted.calls += 1
            return Counted.calls

        obj = Counted()
        return (lambda x: obj.run(x)), lambda: count(X)

    pair = Pair(make)
    pair.call(X, captures=True)
    for _ in range(3):
        pair.call(X, captures=False)


class Family:
    """A class with a base, two more that may become its bases, and an instance; `run` is what is compiled."""

    def __init__(self, run, root):
        class Old(root):
            step = 1.0

            def method(self):
                return 2.0

        class New(root):
            step = 3.0

            def method(self):
                return 4.0

        class Other(root):
            def method(self):
                return super().method() if hasattr(super(), "method") else 6.0

        class Made(Other, Old):
            pass

        self.old, self.new, self.other, self.cls = Old, New, Other, Made
        self.obj = torch.ones(2).as_subclass(Made) if root is torch.Tensor else Made()
        self.function = lambda x: run(x, self)


def handled(x, family):
    try:
        raise family.cls("ill")
    except family.new:
        return x + 1
    except family.old:
        return x + 2


def matched(x, family):
    match family.obj:
        case family.new():
            return x + 1
        case family.old():
            return x + 2


def _attribute(x, family):
    return x * family.cls.step


def _super(x, family):
    return x * family.obj.method()


def _is_new(x, family):
    return x + isinstance(family.obj, family.new)


def _is_old(x, family):
    return x + isinstance(family.obj, family.old)


def _is_one_of(x, family):
    return x + isinstance(family.obj, (int, family.new))


def _is_subclass(x, family):
    return x + issubclass(family.cls, family.new)


BY_BASES = [_attribute, _super, _is_new, _is_old, _is_one_of, _is_subclass, matched]


@pytest.mark.parametrize(
    ("run", "root"),
    [(handled, ValueError), *((run, root) for run in BY_BASES for root in (object, torch.nn.Module, torch.Tensor))],
)
def test_bases_that_a_class_is_given(run, root):
    def make():
        families.append(Family(run, root))
        return families[-1].function

    families = []
    pair = Pair(make)
    pair.call(X)
    pair.call(X, captures=False)
    for bases in ("new",), ("other", "old"), ("other", "new"), ("new", "other"):
        for family in families:
            family.cls.__bases__ = tuple(getattr(family, name) for name in bases)
        pair.call(X)
    pair.expect(graphs=ANY, breaks=0)


@pytest.mark.parametrize(
    "run", [lambda x, obj, base: x + isinstance(obj, base), lambda x, obj, base: x + issubclass(type(obj), base)]
)
@pytest.mark.parametrize("which", ["own with own", "own with Python's", "Python's with own"])
def test_a_class_that_is_registered_between_calls(run, which):
    def make():
        base = Mapping if which == "own with Python's" else abc.ABCMeta("Base", (), {"__module__": __name__})
        obj = 3 if which == "Python's with own" else type("Own", (), {})()
        registrations.append(lambda: base.register(type(obj)))
        return lambda x: run(x, obj, base)

    registrations = []
    pair = Pair(make)
    pair.call(X, captures=True)
    pair.call(X, captures=False)
    for register in registrations:
        register()
    pair.call(X, captures=True)
    pair.call(X, captures=False)
