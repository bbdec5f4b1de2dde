"""Plans with frozen weights come from the disk: no pass runs, what was computed from weights is computed of those at
hand, and every change is noticed."""

from __future__ import annotations

import os
import pathlib
import textwrap

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import framejit
from framejit import events
from framejit.backends.fuse.account.stage_counts import stages
from framejit.backends.fuse.cache import disk_cache, plan_cache
from framejit.backends.fuse.cache.kernel_record import pack, unpack

import forked
from comparison import assert_same

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def told() -> list[tuple[bool, str]]:
    return [
        (event.hit, event.reason)
        for event in events.events("cache")
        if event.what in (plan_cache.KIND, plan_cache.SYMBOLIC)
    ]


def normed(module: nn.Module) -> nn.Module:
    """The module in eval mode, its batch norms with statistics of their own."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.3, 2)
            nn.init.normal_(part.weight)
    return module.eval()


class Scaled(nn.Module):
    """Something that is computed from a weight and numbers of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = (self.weight * torch.tensor([1.0, 2.0, 3.0])).softmax(0).split(2)
        return F.linear(x, torch.cat([second, first])) + self.weight.sum(1).mean()


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.linear(x).relu()


def norms() -> nn.Module:
    return normed(
        nn.Sequential(
            nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 6, 2, groups=2), nn.BatchNorm2d(6)
        )
    )


MODULES = {
    "norms": (norms, (2, 3, 6, 6)),
    "parametrised": (lambda: parametrizations.weight_norm(nn.Linear(3, 4)), (5, 3)),
    "with numbers of the program": (Scaled, (5, 3)),
    "under autocast": (Autocast, (5, 3)),
    "packed weights": (lambda: nn.Sequential(nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 8, 1)), (2, 32, 16, 16)),
    "packed weights of rows": (lambda: nn.Sequential(nn.Linear(160, 448), nn.ReLU()), (8, 160)),
    "nothing to compute": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (5, 3)),
}


def ran(module: nn.Module, *inputs: torch.Tensor, dynamic: bool = False) -> tuple[set[str], list[tuple[int, int]]]:
    """The stages that run for a module that was never compiled in this process, and for each of its graphs norms and
    bytes; results are eager's."""
    framejit.reset()
    fast = framejit.optimize(module, freeze=True, dynamic=dynamic)
    stages.clear()
    with torch.no_grad():
        for x in inputs:
            assert_same(module(x), fast(x), atol=1e-4, rtol=1e-4)
    seen = {*stages}
    account = [(graph.folded_norms, graph.frozen_bytes) for graph in framejit.inspect(fast).graphs]
    with torch.no_grad():  # what was computed is guarded
        for weight in module.parameters():
            weight.mul_(1.5)
            assert_same(module(inputs[0]), fast(inputs[0]), atol=1e-4, rtol=1e-4)
    return seen, account


@pytest.mark.parametrize("dynamic", [False, True], ids=["closed", "open"])
@pytest.mark.parametrize("name", MODULES)
def test_no_pass_and_no_lowering(name, dynamic):
    make, shape = MODULES[name]
    inputs = [torch.randn(shape), torch.randn(shape[0] + 1, *shape[1:])] if dynamic else [torch.randn(shape)]
    first, account = ran(make(), *inputs, dynamic=dynamic)
    assert {"record", "fold_norms", "freeze", "lower", "schedule"} <= first
    nothing = name == "nothing to compute" or dynamic and name.startswith("packed")  # of known sizes only
    assert nothing is not any(size for _, size in account)
    again, same = ran(make(), *inputs, dynamic=dynamic)  # other weights
    assert again == {"record"} and same == account


def test_which_weights_are_frozen_is_part_of_the_key():
    module, x = norms(), torch.randn(2, 3, 6, 6)
    assert "lower" in ran(module, x)[0]
    framejit.reset()
    stages.clear()
    with torch.no_grad():
        assert_same(module(x), framejit.optimize(module)(x), atol=1e-4, rtol=1e-4)
    assert "lower" in stages
    assert ran(norms(), x)[0] == {"record"}


def test_a_plan_for_weights_that_are_finite_is_not_for_others():
    """And the other way round: a norm that could not be folded into one module's weights can be into another's."""
    x = torch.randn(2, 3, 6, 6)
    broken = norms()
    with torch.no_grad():
        broken[0].weight[0] = float("inf")
    for number, (module, folded) in enumerate([(norms(), 2), (broken, 1), (norms(), 2)]):
        seen, ((count, _),) = ran(module, x)
        assert "lower" in seen and count == folded
        reasons = [reason for hit, reason in told() if not hit and reason]
        assert len(reasons) == bool(number) and all(
            "batch norms are not finite that were, or the other way round" in reason for reason in reasons
        )
    assert ran(norms(), x)[0] == {"record"}


def change(fields, what):
    made, constants, norms = fields["folding"]
    if what == "no folding":
        del fields["folding"]
    elif what == "another function":
        made[0][0] = "aten::relu"
    elif what == "a function that writes":
        made[0][0] = "aten::mul_.Tensor"
    elif what == "a weight that there is not":
        made[0][1] = ["tuple", ["weight", 77]]
    elif what == "a result before it is made":
        made[0][1] = ["tuple", ["result", 1, None]]
    elif what == "another shape":
        constants[0][2][1] = ["tuple", 1, 2, 3]
    elif what == "a constant that there is not":
        constants.pop()
    elif what == "no results":
        constants[0][1] = 5
    elif what == "too many norms":
        norms.append([0, False])


@pytest.mark.parametrize(
    "what",
    [
        "no folding", "another function", "a function that writes", "a weight that there is not",
        "a result before it is made", "another shape",
    ]
    + ["a constant that there is not", "no results", "too many norms"],
)
def test_an_entry_that_is_wrong_is_told_once_and_not_used(what):
    x = torch.randn(2, 3, 6, 6)
    ran(norms(), x)
    for file in pathlib.Path(framejit.config.cache_dir).iterdir():
        kind, _, key = file.name.partition("-")
        if kind == plan_cache.KIND:
            fields, blobs = unpack(disk_cache.get(kind, key))
            if fields["folding"][0]:
                change(fields, what)
                disk_cache.put(kind, key, pack(fields, blobs))
    module = norms()
    framejit.reset()
    fast = framejit.optimize(module, freeze=True)
    weights = [weight.clone() for weight in module.parameters()]
    stages.clear()
    with torch.no_grad():
        assert_same(module(x), fast(x), atol=1e-4, rtol=1e-4)
    assert "lower" in stages
    assert all(torch.equal(old, new) for old, new in zip(weights, module.parameters()))
    (wrong,) = [reason for hit, reason in told() if not hit]
    assert "can't be used" in wrong
    assert ran(norms(), x)[0] == {"record"}  # and a good one is kept instead


def test_another_process_runs_no_pass_and_no_lowering(folder, tmp_path):
    program = """
        import sys, torch, framejit
        from framejit import events
        from framejit.backends.fuse.account.stage_counts import stages

        torch.manual_seed(int(sys.argv[1]))
        first, last = torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 4, 3, bias=False)
        model = torch.nn.Sequential(first, torch.nn.BatchNorm2d(4), torch.nn.ReLU(), last).eval()
        model[1].running_mean.normal_()
        fast = framejit.optimize(model, freeze=True, dynamic=sys.argv[2] == "open")
        with torch.no_grad():
            for n in (2, 3):
                x = torch.randn(n, 3, 8, 8)
                torch.testing.assert_close(fast(x), model(x))
        folded = [graph.folded_norms for graph in framejit.inspect(fast).graphs]
        print(sorted(stages), all(event.hit for event in events.events("cache")), folded[0])
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))

    def run(*arguments: str) -> str:
        environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(folder)}
        done = forked.run(["-W", "error", script, *arguments], env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    for sizes in ("closed", "open"):
        first = run("1", sizes)
        assert "'lower'" in first and "'freeze'" in first
        assert run("2", sizes) == "['record'] True 1"
