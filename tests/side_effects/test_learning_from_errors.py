"""What becomes of a graph that raised: where later captures break, and what stays."""
import pytest
import torch

from tests.side_effects.raising_calls import BAD, GOOD, X

from support import Pair, of_kind


def test_graphs_break_at_an_operation_that_raised_twice():
    def fn(x, i):
        y = x * 2 + 1
        try:
            y = y[i]
        except IndexError:
            y = y[:2]
        return y * 3 + 1

    pair = Pair(lambda: fn)
    pair.call(X, GOOD, captures=True)
    pair.call(X, BAD, captures=False)
    pair.call(X, BAD, captures=False)
    assert [e.fields["outcome"].split()[0] for e in of_kind(pair.log, "graph_raised")] == ["the", "from"]
    pair.call(X, BAD, captures=True)
    runs = pair.backend.runs
    for i in (GOOD, BAD, GOOD, BAD):
        pair.call(X, i, captures=i is GOOD if runs == pair.backend.runs else None)
    for i in (GOOD, BAD):
        pair.call(X, i, captures=False)
    assert [reason for _, _, reason in pair.breaks if "raised when a graph ran it" in reason]
    assert len(of_kind(pair.log, "graph_raised")) == 2


def test_one_graph_was_promised_and_stays():
    def fn(x, i):
        y = x * 2
        try:
            return y[i]
        except IndexError:
            return y

    pair = Pair(lambda: fn, fullgraph=True)
    for _ in range(3):
        for i in (GOOD, BAD, BAD, GOOD):
            pair.call(X, i)
    pair.expect(graphs=1, breaks=0)


def test_several_operations_that_raise():
    def fn(x, i, j, log):
        for k in (i, j):
            try:
                x = x[k] + x[k]
            except IndexError:
                log.append("index")
        try:
            x = x // (x * 0).to(torch.int64)
            x = torch.linalg.cholesky(-x.reshape(1, -1).float())
        except RuntimeError as e:
            log.append(str(e)[:10])
        return x

    pair = Pair(lambda: fn)
    for _ in range(3):
        for i in (GOOD, BAD):
            for j in (torch.tensor([0, 1]), torch.tensor([5])):
                pair.call(X, i, j, [])


def test_an_interrupt_is_passed_on_after_one_more_run():
    """A graph that changes nothing is run again, so that the interrupt comes behind it."""
    import framejit

    runs = []

    def backend(gm, inputs):
        def run(*args):
            runs.append(1)
            raise KeyboardInterrupt

        return run

    def fn(x, log):
        log.append("begun")
        return x + 1

    compiled, log = framejit.optimize(fn, backend=backend), []
    with pytest.raises(KeyboardInterrupt):
        compiled(X, log)
    assert runs == [1, 1] and log == []


def test_memory_that_runs_out_in_a_graph_without_writes_is_the_programs_to_handle():
    import framejit

    def backend(gm, inputs):
        def run(*args):
            raise torch.OutOfMemoryError("no memory")

        return run

    def fn(x):
        return x + 1

    assert framejit.optimize(fn, backend=backend)(X).equal(X + 1)


def test_a_backend_whose_graph_raises_does_not_stop_the_program():
    import framejit

    def backend(gm, inputs):
        def run(*args):
            raise ValueError("broken kernel")

        return run

    def fn(x, log):
        log.append(1)
        return x + 1

    compiled, log = framejit.optimize(fn, backend=backend), []
    for _ in range(5):
        assert compiled(X, log).equal(X + 1)
    assert log == [1] * 5
