"""`explain`, `status` and the log tell of training: which half a kernel belongs to, what is kept for the backward by
line, what is computed again, and what keeps a graph from being fused."""

import torch

import framejit
from framejit import events
from framejit.findings.saved_report import from_dict


def twice(x, w):
    h = x @ w
    a = h.sin()
    b = (a * 2).exp()
    return b.sum()


def made():
    return torch.randn(64, 32, requires_grad=True), torch.randn(32, 16, requires_grad=True)


def kept_by(result):
    """The bytes that autograd's nodes hold of tensors made inside."""
    return sum(tensor.untyped_storage().nbytes() for tensor in result.grad_fn.saved_tensors)


def test_explain_tells_of_both_halves():
    x, w = made()
    explanation = framejit.explain(twice)(x, w)
    (told,) = explanation.training
    assert told.function.endswith("twice") and told.graph_id == explanation.graphs[0].graph_id
    assert told.kernels["forward"] and told.kernels["backward"]
    text = str(explanation)
    for name in (*told.kernels["forward"], *told.kernels["backward"]):
        assert name in text
    assert [line.partition(": ")[2] for line, _ in told.kept] == ["h = x @ w"]
    assert told.kept[0][1] == 64 * 16 * 4 and "4.0 KiB of " in text
    again = {line.partition(": ")[2] for line, _ in told.computed_again}
    assert "a = h.sin()" in again and "computed again: " in text
    assert explanation.unfused == []
    read = from_dict(explanation.to_dict())
    assert [vars(one) for one in read.training] == [vars(told)]


def test_what_is_told_is_what_is_kept():
    x, w = made()
    compiled = framejit.optimize(twice)
    with_events = []
    unsubscribe = events.subscribe(lambda event: with_events.append(event) if event.kind == "training" else None)
    try:
        for _ in range(2):
            result = compiled(x, w)
    finally:
        unsubscribe()
    (told,) = with_events
    parameters = x.untyped_storage().nbytes() + w.untyped_storage().nbytes()
    assert sum(n for _, n in told.kept) == kept_by(result) - parameters
    halves = {graph.name: [kernel.name for kernel in graph.kernels] for graph in framejit.inspect(compiled).graphs}
    assert list(halves.values()) == [told.kernels["forward"], told.kernels["backward"]]


def test_status_tells_of_training():
    x, w = made()
    framejit.optimize(twice)(x, w)
    (told,) = framejit.status().trained
    text = str(framejit.status())
    assert "compiled with their backward:" in text and told.summary in text
    assert "4.0 KiB kept for the backward" in told.summary
    framejit.reset()
    assert framejit.status().trained == () and "backward" not in str(framejit.status())


def test_the_log_tells_of_training(capsys):
    framejit.set_logs("training")
    try:
        framejit.optimize(twice)(*made())
    finally:
        framejit.set_logs("")
    written = capsys.readouterr().err
    assert "[framejit training] " in written and "kept: 4.0 KiB of " in written and "h = x @ w" in written


def test_why_each_result_has_a_backward_of_its_own():
    def looks_behind(x, w):
        h, factor = (x @ w).tanh(), (x @ w).exp()
        return (h * factor.detach()).sum(), h, factor

    explanation = framejit.explain(looks_behind)(*made())
    (told,) = explanation.training
    assert told.apart == "its backward looks at a result that others lead to"
    assert f"each result has a backward of its own: {told.apart}" in str(explanation)
    assert told.summary in str(framejit.status())
    saved = explanation.to_dict()
    assert [vars(one) for one in from_dict(saved).training] == [vars(told)]
    del saved["training"][0]["apart"]  # as earlier versions wrote it
    assert from_dict(saved).training[0].apart == ""
    assert "backward of its own" not in str(framejit.explain(twice)(*made()))


def test_inference_tells_nothing_of_it():
    x, w = made()
    with torch.no_grad():
        explanation = framejit.explain(twice)(x, w)
    assert explanation.training == [] and "backward" not in str(explanation)


def test_what_keeps_a_graph_from_being_fused():
    def warns(x):
        return x.var(0).sum() + x.sum()

    with torch.enable_grad():
        explanation = framejit.explain(warns)(torch.randn(1, 3, requires_grad=True))
    assert explanation.training == []
    (sentence,) = explanation.unfused
    assert "warns runs as ATen: an operation may warn" in sentence and sentence in str(explanation)
    assert from_dict(explanation.to_dict()).unfused == [sentence]
