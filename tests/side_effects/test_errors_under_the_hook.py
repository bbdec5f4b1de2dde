"""Operations that raise in frames that the hook captured, in whole scripts, and under verification."""

import torch

from tests.side_effects.raising_calls import BAD, GOOD, X, follow

import forked
from support import Pair, check, world


def test_functions_the_hook_captures():
    def make():
        names = world(
            """
            import framejit
            def entry(x, i, log):
                framejit.graph_break()
                found = [*map(lambda n: lookup(x, i, log, n), range(2))]
                return found
            def lookup(x, i, log, n):
                log.append("lookup")
                y = x * 2
                try:
                    return y[i] * 2
                except IndexError as e:
                    log.append(str(e))
                    return x
            """
        )
        return names["entry"]

    pair = Pair(make)
    for i in (GOOD, BAD, BAD, BAD, GOOD):
        pair.call(X, i, [])


PROGRAM = """
import torch

def make(scale):
    def lookup(x, i, log):
        log.append("lookup")
        y = x * scale
        try:
            return y[i] * 2
        except IndexError as e:
            log.append(str(e))
            return x
    return lookup

for scale in (2, 3):
    lookup, log = make(scale), []
    for i in ([0, 2], [0, 9], [0, 9], [0, 9], [1, 1]):
        print(lookup(torch.tensor([1.0, 2.0, 3.0]), torch.tensor(i), log).tolist(), log)

def uncaught(x, i):
    y = x + 1
    return y[i]

uncaught(torch.ones(3), torch.tensor([0]))
uncaught(torch.ones(3), torch.tensor([9]))
"""


def test_a_whole_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    hook = ["-m", "framejit", "run", "--backend", "eager", "--min-graph-size", "0"]
    plain, hooked = (forked.run([*how, script], timeout=300) for how in ([], hook))
    assert plain.stdout == hooked.stdout
    assert plain.stderr.splitlines()[-1] == hooked.stderr.splitlines()[-1]
    assert [line for line in plain.stderr.splitlines() if "script.py" in line] == [
        line for line in hooked.stderr.splitlines() if "script.py" in line
    ]


def test_verified_calls():
    def fn(x, i, log):
        log.append("begun")
        y = x * 2
        try:
            return y[i]
        except IndexError:
            log.append("missed")
            return y

    pair = Pair(lambda: fn, verify=1.0)
    for i in (GOOD, BAD, BAD, BAD, GOOD):
        pair.call(X, i, [])


def test_unused_results_that_raise():
    def fn(x, i):
        x[i]
        return x + 1

    follow(fn, (X, GOOD), (X, BAD), (X, BAD), (X, BAD), (X, GOOD))


def test_an_operator_that_hides_what_it_writes_is_not_repeated():
    def fn(x, mean, variance):
        return torch.ops.aten._batch_norm_with_update(x, torch.ones(2), torch.zeros(2), mean, variance, 0.5, 1e-5)[0]

    check(fn, torch.rand(3, 2, 4), torch.zeros(2), torch.ones(2))
