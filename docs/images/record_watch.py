"""Records the pictures of `framejit run --watch` in the guide: `python docs/images/record_watch.py` writes watch.svg
and watch_finding.svg beside this file, or into the folder that it is given.

What they show is what the view would have shown at one moment of `watched.py`: as its last function is compiled.
"""
import contextlib
import io
import re
import sys
from pathlib import Path

from rich.console import Console

from framejit import events, script
from framejit.config import config
from framejit.watch.keys import DOWN, OPEN
from framejit.watch.told import Telling
from framejit.watch.view import View

HERE = Path(__file__).parent
WIDTH, HEIGHT = 116, 34
FONTS_FROM_ELSEWHERE = re.compile(r"@font-face \{.*?\}\s*", re.S)


def record(view, lines):
    """The picture as an SVG that needs nothing else."""
    console = Console(width=WIDTH, height=HEIGHT, record=True, force_terminal=True, file=io.StringIO())
    console.print(view.picture(console.size, lambda most: lines[-most:]))
    return FONTS_FROM_ELSEWHERE.sub("", console.export_svg(title="framejit run --watch watched.py"))


def anywhere(finding):
    """The finding without the folder that this checkout happens to be in."""
    def short(file):
        return file.replace(str(HERE), "…")

    callers = [(short(file), line, name) for file, line, name in finding["callers"]]
    return {**finding, "file": short(finding["file"]), "callers": callers}


def main(folder):
    config.compile_after, config.keep_captures = 0, False  # captured anew, whatever is on the disk
    telling, view, written = Telling(), View("watched.py", has_keyboard=True), io.StringIO()
    last = []

    def hear(event):
        if event.kind == "graph" and event.n_ops >= 12:
            last.append((telling.now(), written.getvalue().splitlines()))

    events.subscribe(hear)
    with contextlib.redirect_stdout(written):
        script.run(str(HERE / "watched.py"), [])
    told, lines = last[0]
    view.take({**told, "findings": [anywhere(finding) for finding in told["findings"]]})
    (folder / "watch.svg").write_text(record(view, lines))
    view.press(OPEN)
    finding = record(view, lines)
    while "hint:" not in finding:  # which finding is how far down depends on what each cost
        view.press(DOWN)
        finding, before = record(view, lines), finding
        assert finding != before, "no finding has a hint"
    (folder / "watch_finding.svg").write_text(finding)


main(Path(sys.argv[1]) if sys.argv[1:] else HERE)
