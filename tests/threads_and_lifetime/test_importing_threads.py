"""Captures while some thread is importing what they need."""
import sys

import pytest
import torch

import framejit
from framejit.capture import attempt
from framejit.environment.imports_under_way import met_half_a_module


def counted(graphs):
    """A backend that counts what it is given."""
    return lambda gm, inputs: graphs.append(gm) or gm.forward


def test_a_function_called_often_during_an_import_is_captured_afterwards(monkeypatch):
    graphs = []

    @framejit.optimize(backend=counted(graphs))
    def doubled(x):
        return x * 2

    x = torch.ones(3)
    with monkeypatch.context() as during:
        during.setattr(attempt, "is_being_imported", lambda name: True)
        for _ in range(20):
            assert torch.equal(doubled(x), x * 2)
        assert not graphs
    assert torch.equal(doubled(x), x * 2)
    assert len(graphs) == 1


def test_a_half_imported_module_is_met_and_told_from_other_errors(tmp_path, monkeypatch):
    (tmp_path / "half_a.py").write_text("import half_b\nlate = 1\n")
    (tmp_path / "half_b.py").write_text("from half_a import late\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError) as met:
        import half_a  # noqa: F401
    assert met_half_a_module(met.value)
    try:
        raise ValueError("wrapped") from met.value
    except ValueError as e:
        assert met_half_a_module(e)
    assert not met_half_a_module(ImportError("no module named x")) and not met_half_a_module(None)
    assert not any(name.startswith("half_") for name in sys.modules)


def test_a_capture_that_meets_one_is_tried_again(monkeypatch):
    graphs = []

    @framejit.optimize(backend=counted(graphs))
    def tripled(x):
        return x * 3

    def half(*_):
        raise ImportError(
            "cannot import name 'x' from partially initialized module 'y' (most likely due to a circular import)"
        )

    x = torch.ones(3)
    with monkeypatch.context() as during:
        during.setattr(attempt, "Capture", half)
        assert torch.equal(tripled(x), x * 3)
    assert torch.equal(tripled(x), x * 3)
    assert len(graphs) == 1
