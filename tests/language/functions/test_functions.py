"""Decorators, recursion, walrus, lambdas, function attributes, global state read and nested definitions."""
import pytest
import torch

from support import ANY, Pair, check, check_state, world

X = torch.tensor([1.0, 2.0])
SCALE = 3.0
TABLE = {"k": 2, "fns": [torch.sin]}


def test_reads_module_globals():
    check(lambda x: TABLE["fns"][0](x) * SCALE + TABLE["k"], X)


def test_recursion_on_a_tree():
    def fold(node):
        return sum((fold(child) for child in node[1:]), node[0])

    check(fold, [X, [X * 2, [X + 1]], [X]])


def test_mutual_recursion():
    def even(x, n):
        return x if n == 0 else odd(x * 2, n - 1)

    def odd(x, n):
        return even(x + 1, n - 1)

    check(even, X, 4)


def test_walrus():
    def fn(x):
        if (n := x.shape[0]) > 1:
            x = x * n
        return x + (m := 3) + m

    check(fn, X)


def test_decorator_with_arguments_and_class_decorator():
    def times(n):
        def wrap(f):
            def inner(*a):
                out = f(*a)
                for _ in range(n - 1):
                    out = f(out)
                return out

            return inner

        return wrap

    class Counted:
        def __init__(self, f):
            self.f, self.calls = f, 0

        def __call__(self, x):
            self.calls += 1
            return self.f(x)

    @times(3)
    def plus(x):
        return x + 1

    check(lambda x, c: c(plus(x)), X, Counted(torch.sin))


def test_function_attributes():
    def fn(x):
        return x + fn.bias

    fn.bias = 4
    check(fn, X)


def test_function_made_inside_with_annotations_and_defaults():
    def fn(x):
        def inner(t: torch.Tensor, k: int = 2, *, j=3) -> torch.Tensor:
            "doc"
            return t * k + j

        return inner(x), inner.__name__, inner.__doc__, inner.__defaults__

    check(fn, X)


def test_global_counter_changes_between_calls():
    def make():
        ns = world("""
            step = 0
            def fn(x):
                global step
                step = step + 1
                return x * step
        """)
        return ns["fn"], lambda: ns["step"]

    check_state(make, (X,), (X,), (X,))


def test_global_container_is_mutated():
    def make():
        ns = world("""
            history, totals = [], {}
            def fn(x):
                y = x * 2
                history.append(y)
                totals["n"] = totals.get("n", 0) + 1
                return y + len(history)
        """)
        return ns["fn"], lambda: (ns["history"], ns["totals"])

    check_state(make, (X,), (X,), graphs=ANY)


def test_builtin_shadowed_by_a_global():
    def make():
        ns = world("""
            def len(v):
                return 100
            def fn(x):
                return x + len(x)
        """)
        return ns["fn"], None

    check_state(make, (X,), (X,), graphs=1)


def test_import_inside_the_function():
    def fn(x):
        import math

        from torch.nn import functional as F

        return F.relu(x) * math.pi

    check(fn, X)


def test_undefined_name_raises_nameerror():
    check(lambda x: x + not_defined_anywhere, X, raises=NameError, calls=1)  # noqa: F821


def test_conditional_expression_on_none_default():
    def fn(x, mask=None, bias=None):
        if mask is not None:
            x = x * mask
        return x if bias is None else x + bias

    check(fn, X, None, X, changed=[(X,), (X, X), (X, X, X)])


def test_lambda_in_a_container_argument():
    check(lambda x, fs: [f(x) for f in fs], X, [lambda t: t + 1, lambda t: t * 2])


def test_returning_none_and_nothing():
    def fn(x, out):
        out.append(x + 1)

    check(fn, X, [])


def test_many_locals_and_a_long_body():
    source = (
        "def fn(x):\n"
        + "".join(f"    v{i} = x + {i}\n" for i in range(300))
        + "    return "
        + " + ".join(f"v{i}" for i in range(300))
    )
    check(world(source)["fn"], X, ops=599)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("__doc__", ("one", "two", 42, None, "one")),
        ("__name__", ("one", "two")),
        ("__qualname__", ("one", "a.two")),
        ("__module__", ("here", "there", None, 5)),
    ],
)
@pytest.mark.parametrize("bound", [False, True])
def test_what_a_function_says_of_itself_may_change(name, values, bound):
    class Owner:
        def method(self):
            "Something."

    def ask(x):
        y = x + 1
        return y, getattr(told, name), y * 2

    told = Owner().method if bound else Owner.method
    pair = Pair(lambda: ask)
    for value in values:
        setattr(Owner.method, name, value)
        pair.call(torch.ones(2))
        pair.call(torch.ones(2), captures=False)
    pair.expect(breaks=0)


def test_a_text_that_is_no_docstring():
    def make(x):
        def plain():
            "Something."

        def formatted():
            f"Nothing."  # noqa: B021, F541

        def returns():
            return "nothing"

        return x + 1, plain.__doc__, formatted.__doc__, returns.__doc__

    check(make, X)
