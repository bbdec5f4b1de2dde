"""What raises raises at once, and at the place where plain Python raises it."""

import abc

import pytest
import torch

from support import check_state

X = torch.ones(3)


def target():
    pass


class Slotted:
    __slots__ = ("a",)


class Plain:
    kept = 1


def closure_is_read_only(x):
    target.__closure__ = 5


def no_such_attribute(x):
    del target.unknown


def no_such_class_attribute(x):
    del Plain.unknown


def class_of_c(x):
    int.extra = 1


def no_slot(x):
    Slotted().b = 1


def attribute_of_object(x):
    object().a = 1


def name_no_string(x):
    setattr(Plain(), 1, 2)


def method_of_object_on_a_number(x):
    object.__setattr__(5, "a", 1)


def excess_argument(x):
    Plain(1)


def excess_argument_again(x):
    Plain().__init__(5)


class WithInit:
    def __init__(self, a):
        pass


class WithNew:
    def __new__(cls, a):
        return object.__new__(cls, a)


def excess_to_object_init(x):
    object.__init__(WithInit(1), 2)


def excess_to_object_new(x):
    WithNew(1)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def method(self): ...


def abstract(x):
    Abstract()


def wrong_new(x):
    object.__new__(dict)


class BadLength:
    def __len__(self):
        return "three"


class BadBool:
    def __bool__(self):
        return 3


class BadIter:
    def __iter__(self):
        return 3


class NoIter:
    __iter__ = None

    def __getitem__(self, i):
        raise IndexError


class NoContains:
    __contains__ = None

    def __iter__(self):
        return iter([1])


def bad_length(x):
    len(BadLength())


def bad_bool(x):
    if BadBool():
        pass


def bad_iter(x):
    for _ in BadIter():
        pass


def no_iter(x):
    list(NoIter())


def no_contains(x):
    1 in NoContains()  # noqa: B015


def power(x):
    Plain() ** 2


def super_of_another(x):
    super(Slotted, Plain()).a  # noqa: B018


@pytest.mark.parametrize(
    "action",
    [
        closure_is_read_only,
        no_such_attribute,
        no_such_class_attribute,
        class_of_c,
        no_slot,
        attribute_of_object,
        name_no_string,
        method_of_object_on_a_number,
        excess_argument,
        excess_argument_again,
        excess_to_object_init,
        excess_to_object_new,
        abstract,
        wrong_new,
        bad_length,
        bad_bool,
        bad_iter,
        no_iter,
        no_contains,
        power,
        super_of_another,
    ],
)
def test_errors_come_where_eager_has_them(action):
    def f(x):
        y = x + 1
        try:
            action(x)
        except Exception as e:
            return y, type(e), str(e)
        return y

    check_state(lambda: f, (X,), (X,), graphs=None, breaks=None)


class OneSlot:
    __slots__ = ("a", "b")


def message(action, *args):
    try:
        action(*args)
    except AttributeError as e:
        return e.args
    return None


def test_what_is_missing_where_it_is_deleted():
    """Of slots CPython says no more than the name."""

    def fn(x, existing):
        made, plain = OneSlot(), Plain()
        existing.a = x
        del existing.a
        plain.a = 1
        del plain.a
        return x + 1, [
            message(delattr, o, name)
            for o, name in ((existing, "a"), (existing, "b"), (made, "a"), (plain, "a"), (plain, "b"), (plain, "c"))
        ] + [message(getattr, o, "a") for o in (existing, made, plain)]

    check_state(lambda: fn, (X, OneSlot()), (X, OneSlot()))
