"""`optimize(freeze=True)` beside what else a program does: several models, threads, sizes that are left open, graph
breaks, the disk cache, `verify`, the command line."""

from __future__ import annotations

import copy
import gc
import pickle
import textwrap
import threading
import weakref

import pytest
import torch
from torch import nn

import framejit
from framejit.errors import FramejitWarning, InvalidOption
from tests.fuse.freeze.networks import assert_close, folded_norms, graphs_of, image, network, recompiles, trained

import forked


def test_two_models_share_a_function():
    one, two, x = network(), network(), image()

    @framejit.optimize(freeze=True)
    def run(model, x):
        return model(x)

    with torch.no_grad():
        for _ in range(2):
            for model in (one, two):
                assert_close(model, run(model, x), x)
        assert folded_norms(run) == [2, 2]
        one[0].weight.mul_(2)
        assert_close(one, run(one, x), x)
        assert_close(two, run(two, x), x)


def _tensors() -> set[int]:
    gc.collect()
    return {id(obj) for obj in gc.get_objects() if isinstance(obj, torch.Tensor) and not hasattr(obj, "fake_mode")}


def test_a_dropped_module_is_freed_with_what_was_computed_from_it():
    @framejit.optimize(freeze=True)
    def run(model, x):
        return model(x)

    x = image()
    model = network()
    with torch.no_grad():
        run(model, x)
    before = _tensors()
    weight, n_weights = weakref.ref(model[0].weight), len(model.state_dict())
    del model
    after = _tensors()
    assert weight() is None and graphs_of(run) == ()
    assert len(before - after) >= n_weights

    fast = framejit.optimize(network(), freeze=True)
    with torch.no_grad():
        fast(x)
    module = weakref.ref(fast[0])
    del fast
    gc.collect()
    assert module() is None


def test_threads_with_models_that_change():
    model, x = network(), image()
    fast = framejit.optimize(model, freeze=True)
    failures: list[object] = []

    def work(seed: int) -> None:
        own = copy.deepcopy(model)
        mine = framejit.optimize(own, freeze=True)
        try:
            with torch.no_grad():
                for _ in range(4):
                    failures.extend([] if torch.allclose(own(x), mine(x), atol=1e-4, rtol=1e-4) else [seed])
                    failures.extend([] if torch.allclose(model(x), fast(x), atol=1e-4, rtol=1e-4) else ["shared"])
                    own[0].weight.mul_(0.5)
        except Exception as e:
            failures.append(e)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


@pytest.mark.parametrize("norms_first", [False, True])
def test_symbolic_sizes(norms_first):
    module = network()
    fast = framejit.optimize(module, freeze=True, dynamic=True)
    with torch.no_grad():
        for size in (12, 14, 17, 12):
            x = torch.randn(2 + size % 3, 3, size, size)
            assert_close(module, fast(x), x)
        module[0 if norms_first else 4].weight.mul_(2)
        for size in (17, 12, 20, 20, 20):
            x = torch.randn(2 + size % 3, 3, size, size)
            assert_close(module, fast(x), x)
    assert all(norms == 2 for norms in folded_norms(fast))


def test_plans_of_folded_graphs_come_from_the_cache_with_other_weights():
    x = image()
    for _ in range(2):
        module = network()
        fast = framejit.optimize(module, freeze=True)
        with torch.no_grad():
            assert_close(module, fast(x), x)
        assert folded_norms(fast) == [2]
        framejit.reset()


def test_graph_breaks_in_between():
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = network(), trained(nn.Sequential(nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            framejit.graph_break()
            return self.second(x)

    module, x = Halves().eval(), image()
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        assert_close(module, fast(x), x)
        module.second[0].weight.mul_(3)
        assert_close(module, fast(x), x)
        (failure,) = recompiles()
        assert "second" in failure and "content was taken to stay" in failure


def test_verified_calls():
    module, x = network(), image()
    fast = framejit.optimize(module, freeze=True, verify=True)
    with torch.no_grad():
        assert_close(module, fast(x), x)
        module[0].weight.mul_(2)
        assert_close(module, fast(x), x)


def test_the_option_is_checked_and_carried():
    for wrong in (1, 0.5, "yes"):
        with pytest.raises(InvalidOption, match="freeze must be True, False or None"):
            framejit.optimize(network(), freeze=wrong)
    for wanted in (False, True):
        fast = framejit.optimize(network(), freeze=wanted)
        for made in (fast, copy.deepcopy(fast), copy.copy(fast), pickle.loads(pickle.dumps(fast))):
            assert made.__call__.__func__.options.freeze is wanted
        with framejit.config.patch(freeze=wanted):
            assert framejit.optimize(network()).__call__.__func__.options.freeze is wanted
            assert not framejit.optimize(network(), freeze=False).__call__.__func__.options.freeze


def test_the_command_line_takes_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import torch, framejit

            model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()

            def run(x):
                return model(x)

            with torch.no_grad():
                x = torch.randn(1, 3, 8, 8)
                before = run(x)
                model[0].weight.mul_(2)
                model[0].bias.mul_(2)
                folded = [graph.folded_norms for graph in framejit.inspect(run).graphs]
                print(torch.allclose(run(x), 2 * before, atol=1e-5), folded)
        """)
    )
    for options, norms in (([], "[0]"), (["--freeze"], "[1]")):
        done = forked.run(["-m", "framejit", "run", *options, script], timeout=100)
        assert done.stdout == f"True {norms}\n", done.stderr


def test_backends_without_a_use_for_it_say_so():
    module, x = network(), image()
    with pytest.warns(FramejitWarning, match="computes nothing from weights beforehand"):
        fast = framejit.optimize(module, backend="eager", freeze=True)
    with torch.no_grad():
        assert torch.equal(module(x), fast(x))
        module[0].weight.mul_(2)
        assert torch.equal(module(x), fast(x))
    assert not recompiles()
