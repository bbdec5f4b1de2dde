"""Guards that nothing was written into a tensor: every write that torch counts is noticed, natively as by Python, in
words and by remembered proofs."""

from __future__ import annotations

import copy

import pytest
import torch

from framejit import _native as native
from framejit.guards import tensor_layout
from framejit.guards.diff import explain_miss
from framejit.guards.guard import Guard, record
from framejit.guards.lower import lower
from framejit.guards.sources import ArgSource, AttrSource, DictSource, key_source

N = native
X = ArgSource(0, "x")
LINE = ("/home/me/model.py", 12)
ACCESSES = ("direct", "attributes")
USES = 6  # enough for a proof to be worth keeping


@pytest.fixture(params=ACCESSES)
def access(request):
    before = N.tensor_access()
    N.force_tensor_access(request.param)
    yield request.param
    N.force_tensor_access(before)


def f(x):
    return None


def guards(tensor, source=X):
    content = Guard(source, N.C_VERSION, (tensor._version, tensor.data_ptr()), user_line=LINE)
    return [Guard(source, N.C_ID, tensor), Guard(source, N.C_TENSOR, tensor), content]


def miss(made, *args):
    return explain_miss([record(g) for g in made], lower(made), args, f)


def test_versions_are_read_natively_here():
    assert tensor_layout.LAYOUT["versions"]


def test_native_versions_follow_every_kind_of_tensor():
    base = torch.zeros(4, 6)
    parameter = torch.nn.Parameter(torch.zeros(3))
    tensors = [
        base, base.t(), base[1:, 2], base.detach(), parameter, parameter.detach(), torch.zeros(()), torch.zeros(0),
        torch.zeros(2, 1, 2, 1, 2, 1, 2),
    ]
    for tensor in tensors:
        with torch.no_grad():
            tensor.zero_()
        assert [N.tensor_version(t) for t in tensors] == [t._version for t in tensors]
    with torch.inference_mode():
        assert N.tensor_version(torch.zeros(2)) is None


def _view(weight):
    weight.view(-1)[:2].mul_(2)


def _optimizer(weight):
    with torch.enable_grad():
        weight.grad = torch.ones_like(weight)
        torch.optim.SGD([weight], lr=0.1).step()


def _adam(weight):
    with torch.enable_grad():
        weight.grad = torch.ones_like(weight)
        torch.optim.Adam([weight], foreach=True).step()


def _data(weight):
    weight.data = torch.ones_like(weight)


WRITES = {
    "add_": lambda w: w.add_(1),
    "copy_": lambda w: w.copy_(torch.ones(3, 4)),
    "a view": _view,
    "detach": lambda w: w.detach().add_(1),
    "an item": lambda w: w.__setitem__((0, 0), 5.0),
    "out=": lambda w: torch.ones(3, 4, out=w.detach()),
    "foreach": lambda w: torch._foreach_add_([w], 1.0),
    "an optimizer": _optimizer,
    "a foreach optimizer": _adam,
    "random": lambda w: torch.nn.init.normal_(w),
    "other data": _data,
}


@pytest.mark.parametrize("write", WRITES)
def test_writes_are_noticed(write, access):
    weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    tree = lower(guards(weight))
    assert all(tree.check((weight,), f) for _ in range(3))
    with torch.no_grad():
        weight * 2, weight.t().sum(), weight.clone().add_(1), copy.deepcopy(weight)
    assert tree.check((weight,), f)
    with torch.no_grad():
        WRITES[write](weight)
    assert not tree.check((weight,), f)


def test_swapped_tensors_are_noticed(access):
    weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    address = weight.data_ptr()
    tree = lower(guards(weight)[1:])  # swapping is refused while something refers to them weakly
    torch.utils.swap_tensors(weight, other := torch.nn.Parameter(torch.zeros(3, 4)))
    assert weight.data_ptr() != address == other.data_ptr()
    assert not tree.check((weight,), f) and tree.check((other,), f)


def test_writes_that_torch_does_not_count_are_not_noticed(access):
    """What the documentation says is not seen."""
    weight = torch.nn.Parameter(torch.zeros(3))
    tree = lower(guards(weight))
    weight.data.add_(1)
    weight.detach().numpy()[0] = 7
    assert weight.tolist() == [7.0, 1.0, 1.0] and tree.check((weight,), f)


def test_data_that_comes_back_is_the_same_again(access):
    weight = torch.nn.Parameter(torch.zeros(3))
    tree, old = lower(guards(weight)), weight.data
    weight.data = torch.ones(3)
    assert not tree.check((weight,), f)
    weight.data = old
    assert tree.check((weight,), f)
    rows = torch.zeros(2, 3)
    weight.data = rows[0]
    tree = lower(guards(weight))
    weight.data = rows[1]  # the same memory, another part of it
    assert not tree.check((weight,), f)


def test_other_values_miss(access):
    weight = torch.zeros(3)
    with torch.inference_mode():
        uncounted = torch.zeros(3)
    tree = lower(guards(weight)[2:])
    assert tree.check((weight,), f)
    assert not any(
        tree.check((value,), f) for value in (None, 3, "x", uncounted, torch.zeros(3), torch.Tensor, weight.to_sparse())
    )


def test_misses_in_words():
    weight = torch.zeros(3)
    made = guards(weight)
    assert made[2].text == "nothing was written into x (version 0)" and record(made[2]).expected == (
        0,
        weight.data_ptr(),
    )
    weight.add_(1)
    found = miss(made, weight)
    assert found.text == "something was written into 'x', whose content was taken to stay" and (
        found.expected,
        found.actual,
    ) == ("version 0", "version 1")
    assert found.source_name == "x" and found.user_line == LINE
    made = guards(weight)
    weight.data = torch.ones(3)
    assert miss(made, weight).text == "'x', whose content was taken to stay, lies in other memory than before"
    with torch.inference_mode():
        assert "counts what is written" in miss(made[2:], torch.zeros(3)).text


def test_what_the_check_takes():
    for payload, error in ((3, TypeError), ((1,), TypeError), (("a", 1), TypeError), ((1, 2, 3), TypeError)):
        with pytest.raises(error):
            N.GuardTree([(N.A_ARG, 0, [(N.C_VERSION, payload, 0)], [], 0)])
    with pytest.raises(TypeError):
        N.tensor_version(3)
    with pytest.raises(TypeError):
        N.setup_versions([])


def _module_guards(module):
    made = []
    for name, parameter in module._parameters.items():
        made += guards(parameter, key_source(key_source(DictSource(X), "_parameters"), name))
    return made


def test_remembered_proofs_see_writes():
    module = torch.nn.Module()
    for i in range(16):
        module.register_parameter(f"w{i}", torch.nn.Parameter(torch.full((2,), float(i))))
    made = [Guard(X, N.C_TYPE, torch.nn.Module), *_module_guards(module)]
    tree = lower(made)
    for _ in range(USES):
        assert tree.check((module,), f)
    assert sum(tree.memos) > 0
    with torch.no_grad():
        module.w7.add_(1)
    for _ in range(USES):
        assert not tree.check((module,), f)
    assert miss(made, module).source_name == "x.w7"
    tree = lower([made[0], *_module_guards(module)])
    for _ in range(USES):
        assert tree.check((module,), f)
    assert sum(tree.memos) > 0
    module.w3.data = torch.zeros(2)
    assert not tree.check((module,), f)
    module.w3 = torch.nn.Parameter(torch.zeros(2))
    assert not tree.check((module,), f)


def test_proofs_stay_right_when_the_way_of_reading_changes():
    module = torch.nn.Module()
    for i in range(16):
        module.register_parameter(f"w{i}", torch.nn.Parameter(torch.zeros(2)))
    tree = lower([Guard(X, N.C_TYPE, torch.nn.Module), *_module_guards(module)])
    for _ in range(USES):
        assert tree.check((module,), f)
    before = N.tensor_access()
    try:
        N.force_tensor_access("attributes")
        assert tree.check((module,), f)
        with torch.no_grad():
            module.w1.add_(1)
        assert not tree.check((module,), f)
    finally:
        N.force_tensor_access(before)
    assert not tree.check((module,), f)


def test_versions_can_be_measured_again():
    probes = tuple(torch.zeros(2) for _ in range(4))
    for writes, probe in enumerate(probes):
        for _ in range(5 * writes):
            probe.add_(1)
    try:
        assert not N.setup_versions(()) and N.tensor_version(probes[1]) is None
        tree = lower([Guard(AttrSource(X, "t"), N.C_VERSION, (5, probes[1].data_ptr()))])

        class Holder:
            t = probes[1]

        assert tree.check((Holder(),), f)
        probes[1].add_(1)
        assert not tree.check((Holder(),), f)
    finally:
        assert N.setup_versions(probes)
    assert [N.tensor_version(p) for p in probes] == [0, 6, 10, 15]
