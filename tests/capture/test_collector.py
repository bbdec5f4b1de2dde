"""Capturing leaves the garbage collector as it was."""
import gc

import pytest
import torch

import framejit


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_and_rests_only_outside_the_backend(enabled):
    seen = []

    def backend(module, inputs):
        seen.append(gc.isenabled())
        return module.forward

    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        framejit.optimize(lambda x: x + 1, backend=backend)(torch.ones(2))
        assert seen == [enabled] and gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_it_goes_on_after_a_failing_backend():
    def backend(module, inputs):
        raise RuntimeError("no")

    with pytest.warns():
        framejit.optimize(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert gc.isenabled()
