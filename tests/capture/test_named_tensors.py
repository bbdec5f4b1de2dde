"""Tensors whose dimensions have names, in a torch that has such: names, and errors about them, are eager's."""
import pytest
import torch

import framejit

pytestmark = [
    pytest.mark.skipif(not hasattr(torch.Tensor, "names"), reason="this torch has no named tensors"),
    pytest.mark.filterwarnings("ignore:Named tensors"),
]


def renamed_in_place(x):
    y = x.sin()
    y.rename_("a", "b")
    return y, y.exp()


def named_by_the_attribute(x):
    y = x * 2
    y.names = ["a", "b"]
    return y.sum("b"), y.names


def written(x):
    x.mul_(2)
    return x.sum("a")


def an_input_renamed(x):
    y = x.exp()
    x.rename_(None)
    y = y + x
    x.rename_("b", "c")
    return y, x.cos()


def flattened(x):
    return (x * 2).flatten(["a", "b"], "ab") + 1


def into_another(x):
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    return out, out.has_names()


def caught(x):
    y = x + 1
    try:
        return y.sum("a")
    except RuntimeError as e:
        return y, str(e)


PROGRAMS = {
    "by elements": lambda x: x.sin() + 1,
    "sums": lambda x: (x.sum("b"), x.sum(0), x.mean("b", keepdim=True)),
    "products": lambda x: (x @ x.mT, torch.relu(x.matmul(torch.ones(3, 2)))),
    "questions": lambda x: (x.names, x.has_names(), (x * 2).names, x.sin()),
    "branches": lambda x: x + 1 if x.has_names() else x - 1,
    "like it": lambda x: (torch.zeros_like(x), x.new_ones(2), x.clone(), x.detach()),
    "made": lambda x: torch.ones(2, 3, names=("a", "b")) + x,
    "made and indexed": lambda x: torch.zeros(2, 3, names=("a", "b")).select("a", 0) + x.sum(0),
    "drawn": lambda x: torch.rand(2, 3, names=("a", "b")) + x,
    "renamed": lambda x: x.rename("a", "b").sum("a"),
    "without names": lambda x: x.rename(None).sin(),
    "refined": lambda x: (x.refine_names("a", "b") * 2).transpose("a", "b"),
    "aligned": lambda x: x.rename("a", "b").align_to("b", "a").sin(),
    "unflattened": lambda x: x.rename("a", "b").unflatten("b", (("c", 3), ("d", 1))) + 1,
    "softmax": lambda x: x.softmax("b") * 2,
    "sorted": lambda x: x.exp().sort("b"),
    "renamed in place": renamed_in_place,
    "named by the attribute": named_by_the_attribute,
    "written": written,
    "an input renamed": an_input_renamed,
    "flattened": flattened,
    "into another": into_another,
    "caught": caught,
}


def outcome(fn, *args):
    torch.manual_seed(0)
    try:
        found = fn(*args)
    except Exception as e:
        return type(e), str(e)
    found = found if isinstance(found, tuple) else (found,)
    return [
        (each.names, each.shape, each.rename(None).tolist()) if isinstance(each, torch.Tensor) else each
        for each in (*found, *args)
    ]


def inputs():
    """Turn about with and without names."""
    for names in (None, ("a", "b"), None, ("a", "b"), ("a", "c"), ("a", None)):
        yield torch.arange(6.0).view(2, 3).rename(*names) if names else torch.arange(6.0).view(2, 3)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_names(name, backend):
    fn = PROGRAMS[name]
    compiled = framejit.optimize(fn, backend=backend)
    for mine, theirs in zip(inputs(), inputs()):
        assert outcome(compiled, mine) == outcome(fn, theirs)


def test_gradients_of_named_tensors():
    compiled = framejit.optimize(lambda x: (x.sin() * 2).sum("b"))
    for names in (("a", "b"), ("b", "a"), ("a", "b")):
        found = []
        for fn in (lambda x: (x.sin() * 2).sum("b"), compiled):
            x = torch.ones(2, 3).rename(*names).requires_grad_()
            y = fn(x)
            y.rename(None).sum().backward()
            found.append((y.names, x.grad.names, x.grad.rename(None).tolist()))
        assert found[0] == found[1]


def test_views_of_named_tensors():
    fn = lambda x: (x.mul_(2), x._base is None)  # noqa: E731
    compiled = framejit.optimize(fn)
    for _ in range(2):
        found = []
        for each in (fn, compiled):
            base = torch.ones(2, 3, names=("a", "b"))
            made, is_base = each(base.rename(None))
            found.append((made.tolist(), made.names, is_base, base.rename(None).tolist(), base._version))
        assert found[0] == found[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_names_within_a_backward(name):
    """Autograd's engine runs nodes as if no tensor had names."""
    fn = PROGRAMS[name]
    compiled = framejit.optimize(fn)

    def within(called, make):
        found = []
        x = torch.ones(1, requires_grad=True)
        x.register_hook(lambda gradient: found.append(outcome(called, make())))
        (x * 2).sum().backward()
        return found

    for number in range(4):
        assert within(compiled, lambda n=number: [*inputs()][n]) == within(fn, lambda n=number: [*inputs()][n])
        assert outcome(compiled, [*inputs()][number]) == outcome(fn, [*inputs()][number])
