"""List, dict, set and generator comprehensions."""
import torch

from support import check

X = torch.arange(6.0).reshape(3, 2)


def test_list_of_tensors():
    check(lambda x: [row * i for i, row in enumerate(x)], X)


def test_condition_and_nesting():
    check(lambda x: [x[i, j] + i * j for i in range(3) if i != 1 for j in range(2) if j <= i], X)


def test_dict_and_set():
    check(lambda x: ({f"k{i}": x + i for i in range(3)}, {i % 2 for i in range(5)}), X)


def test_generator_expression_consumed_by_sum():
    check(lambda x: sum(row * 2 for row in x), X)


def test_captures_enclosing_variables():
    def fn(x):
        scale = x.shape[0]
        return [x * scale + k for k in range(scale)]

    check(fn, X)


def test_does_not_leak_its_variable():
    def fn(x):
        i = "outer"
        ys = [x + i for i in range(2)]
        return ys, i

    check(fn, X)


def test_late_binding_of_closures_made_inside():
    check(lambda x: [f(x) for f in [lambda t: t + i for i in range(3)]], X)  # noqa: B023 late binding is the point


def test_walrus_inside_leaks_to_the_function():
    def fn(x):
        ys = [(last := x * i) for i in range(3)]
        return ys, last

    check(fn, X)


def test_nested_comprehension():
    check(lambda x: torch.stack([torch.stack([x[i, j] for i in range(3)]) for j in range(2)]), X)


def test_set_comprehension_over_strings_in_a_class():
    class Names:
        names = ["a", "b", "a"]

        def forward(self, x):
            return x + len({n for n in self.names}), {n: len(n) for n in self.names}

    check(Names().forward, X)


def test_exception_inside_propagates():
    check(lambda x, ds: [x / 1, [10 // d for d in ds]], X, [1, 2], changed=[(X, [1, 0])])
