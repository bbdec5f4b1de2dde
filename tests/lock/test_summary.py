"""What a lock keeps of a run does not depend on the machine."""
import os
import sys

import torch

import framejit
from framejit.events import Break, FunctionRecord
from framejit.events.ledger import ledger
from framejit.lock.summary import portable, summarize

HERE = os.path.dirname(__file__)


def test_functions_of_one_name_count_together():
    records = [FunctionRecord("<lambda>", f"{HERE}/a.py", line, state="compiled", graphs=1) for line in (3, 9)]
    [(name, found)] = summarize(records, HERE).items()
    assert name == "a.py::<lambda>" and found.graphs == 2


def test_paths_and_addresses_in_reasons():
    record = FunctionRecord("f", f"{HERE}/a.py", 1, state="compiled in parts", graphs=2)
    record.breaks[("", 0, "")] = Break(f"{HERE}/a.py", 2, 0, f"<object at 0x7fab> (in g, {HERE}/b.py:12)", "FJ101", "")
    [found] = summarize([record], HERE).values()
    assert found.breaks[0].reason == "<object at 0x…> (in g, b.py)"


def test_libraries_count_only_where_there_is_something_to_tell():
    outside = os.path.dirname(torch.__file__)
    records = [
        FunctionRecord("quiet", f"{outside}/nn/a.py", 1, state="skipped"),
        FunctionRecord("f", f"{outside}/nn/a.py", 2, state="compiled", graphs=1),
    ]
    assert list(summarize(records, HERE)) == ["torch/nn/a.py::f"]


def test_portable():
    assert portable(os.path.join(HERE, "x", "a.py"), HERE) == "x/a.py"
    assert portable("/nowhere/else/a.py", HERE) == "a.py"
    assert portable("<string>", HERE) == "<string>"
    assert portable(os.path.join(sys.path[-1], "pkg", "a.py"), HERE) == "pkg/a.py"


def test_of_a_real_run():
    def f(x):
        y = x + 1
        framejit.graph_break()
        return y * 2

    framejit.optimize(f)(torch.ones(2))
    [(name, found)] = summarize(ledger.records(), HERE).items()
    assert name == "test_summary.py::test_of_a_real_run.<locals>.f"
    assert (found.state, found.graphs, found.recompiles) == ("compiled in parts", 2, 0)
    assert [str(b) for b in found.breaks] == ["[FJ100] at `framejit.graph_break()`: framejit.graph_break() asks for it"]
