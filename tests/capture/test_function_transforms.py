"""torch.func's transforms in captured code are nodes of one graph."""
import warnings

import pytest
import torch

from support import Pair, check, check_state

X, W = torch.rand(4, 3), torch.rand(3)


def batched(x, w):
    return torch.vmap(lambda row: (row * w).sum().exp())(x)


def over_columns(x, w):
    return torch.vmap(
        lambda column, scale: {"a": column * scale, "b": (column.sum(), scale)}, in_dims=(1, 0), out_dims=0
    )(x, w)


def shared(x, w):
    return torch.func.vmap(torch.dot, (0, None))(x, w)


def nested(x, w):
    return torch.vmap(torch.vmap(lambda a, b: a * b + w.sum(), in_dims=(0, None)), in_dims=(None, 0))(w, x)


def gradient(x, w):
    return torch.func.grad(lambda v: (v.sin() * w).sum())(x)


def several(x, w):
    grads, value = torch.func.grad_and_value(lambda a, b, n: (a @ b).pow(n).sum(), argnums=(0, 1))(x, w, 2)
    return grads, value, torch.func.grad(lambda a: ((a * w).sum(), a * 2), has_aux=True)(x)


def given_by_name(x, w):
    def weighted(row, *, bias=0.0, scales, power=1):
        return ((row * scales["w"]).pow(power) + scales["shift"] * bias).sum()

    scales = {"shift": w.sum(), "w": w}
    return (
        torch.vmap(weighted)(x, scales=scales, power=2),
        torch.vmap(weighted, in_dims=1, chunk_size=2)(x.T, power=3, scales=scales, bias=w),
        torch.func.grad(weighted)(x, bias=2.0, scales={"w": x.sin(), "shift": w}),
        torch.func.grad_and_value(weighted)(w, scales=scales),
        torch.vmap(lambda row, other: torch.func.grad(weighted)(row, scales={"w": other, "shift": w}))(x, other=w),
    )


def per_sample(x, w):
    def loss(weights, row):
        return (weights["w"] * row).sum().square()

    return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))({"w": w}, x)


def jacobians(x, w):
    def f(v):
        return v.sin() * w.sum()

    return torch.func.jacrev(f)(w), torch.func.jacfwd(f)(w), torch.func.hessian(lambda v: (v**3).sum())(w)


def forward_mode(x, w):
    def f(a, b):
        return {"out": a.sin() * b, "sums": (a.sum(), b)}, a + 1

    plain = torch.func.jvp(lambda a: a.exp() * w.sum(), (x,), (x * 2,))
    return (
        plain,
        torch.func.jvp(f, (x, w), (torch.ones_like(x), w * 3), has_aux=True),
        torch.func.jvp(torch.sin, primals=(w,), tangents=(w,), strict=True),
    )


def forward_over_reverse(x, w):
    return torch.func.jvp(torch.func.grad(lambda v: (v**3).sum()), (w,), (torch.ones_like(w),))


def counted_from_the_end(x, w):
    def f(a, b):
        return (a * b * b).sum(0)

    return torch.func.jacrev(f, argnums=-1)(x, w), torch.func.grad(lambda a, b: f(a, b).sum(), (0, -1))(x, w)


def structured_tangents(x, w):
    primals, tangents = ({"a": x, "b": [w]}, w), ({"a": x * 2, "b": [w + 1]}, w * 3)
    return torch.func.jvp(lambda parts, scale: {"out": parts["a"] * parts["b"][0] * scale}, primals, tangents)


@pytest.mark.parametrize(
    "fn",
    [
        batched, over_columns, shared, nested, gradient, several, given_by_name, per_sample, jacobians, forward_mode,
        forward_over_reverse, counted_from_the_end, structured_tangents,
    ],
)
def test_one_graph(fn):
    check(fn, X, W, fullgraph=True, changed=[(X * 2, W + 1)])


def test_gradients_flow_through():
    def fn(x, w):
        return batched(x * 2, w).sum()

    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    pair = check(fn, x, w, fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(pair.compiled(x, w), (x, w)), torch.autograd.grad(fn(x, w), (x, w)))


def test_effects_happen_once():
    def make():
        seen = []

        def fn(x):
            def inner(row):
                seen.append(len(seen))
                return row * 2

            return torch.vmap(inner)(x), len(seen)

        return fn, seen

    check_state(make, (X,), (X,))


def test_a_tensor_that_leaves_by_another_way():
    def fn(x):
        kept = []
        y = torch.func.grad(lambda v: (kept.append(v * 2), v.sum())[1])(x)
        return y, kept[0].shape

    check(fn, X, graphs=None, breaks=None)

    def used(x):
        kept = []
        y = torch.vmap(lambda v: (kept.append(1), v * 2)[1])(x)
        return y + len(kept)

    check(used, X)


def test_errors_are_torchs():
    check(lambda x, w: torch.vmap(torch.dot)(x, w), X, W, raises=ValueError, traceback=False)
    check(lambda x: torch.vmap(lambda r: r + torch.rand(3))(x), X, raises=RuntimeError, traceback=False)
    check(lambda x: torch.func.grad(lambda v: v * 2)(x), X, raises=RuntimeError, traceback=False)
    check(lambda x: torch.func.jacrev(lambda v, n: v * n)(x, n=2), X, raises=TypeError, traceback=False)
    check(lambda x: torch.func.grad(lambda v: v.sum())(v=x), X, raises=RuntimeError, traceback=False)


@pytest.mark.parametrize("transform", [torch.vmap, torch.func.grad, torch.func.jacfwd])
@pytest.mark.parametrize("wanted", [True, False])
def test_asking_for_gradients_inside_of_a_transform_is_refused_by_torch(transform, wanted):
    def of_a_result(row):
        made = row * 2
        made.requires_grad_(wanted)
        return (row * 2).sum()

    def of_the_argument(row):
        return row.requires_grad_(wanted).sum()

    def fn(x, function):
        y = x + 1
        try:
            return y, transform(function)(x)
        except RuntimeError:
            return y, "refused"

    for function in (of_a_result, of_the_argument):
        check(fn, X[0], function, graphs=None, breaks=None)


def test_a_transformed_function_that_is_returned():
    def fn(x):
        return x + 1, torch.vmap(torch.sin)

    import framejit

    assert torch.equal(framejit.optimize(fn, backend="eager")(X)[1](X), X.sin())


@pytest.mark.parametrize("backend", ["fuse", "inductor"])
def test_other_backends(backend):
    import framejit

    fast = framejit.optimize(lambda x, w: batched(x, w) * 2 + 1, backend=backend)
    torch.testing.assert_close(fast(X, W), batched(X, W) * 2 + 1)


TANGENTS = {
    "of another shape": lambda x: (x[0],),
    "two": lambda x: (x, x),
    "no tuple": lambda x: x,
    "of another dtype": lambda x: (x.to(torch.float64),),
    "none": lambda x: (),
    "a list": lambda x: [x],
    "in another structure": lambda x: ((x,),),
}


@pytest.mark.parametrize("tangents", TANGENTS.values(), ids=TANGENTS)
def test_tangents_that_do_not_fit(tangents):
    def fn(x):
        y = x + 1
        try:
            return y, torch.func.jvp(torch.sin, (x,), tangents(x))
        except (RuntimeError, AssertionError, ValueError, TypeError) as e:
            return y, type(e)

    check_state(lambda: fn, (X,), (X,), graphs=None, breaks=None)


def pulled_back(x, w):
    value, back = torch.func.vjp(lambda a, b: (a.sin() * b, {"sum": b.sum()}), x, w)
    ones = torch.ones_like(x)
    return value, back((ones, {"sum": w.sum()})), back((x, {"sum": w.prod()}))


def pulled_back_with_more(x, w):
    value, back, aux = torch.func.vjp(lambda a: (a * w, (a + 1, w)), x, has_aux=True)
    return value, back(value), aux


def rows_of_a_jacobian(x, w):
    value, back = torch.func.vjp(lambda a: (a * w).sum(-1), x)
    return torch.vmap(back)(torch.eye(4)), torch.vmap(lambda a: torch.func.vjp(torch.sin, a)[1](a))(x), value


def written_between(x, w):
    y = x * 2
    _, back = torch.func.vjp(lambda a: a * w, y)
    w.add_(1)
    return back(torch.ones_like(y))


def linear(x, w):
    value, push = torch.func.linearize(lambda a: a.sin() * w, x)
    return value, push(x), push(x * 2)


@pytest.mark.parametrize("fn", [pulled_back, pulled_back_with_more, rows_of_a_jacobian, linear])
def test_transforms_that_give_functions_are_in_one_graph(fn):
    check(fn, X, W, fullgraph=True, changed=[(X * 2, W + 1)])


def test_what_vjp_kept_was_written_to_since():
    check(written_between, X, W)


def test_gradients_through_what_vjp_gave():
    def fn(x, w):
        return torch.func.vjp(lambda a: a.sin() * w, x)[1](x)[0].sum()

    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    pair = check(fn, x, w, fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(pair.compiled(x, w), (x, w)), torch.autograd.grad(fn(x, w), (x, w)))


def test_a_function_of_vjp_that_leaves_is_torchs():
    def fn(x, w):
        y = x + 1
        value, back = torch.func.vjp(lambda a: a * w, y)
        return value, back

    found = [f(X, W)[1](X) for f in (fn, Pair(lambda: fn).compiled)]
    torch.testing.assert_close(*found, rtol=0, atol=0)
    check(lambda x, w: torch.func.vjp(torch.sin, x)[1](x[0]), X, W, raises=RuntimeError, traceback=False)
    check(lambda x, w: torch.func.vjp(torch.sin, x)[1](x, x), X, W, raises=Exception, traceback=False)


def old_transforms(x, w):
    import functorch

    rows = functorch.vmap(functorch.grad(lambda row, scale: (row * scale).square().sum()), (0, None))(x, w)
    value, back = functorch.vjp(torch.sin, x)
    pushed = functorch.jvp(torch.exp, (x,), (x * 2,))
    return rows, value, back(x), pushed, functorch.jacrev(torch.cos)(w), functorch.hessian(lambda v: (v**3).sum())(w)


@pytest.mark.filterwarnings("ignore")
def test_functorchs_own_names_of_them():
    check(old_transforms, X, W, fullgraph=True, changed=[(X * 2, W + 1)])


@pytest.mark.parametrize("kind", ["always", "default", "error"])
def test_what_functorchs_names_warn_of(kind):
    def told(fn):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(kind)
            for _ in range(3):
                try:
                    torch.testing.assert_close(fn(X, W)[0], 2 * X * W**2)
                except FutureWarning:
                    caught.append(None)
        return [each and (str(each.message), each.filename, each.lineno) for each in caught]

    assert told(Pair(lambda: old_transforms).compiled) == told(old_transforms)


@pytest.mark.filterwarnings("ignore")
def test_functions_made_of_modules():
    import functorch

    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval()
    fn, weights, buffers = functorch.make_functional_with_buffers(net)
    several, stacked, states = functorch.combine_state_for_ensemble([torch.nn.Linear(3, 2) for _ in range(3)])

    def run(x, weights, stacked):
        def loss(weights, row):
            return fn(weights, buffers, row[None]).square().sum()

        return torch.vmap(torch.func.grad(loss), (None, 0))(weights, x), torch.vmap(several, (0, 0, None))(
            stacked, states, x
        )

    inputs = [tuple(weight.detach() for weight in group) for group in (weights, stacked)]
    check(run, X, *inputs, fullgraph=True)
