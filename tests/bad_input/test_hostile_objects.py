"""Objects whose special methods raise, lie or recurse: plain Python's behaviour is kept, and framejit never crashes."""
import pytest
import torch

import framejit

from support import check

X = torch.tensor([1.0, 2.0])
FREE = {"graphs": range(0, 6), "breaks": range(0, 6), "ops": None}


def test_equality_that_raises():
    class Bad:
        def __eq__(self, other):
            raise RuntimeError("do not compare me")

        __hash__ = object.__hash__

    check(lambda x, b: (x + 1, b is None, [b][0] is b), X, Bad(), **FREE)
    check(lambda x, b: (x + 1, b == 1), X, Bad(), raises=RuntimeError)


def test_truth_that_raises_or_is_no_bool():
    class Raises:
        def __bool__(self):
            raise ValueError("no truth")

    class Wrong:
        def __bool__(self):
            return 5

    check(lambda x, b: x + 1 if b else x, X, Raises(), raises=ValueError)
    check(lambda x, b: x + 1 if b else x, X, Wrong(), raises=TypeError)


def test_length_that_is_negative():
    class Bad:
        def __len__(self):
            return -1

    check(lambda x, b: x + len(b), X, Bad(), raises=ValueError)


def test_getattr_that_raises_something_else():
    class Bad:
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            raise KeyError(name)

    check(lambda x, b: (x + 1, b.anything), X, Bad(), raises=KeyError)
    check(lambda x, b: (x + 1, hasattr(b, "anything")), X, Bad(), raises=KeyError)


class Bottomless:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self, name + "x")


def down(x):
    return down(x + 1)


@pytest.mark.parametrize("fn", [lambda x: (x + 1, Bottomless().a), down], ids=["in __getattr__", "of the function"])
def test_endless_recursion_of_the_user(fn):
    for _ in range(2):
        with pytest.raises(RecursionError):  # its message depends on which call was one too deep
            framejit.optimize(fn, backend="eager")(X)


def test_class_attribute_that_lies():
    class Liar:
        @property
        def __class__(self):
            return int

    check(lambda x, b: (x + 1, isinstance(b, int), type(b).__name__), X, Liar(), **FREE)


def test_metaclass_with_its_own_instance_check():
    class Meta(type):
        def __instancecheck__(cls, obj):
            return obj == 5

    class Five(metaclass=Meta):
        pass

    check(lambda x, n: x + 1 if isinstance(n, Five) else x - 1, X, 5, changed=[(X, 6)], **FREE)


def test_property_that_raises():
    class Bad:
        @property
        def p(self):
            raise AttributeError("inside the property")

    check(lambda x, b: (x + 1, getattr(b, "p", "default")), X, Bad(), **FREE)
    check(lambda x, b: (x + 1, b.p), X, Bad(), raises=AttributeError)


def test_iterator_that_raises_midway():
    class Bad:
        def __iter__(self):
            yield 1
            raise OSError("lost")

    check(lambda x, b: [x + i for i in b], X, Bad(), raises=OSError)


def test_container_subclasses_that_override_access():
    class D(dict):
        def __getitem__(self, key):
            return 100

        def get(self, key, default=None):
            return 200

    class L(list):
        def __len__(self):
            return 7

        def __iter__(self):
            return iter([1, 2])

    check(lambda x, d: x + d["k"] + d.get("k"), X, D(k=1), **FREE)
    check(lambda x, s: (x + len(s), [v for v in s]), X, L([9]), **FREE)


def test_hash_that_changes_or_raises():
    class Bad:
        def __hash__(self):
            raise TypeError("no hash today")

    check(lambda x, b: (x + 1, {b: 1}), X, Bad(), raises=TypeError)


def test_repr_that_raises_does_not_matter():
    class Bad:
        k = 2

        def __repr__(self):
            raise RuntimeError("no repr")

    check(lambda x, b: x * b.k, X, Bad(), changed=[(X * 2, Bad())])


def test_index_float_and_int_conversions_that_raise():
    class Bad:
        def __index__(self):
            raise ZeroDivisionError("index")

    check(lambda x, b: (x + 1, [1, 2][b]), X, Bad(), raises=ZeroDivisionError)


def test_weak_references_and_proxies():
    import weakref

    class T:
        k = 3

    target = T()
    ref = weakref.ref(target)
    proxy = weakref.proxy(target)
    check(lambda x: (x * ref().k, x + proxy.k), X, **FREE)


def test_locks_files_and_other_c_objects():
    import threading

    lock = threading.Lock()

    def fn(x):
        with lock:
            y = x + 1
        return y * 2, lock.locked()

    check(fn, X, **FREE)


def test_subclass_whose_torch_function_raises():
    class Angry(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.Tensor.sin:
                raise PermissionError("not this one")
            return super().__torch_function__(func, types, args, kwargs or {})

        def __deepcopy__(self, memo):
            return self.as_subclass(torch.Tensor).clone().as_subclass(Angry)

    check(lambda t: t.sin(), X.as_subclass(Angry), raises=PermissionError)


def test_function_without_source_and_with_odd_names():
    namespace = {}
    exec(compile("def fn(x, λ=2):\n  return x * λ", "<generated>", "exec"), namespace)
    check(namespace["fn"], X)


def test_very_many_parameters():
    names = [f"a{i}" for i in range(300)]
    namespace = {}
    exec(f"def fn({', '.join(names)}):\n  return {' + '.join(names)}", namespace)
    check(namespace["fn"], *[X] * 300)


def test_deeply_nested_data():
    deep = [X]
    for _ in range(50):
        deep = [deep]

    def fn(d):
        while isinstance(d, list):
            d = d[0]
        return d + 1

    check(fn, deep)


def test_base_exceptions_pass_through():
    import pytest

    import framejit

    def fn(x, kind):
        y = x + 1
        raise kind(y.shape[0])

    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(kind):
            framejit.optimize(fn, backend="eager")(X, kind)
