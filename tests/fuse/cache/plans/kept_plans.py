"""What tests of plans on the disk do again and again: compile afresh, look at what was told and what is there."""

import pathlib

import torch
import torch.nn.functional as F
from torch import fx

import framejit
from framejit import events

from comparison import assert_same


def assert_equal(expected, got) -> None:
    """Values, and which objects and memory are shared."""
    assert_same(expected, got, atol=1e-6, rtol=1e-5)


def plan_events() -> list[tuple[bool, str]]:
    return [(event.hit, event.reason) for event in events.events("cache") if event.what == "plan"]


def plan_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("plan-*")) if folder.exists() else []


def fresh(function, *args):
    """The result, and whether the plan came from the disk; nothing is left of earlier compilations but the disk."""
    framejit.reset()
    compiled = framejit.optimize(function)
    before = len(plan_events())
    result = compiled(*args)
    found = plan_events()[before:]
    assert len(found) == 1, found
    return result, found[0][0]


def program_on_disk(folder):
    x = torch.randn(3, 4)

    def f(x):
        return F.linear(x.double().sin() + 1, x.double()).sum(-1), x.cos()

    fresh(f, x)
    (file,) = plan_files(folder)
    return f, x, file


def graph_of(function, *inputs):
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    gm = fx.symbolic_trace(function)
    for node, value in zip((node for node in gm.graph.nodes if node.op == "placeholder"), inputs):
        node.meta["val"] = mode.from_tensor(value, static_shapes=True)
    out = next(node for node in gm.graph.nodes if node.op == "output")
    if not isinstance(out.args[0], (tuple, list)):
        out.args = ((out.args[0],),)
        gm.recompile()
    return gm
