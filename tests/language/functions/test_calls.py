"""Argument passing: defaults, *args, **kwargs, keyword-only, positional-only, calls of calls."""
import torch

import framejit

from support import check

X = torch.tensor([1.0, 2.0])


def test_defaults_and_keywords():
    def add(x, a=1, *, b=2):
        return x + a * b

    check(lambda x: (add(x), add(x, 5), add(x, b=7), add(b=1, x=x)), X)


def test_varargs_and_kwargs_are_fresh_containers():
    def collect(*args, **kwargs):
        kwargs["new"] = 1
        return args, kwargs

    def fn(x, kw):
        return collect(x + 1, 2, **kw), kw

    check(fn, X, {"a": 1})


def test_entry_function_with_every_kind_of_parameter():
    def fn(a, /, b, c=3, *args, d, e=5, **kw):
        return a * b + c + sum(args) + d - e + kw.get("f", 0), args, kw

    check(fn, X, 2, kwargs={"d": 1})
    check(fn, X, 2, 3, 4, 5, kwargs={"d": 1, "e": 2, "f": 6})


def test_mutable_default_is_shared_between_calls():
    def fn(x):
        def push(v, acc=[]):  # noqa: B006 the sharing is the point
            acc.append(v)
            return acc

        push(x)
        return push(x + 1)

    check(fn, X)


def test_wrong_arguments_raise_the_same_typeerror():
    def two(a, b):
        return a + b

    check(lambda x: two(x + 1), X, raises=TypeError, calls=1)
    check(two, X, raises=TypeError, calls=1)
    check(two, X, X, kwargs={"c": 1}, raises=TypeError, calls=1)


def test_duplicate_keyword_raises():
    check(lambda x: dict(a=x + 1, **{"a": 2}), X, raises=TypeError, calls=1)


def test_call_result_of_a_call_and_of_a_subscript():
    def maker(k):
        return lambda t: t * k

    check(lambda x: maker(3)(x) + [torch.sin, torch.cos][1](x) + {"f": maker(2)}["f"](x), X)


def test_functions_as_arguments():
    check(lambda f, g, x: f(g(x)), torch.sin, torch.exp, X)


def test_argument_evaluation_order():
    def fn(x):
        order = []

        def note(name, value):
            order.append(name)
            return value

        y = torch.add(note("a", x), note("b", x), alpha=note("c", 2))
        return y, order

    check(fn, X)


def test_bound_method_stored_in_a_variable():
    check(lambda x: (lambda m: m(1) + m(2))(x.add), X)


def test_method_called_on_the_class():
    check(lambda x: torch.Tensor.add(x, 1) + str.upper("a").count("A"), X)


def test_inlining_through_many_levels():
    def level(x, n):
        return x if n == 0 else level(x + n, n - 1)

    check(level, X, 30, ops=30)


def test_lambda_with_defaults_and_star():
    check(lambda x: (lambda t, *a, k=2, **kw: t * k + sum(a) + len(kw))(x, 1, 2, z=1), X)


def test_locals_builtin():
    def fn(x):
        y = x + 1
        return sorted(locals()), y

    check(fn, X, graphs=range(0, 3), breaks=range(0, 3), ops=None)


def test_a_bound_method_that_leaves_twice_is_one_object():
    def fn(x):
        method, other = x.relu, x.relu
        framejit.graph_break()
        return method, other, [method], {"is": method is other, "same": method() + other()}

    for made in (fn, framejit.optimize(fn, backend="eager")):
        method, other, (again,), _ = made(X)
        assert method is again and method is not other and torch.equal(method(), X.relu())
