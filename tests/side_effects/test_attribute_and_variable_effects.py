"""Attributes, class attributes, cells, globals and function attributes written by compiled code."""
import torch
from torch import nn

from support import check, check_state, world

X = torch.tensor([1.0, 2.0])


class Box:
    shared = 0

    def __init__(self, **kw):
        self.__dict__.update(kw)


def test_attribute_written_read_and_deleted():
    def fn(x, b):
        b.t = x + 1
        b.n += 1
        b.t = b.t * b.n
        del b.gone

    check(fn, X, Box(n=1, gone=2))


def test_attribute_order_is_kept():
    def fn(x, b):
        b.second = x + 1
        b.first = 1
        b.zero = None

    check(fn, X, Box(first=0))


def test_linked_objects():
    def fn(x, b):
        b.child = Box(parent=b, t=x + 1)
        b.child.child = b
        return b.child

    check(fn, X, Box())


def test_attribute_of_an_attribute():
    def fn(x, b):
        b.inner.t = x * 2
        b.inner, old = Box(), b.inner
        return old

    check(fn, X, Box(inner=Box()))


def test_class_attribute():
    def make():
        class Local:
            count = 0

        def fn(x):
            Local.count += 1
            Local.latest = x * Local.count
            return Local.latest + 1

        return fn, lambda: (Local.count, Local.latest)

    check_state(make, (X,), (X,), breaks=range(0, 3))


def test_instance_attribute_shadows_the_class():
    def fn(x, b):
        before = b.shared
        b.shared = 5
        return x + before + b.shared

    check(fn, X, Box())


def test_property_setter_with_a_side_effect():
    class Meter:
        def __init__(self):
            self.log = []

        @property
        def value(self):
            return self.log[-1]

        @value.setter
        def value(self, v):
            self.log.append(v)

    def fn(x, m):
        m.value = x + 1
        m.value = m.value * 2
        return m.value

    check(fn, X, Meter())


def test_cells_over_several_calls():
    def make():
        total = torch.zeros(2)
        n = 0

        def fn(x):
            nonlocal total, n
            total = total + x
            n += 1
            return total / n

        return fn, lambda: (total, n)

    check_state(make, (X,), (X,), (X * 2,))


def test_cell_shared_with_an_eager_function():
    def make():
        k = 1

        def fn(x):
            nonlocal k
            y = x * k
            k = k + 1
            return y

        def reader():
            return k

        return fn, lambda: reader()

    check_state(make, (X,), (X,))


def test_globals_written_deleted_and_created():
    def make():
        ns = world("""
            a, b = 1, 2
            def fn(x):
                global a, b, c
                a = x + a
                c = a * b
                del b
                return c
        """)

        def fn(x):
            ns["a"], ns["b"] = 1, 2
            return ns["fn"](x)

        return fn, lambda: {k: ns.get(k) for k in "abc"}

    check_state(make, (X,), (X,), breaks=range(0, 3))


def test_global_of_another_module_written_by_an_inlined_function():
    def make():
        other = world("""
            calls = []
            last = None
            def note(x):
                global last
                last = x * 2
                calls.append(1)
                return last
        """)
        note = other["note"]

        def fn(x):
            return note(x + 1) + 1

        return fn, lambda: (other["last"], other["calls"])

    check_state(make, (X,), (X,))


def test_function_attribute():
    def make():
        def fn(x):
            fn.calls = getattr(fn, "calls", 0) + 1
            return x + fn.calls

        return fn, lambda: fn.calls

    check_state(make, (X,), (X,))


def test_module_attribute_and_buffer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("ema", torch.zeros(2))
            self.seen = []

        def forward(self, x):
            self.ema.mul_(0.5).add_(x)
            self.seen.append(x.shape[0])
            self.latest = x * 2
            return x + self.ema

    check_state(Net, (X,), (X,), graphs=range(1, 4))


def test_setattr_getattr_delattr_builtins():
    def fn(x, b, name):
        setattr(b, name, x + 1)
        setattr(b, name + "2", getattr(b, name) * 2)
        delattr(b, name)

    check(fn, X, Box(), "k", changed=[(X, Box(), "j")])


def test_object_dict_written_directly():
    def fn(x, b):
        b.__dict__["t"] = x + 1
        vars(b)["n"] = 3
        return b.t * b.n

    check(fn, X, Box(), graphs=range(1, 3), breaks=range(0, 2))


def test_slots_object():
    class Slotted:
        __slots__ = ("a", "b")

    def fn(x, s):
        s.a = x + 1
        s.b = [s.a]

    check(fn, X, Slotted())
