"""A hundred random programs behave as plain Python, even numbers as captured, odd ones through the fusing backend."""
from __future__ import annotations

import ast
import pathlib
import re

import pytest

from tests.attack.generator.program import LOOPS, program
from tests.attack.pool import Pool, groups

KNOWN = pathlib.Path(__file__).with_name("known_differences.txt")
# two minutes of a core; `make attack` runs thousands of others
PROGRAMS = [*range(80), *range(LOOPS, LOOPS + 20)]


@pytest.mark.slow
def test_random_programs(tmp_path: pathlib.Path) -> None:
    done = Pool(PROGRAMS, tmp_path).run()
    known = {int(line.split()[0]) for line in KNOWN.read_text().splitlines()}
    new = {seed: entry for seed, entry in done.items() if entry["kind"] != "equal" and seed not in known}
    listed = "\n".join(f"  {signature} (python -m tests.attack reduce {seeds[0]})" for signature, seeds in groups(new))
    assert not new, f"{len(new)} programs differ from plain Python:\n{listed}"


def test_a_number_is_always_the_same_program() -> None:
    assert program(17).text == program(17).text
    assert program(17).text != program(18).text


def test_programs_mostly_run() -> None:
    """Programs that raise at once would find nothing."""
    from tests.attack.world import World

    raised = 0
    for seed in range(60):
        made = program(seed)
        raised += World(f"program_{seed}", made.text).call(0).error is not None
    assert raised < 25


def test_programs_end():
    """What a loop counts up to may itself grow in the loop: each has a bound that does not."""
    loops = [
        node for seed in range(400) for node in ast.walk(ast.parse(program(seed).text)) if isinstance(node, ast.While)
    ]
    assert len(loops) > 20
    for loop in loops:
        test, steps = ast.unparse(loop.test), [ast.unparse(step) for step in loop.body]
        goes_up = any(f"{name} += 1" in steps for name, n in re.findall(r"(\w+) < (\d)(?= and \()", test))
        goes_down = any(f"{name} -= 1" in steps for name in re.findall(r"^(\w+) > 0$", test))
        assert goes_up or goes_down, ast.unparse(loop)


def test_loops_that_data_end_are_bounded():
    for seed in range(LOOPS, LOOPS + 300):
        [function] = [node for node in ast.parse(program(seed).text).body if getattr(node, "name", "") == "fn"]
        for loop in [node for node in ast.walk(function) if isinstance(node, ast.While)]:
            test, (first, *others) = ast.unparse(loop.test), [ast.unparse(step) for step in loop.body]
            counter = first.split()[0]
            assert first in (f"{counter} += 1", f"{counter} = {counter} + 1", f"{counter} -= 1"), ast.unparse(loop)
            left = others and re.fullmatch(rf"if {counter} > \d:\n    break", others[0])
            assert left or re.search(rf"\b{counter} (< \d|> 0)", test), ast.unparse(loop)


def test_programs_are_python():
    """The first text of this one has more blocks in one another than Python takes."""
    compile(program(310004909).text, "program.py", "exec")
