"""Methods that are optimized one by one do what the functions would, whoever calls them: Python, or captured code."""
import torch

import framejit

from support import CountingBackend, check_state

X = torch.tensor([1.0, 2.0])


def made(decorate):
    """A class all methods of which are decorated, special ones and those that a class calls by itself among them."""

    class Scaler:
        made = 0

        @decorate
        def __new__(cls, *args):
            cls.made += 1
            return object.__new__(cls)

        @decorate
        def __init__(self, by):
            self.by = by

        @decorate
        def __init_subclass__(cls, **options):
            cls.options = options

        @decorate
        def __class_getitem__(cls, key):
            return cls.__name__, key

        @decorate
        def scale(self, x):
            return self.shift(x) * self.by

        @decorate
        def shift(self, x, n=1):
            return x + n

        @decorate
        def __add__(self, x):
            return x + self.by

        @decorate
        def __len__(self):
            return self.by

        @decorate
        def __getitem__(self, i):
            return X * i

        @decorate
        def __contains__(self, x):
            return x == self.by

        @decorate
        def __bool__(self):
            return self.by > 1

        @decorate
        def __eq__(self, other):
            return type(other) is type(self) and other.by == self.by

        @decorate
        def __hash__(self):
            return self.by

        @decorate
        def __repr__(self):
            return f"by {self.by}"

        @decorate
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)

        @decorate
        def __getattr__(self, name):
            if name == "twice":
                return self.by * 2
            raise AttributeError(name)

    return Scaler


def use(s, x):
    s.by += 1
    return (
        s.scale(x), s + x, len(s), s[2], 3 in s, bool(s), s == s, {s: 1}[s], repr(s), s.twice, hasattr(s, "thrice"),
        type(s)(5).by,
    )


def test_captured_code_looks_through_optimized_methods():
    def fn():
        scaler = made(framejit.optimize(backend="eager"))(2)
        return lambda x: use(scaler, x), lambda: (scaler.by, scaler.made)

    check_state(fn, (X,), (X,), (X + 1,))


def test_python_finds_the_methods_it_would():
    plain, optimized = made(lambda f: f), made(framejit.optimize(backend="eager"))
    for cls in (plain, optimized):
        sub = type("Sub", (cls,), {}, key=3)
        assert sub.options == {"key": 3} and cls[1] == ("Scaler", 1) and sub[2] == ("Sub", 2)
        assert cls(1).twice == 2 and cls(1).__new__ is cls.__new__
    for a, b in zip(use(plain(2), X), use(optimized(2), X), strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_a_finalizer_runs_when_the_last_reference_goes():
    ended = []

    class Ends:
        @framejit.optimize(backend="eager")
        def __del__(self):
            ended.append(self)
            self.x = None

    def fn(x):
        ends = Ends()
        ends.x = x + 1
        y = ends.x * 2
        del ends
        return y, len(ended)

    fast = framejit.optimize(fn, backend="eager")
    assert [fast(X)[1], fast(X)[1]] == [1, 2]


def test_optimized_functions_and_methods_stay_themselves():
    class Holder:
        @framejit.optimize(backend="eager")
        def method(self, x):
            return x + 1

    @framejit.optimize(backend="eager")
    def function(x):
        return x * 2

    kept = {}
    holder = Holder()

    def fn(x):
        kept["f"] = function
        return function(x), function, holder.method, [holder.method(x)], function is kept["f"]

    backend = CountingBackend()
    fast = framejit.optimize(fn, backend=backend)
    for _ in range(2):
        y, f, method, _, same = fast(X)
        assert f is function and kept["f"] is function and method == holder.method and same
        assert torch.equal(y, X * 2)
    assert backend.runs == 2
