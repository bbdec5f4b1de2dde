"""A backend that computes something else is found out, down to the node, and the script that is written shows it
again."""
import os
import warnings

import pytest
import torch

import framejit
from framejit.errors import FramejitWarning, InvalidOption

import forked
from shadows import outcomes, swaps


def f(x):
    y = x * 2 + 1
    z = torch.sin(y) + 1
    return z.relu() + x


def test_the_first_differing_node_is_named(folder):
    fast = framejit.optimize(f, backend=swaps(torch.sin, torch.cos), verify=True)
    with (
        outcomes() as seen,
        pytest.warns(FramejitWarning, match=r"f does not do what plain Python does.*FJ401") as told,
    ):
        result = fast(torch.ones(4))
    [event] = seen
    assert (event.outcome, event.code, event.node) == ("different", "FJ401", "sin = torch.sin(add)")
    assert f"{__file__}:{f.__code__.co_firstlineno + 2}" in event.reason
    assert "result, element [0]: 2.14" in event.reason and "(4 of 4 elements differ)" in event.reason
    assert len(told) == 1 and event.script in str(told[0].message) and event.script.startswith(str(folder))
    # the program goes on with what it would have had
    torch.testing.assert_close(result, torch.cos(torch.tensor(3.0)).expand(4) + 2)


def test_the_reproduction_shows_it(folder):
    framejit.register_backend("cosines", swaps(torch.sin, torch.cos))
    with outcomes() as seen, pytest.warns(FramejitWarning):
        framejit.optimize(f, backend="cosines", verify=True)(torch.ones(4))
    script = open(seen[0].script).read()
    assert "resolve('cosines')" in script and "torch.sin(add)" in script and "relu" not in script
    program = (
        "import framejit, runpy, torch\n"
        "def wrong(gm, inputs):\n"
        "    for n in gm.graph.nodes:\n"
        "        n.target = torch.cos if n.target is torch.sin else n.target\n"
        "    gm.recompile()\n"
        "    return gm.forward\n"
        "framejit.register_backend('cosines', wrong)\n"
        f"runpy.run_path({seen[0].script!r})"
    )
    done = forked.run(["-c", program], timeout=120)
    assert done.stdout.startswith("output[0], element [0]: 0.14"), done.stderr
    assert "(4 of 4 elements differ)" in done.stdout


def test_one_cause_is_told_once(folder):
    fast = framejit.optimize(f, backend=swaps(torch.sin, torch.cos), verify=True)
    with outcomes() as seen, pytest.warns(FramejitWarning) as told:
        fast(torch.ones(4))
        fast(torch.ones(4))
    assert [event.outcome for event in seen] == ["different"] * 2
    assert len(told) == 1 and len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    ("program", "old", "new", "node"),
    [
        (lambda x: x.split(2)[1].exp() + x.sum(), "exp", "sin", "exp = "),
        (lambda x: torch.topk(x, 2)[0].neg(), "neg", "abs", "neg = "),
        (lambda x: (x + 1).mul_(3).sub_(1), "sub_", "add_", "sub_ = "),
    ],
)
def test_nodes_with_several_results_and_in_place_nodes(program, old, new, node):
    with outcomes() as seen, pytest.warns(FramejitWarning):
        framejit.optimize(program, backend=swaps(old, new), verify=True)(torch.arange(4.0) + 1)
    assert seen[0].node.startswith(node)


def test_a_difference_within_a_no_grad_block_leaves_the_mode_alone():
    def program(x):
        with torch.no_grad():
            y = torch.sin(x)
        return y * x

    x = torch.ones(3, requires_grad=True)
    with outcomes() as seen, pytest.warns(FramejitWarning):
        framejit.optimize(program, backend=swaps(torch.sin, torch.cos), verify=True)(x)
    assert seen[0].node.startswith("sin = ")
    assert torch.is_grad_enabled()


def test_a_backend_wrong_only_the_first_time_is_still_reported():
    made = []

    def once(gm, inputs):
        made.append(gm)
        return swaps(torch.sin, torch.cos)(gm, inputs) if len(made) == 1 else gm.forward

    with outcomes() as seen, pytest.warns(FramejitWarning, match="compiled anew, the same graph is right"):
        framejit.optimize(f, backend=once, verify=True)(torch.ones(4))
    assert seen[0].code == "FJ401" and seen[0].node == ""


def test_a_backend_that_writes_to_its_input():
    def spoils(gm, inputs):
        def run(x):
            made = gm.forward(x)
            x.add_(1)
            return made

        return run

    x = torch.ones(3)
    with outcomes() as seen, pytest.warns(FramejitWarning, match="argument x, element"):
        framejit.optimize(lambda x: x * 2, backend=spoils, verify=True)(x)
    assert seen[0].code == "FJ401"


def test_small_differences_of_floats_are_none():
    def rounds(gm, inputs):
        return lambda *args: tuple(out * (1 + 1e-6) for out in gm.forward(*args))

    with warnings.catch_warnings(), outcomes() as seen:
        warnings.simplefilter("error")
        framejit.optimize(f, backend=rounds, verify=True)(torch.ones(4))
    assert [event.outcome for event in seen] == ["same"]


def test_graphs_after_a_break_are_verified_too():
    def broken(x):
        y = x + 1
        framejit.graph_break()
        return torch.sin(y)

    with outcomes() as seen, pytest.warns(FramejitWarning):
        framejit.optimize(broken, backend=swaps(torch.sin, torch.cos), verify=True)(torch.ones(4))
    assert seen[0].node.startswith("sin = ")


def test_graphs_of_an_unchanged_script_are_verified(tmp_path):
    (tmp_path / "script.py").write_text(
        "import torch, framejit\n"
        "def wrong(gm, inputs):\n"
        "    return lambda *args: tuple(out + 1 for out in gm.forward(*args))\n"
        "framejit.config.default_backend = 'wrong'\n"
        "framejit.register_backend('wrong', wrong)\n"
        "def f(x):\n"
        "    return x * 2\n"
        "f(torch.ones(2))\n"
    )
    environment = {**os.environ, "FRAMEJIT_VERIFY": "0.5"}
    done = forked.run(["-m", "framejit", "run", "script.py"], cwd=tmp_path, env=environment, timeout=120)
    assert (
        "f does not do what plain Python does" in done.stderr
        and "script.py:7" in done.stderr
        and "[FJ401]" in done.stderr
    )
    assert (tmp_path / "framejit-verify" / "f-1" / "reproduce.py").exists()


@pytest.mark.parametrize("fraction", [-0.1, 1.5, "often"])
def test_a_fraction_that_is_none_is_refused(fraction):
    with pytest.raises(InvalidOption, match="verify must be True, False or a fraction"):
        framejit.optimize(f, verify=fraction)


def test_a_fraction_of_the_calls():
    fast = framejit.optimize(f, verify=0.1)
    with outcomes() as seen:
        for _ in range(200):
            fast(torch.ones(4))
    assert 1 <= len(seen) < 60


def test_the_setting_is_for_calls_that_say_nothing():
    with framejit.config.patch(verify=1), outcomes() as seen:
        framejit.optimize(f)(torch.ones(4))
        framejit.optimize(f, verify=False)(torch.ones(4))
    assert [event.outcome for event in seen] == ["same"]
