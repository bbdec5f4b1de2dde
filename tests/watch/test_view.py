"""The parts of a view: pictures, keys, and the output that is kept meanwhile."""
import io
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console, ConsoleDimensions

import framejit
from framejit.errors import MissingPackage
from framejit.watch.keys import CLOSE, DOWN, LEAVE, OPEN, UP, keys
from framejit.watch.output import Marks, Output, mark, new_sign
from framejit.watch.program import check_installed
from framejit.watch.told import Telling
from framejit.watch.view import View

import forked

ROOT = Path(__file__).parents[2]
HOSTILE = "[bold red]not[/nothing] \x1b[2J\x1b]0;title\x07"


def picture(view, width=110, height=36, lines=()):
    console = Console(width=width, height=height, force_terminal=True, record=True, file=io.StringIO())
    console.print(view.picture(ConsoleDimensions(width, height), lambda most: list(lines)[-most:]))
    return console.export_text()


def two_breaks(x):
    n = len((x + 1).repeat(17).tolist())
    y = x * n
    framejit.graph_break()
    return y - 1


@pytest.fixture
def told():
    """What is told of a function with two breaks."""
    telling = Telling()
    try:
        fast = framejit.optimize(two_breaks)
        for _ in range(3):
            fast(torch.ones(4))
        yield telling.now()
    finally:
        telling.stop()


def test_before_anything_is_told():
    shown = picture(View("script.py", True), lines=["a line"])
    assert "the script begins" in shown and "none so far" in shown and "a line" in shown


def test_what_is_told_is_shown(told):
    view = View("script.py", True)
    view.take(told)
    shown = picture(view)
    assert "two_breaks" in shown and "compiled in parts" in shown and "places of graph breaks: 2" in shown
    assert ".tolist() of a tensor" in shown and "graph_break()" in shown
    [row] = told["functions"]
    assert row[:4] == ("two_breaks", "compiled in parts", row[2], 2) and row[5] > 0
    assert all(cost > 0 for _, _, cost in told["costs"])


def test_a_finding_is_told_once_and_its_cost_each_time():
    telling = Telling()
    try:
        fast = framejit.optimize(two_breaks)
        fast(torch.ones(4))
        view = View("script.py", True)
        first = telling.now()
        view.take(first)
        fast(torch.ones(4))
        second = telling.now()
        view.take(second)
    finally:
        telling.stop()
    assert len(first["findings"]) == 2 and second["findings"] == []
    assert [count for count, _, _ in second["costs"]] == [2, 2]
    assert len(view._findings) == 2 and {finding.count for finding in view._findings} == {2}


def test_keys_choose_and_open(told):
    view = View("script.py", True)
    view.take(told)
    first, second = (finding.reason for finding in view._breaks())
    view.press(OPEN)
    assert "finding 1 of 2" in picture(view) and first in picture(view) and second not in picture(view)
    view.press(DOWN)
    view.press(DOWN)
    assert "finding 2 of 2" in picture(view) and second in picture(view)
    view.press(CLOSE)
    assert "by cost" in picture(view)
    view.press(UP)
    view.press(OPEN)
    assert "finding 1 of 2" in picture(view)
    view.press(OPEN)
    assert "by cost" in picture(view)


def test_keys_without_breaks_do_nothing():
    view = View("script.py", True)
    for key in (UP, DOWN, OPEN, CLOSE):
        view.press(key)
    assert "none so far" in picture(view)


def test_many_breaks_are_shown_around_the_chosen_one(told):
    view = View("script.py", True)
    finding, *_ = told["findings"]
    many = [{**finding, "reason": f"reason {n}.", "line": n} for n in range(50)]
    view.take({**told, "findings": many, "costs": [(1, 1, 1000.0 - n) for n in range(50)]})
    assert "reason 0." in picture(view) and "reason 40." not in picture(view)
    for _ in range(40):
        view.press(DOWN)
    assert "reason 40." in picture(view) and "reason 0." not in picture(view)


def test_what_the_script_says_is_text(told):
    view = View(HOSTILE, True)
    row = (HOSTILE, *told["functions"][0][1:])
    view.take({**told, "functions": [row], "compiles": [(HOSTILE, "a.py:1", "capturing", 0.1)]})
    console = Console(width=110, height=36, force_terminal=True, record=True, file=io.StringIO())
    console.print(view.picture(ConsoleDimensions(110, 36), lambda most: [HOSTILE, "\x1b[31mred\x1b[0m\x08\x07"]))
    plain = console.export_text(clear=False)
    assert plain.count("[bold red]not[/nothing]") >= 3 and "red" in plain
    styled = console.export_text(styles=True)
    assert "\x1b[2J" not in styled and "\x07" not in styled and "\x1b]0" not in styled


@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 12), (300, 80)])
def test_any_size_will_do(told, width, height):
    view = View("script.py", False)
    view.take(told)
    lines = picture(view, width, height).splitlines()
    assert len(lines) <= height and max(map(len, lines)) <= width


def test_what_is_left_at_the_end(told):
    view = View("script.py", True)
    assert view.last_picture() is None
    view.take(told)
    console = Console(width=110, record=True, file=io.StringIO())
    console.print(view.last_picture())
    assert "two_breaks" in console.export_text()


def test_keys():
    assert keys(b"\x1b[A\x1bOBjk\r\no\x1b") == [UP, DOWN, DOWN, UP, OPEN, OPEN, OPEN, CLOSE]
    assert keys(b"\x1b[5~x\x1b[1;5Cq") == [LEAVE]


def test_output_is_kept_whole():
    output = Output()
    written = [b"one\n", b"\xff\x00", b"x" * 3_000_000, b"\nprogress 1\rprogress 2", b"\n"]
    for data in written:
        output.keep(data)
    assert output.last_lines(1) == ["progress 2"] and output.last_lines(0) == []
    assert b"".join(output.taken()) == b"".join(written)
    assert b"".join(output.taken()) == b""
    output.keep(b"more")
    assert b"".join(output.taken()) == b"more"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_marks_are_found_however_the_stream_is_cut(size):
    sign = new_sign()
    stream = b"a\x1b" + mark(sign, b"r") + b"\x1b_frame" + sign[:-1] + b"b" + mark(sign, b"e") + b"c" + sign[:5]
    marks, text, found = Marks(sign), b"", []
    for at in range(0, len(stream), size):
        for part, meaning in marks.read(stream[at : at + size]):
            text += part
            if meaning:
                found.append((meaning, len(text)))
    text += marks.rest()
    before = b"a\x1b\x1b_frame" + sign[:-1] + b"b"
    assert text == before + b"c" + sign[:5]
    assert found == [(b"r", 2), (b"e", len(before))]


def test_without_rich(monkeypatch):
    check_installed()
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(MissingPackage, match="pip install rich"):
        check_installed()


def test_the_guide_s_pictures_are_recorded(tmp_path):
    """By the command that the guide names; they show what they are shown for, and refer to nothing elsewhere."""
    done = forked.run([ROOT / "docs" / "images" / "record_watch.py", tmp_path], timeout=120)
    assert done.returncode == 0, done.stderr
    view, finding = ((tmp_path / name).read_text() for name in ("watch.svg", "watch_finding.svg"))
    for text in ("attention", "FJ102", "compiled", "output"):
        assert text in view
    assert "hint:" in finding and str(ROOT) not in finding
    assert "@font-face" not in view and "<script" not in view
