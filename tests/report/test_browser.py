"""The page in a browser without a window: no errors, links open what they lead to, keys work, nothing overflows, dark
is dark."""
import re
import shutil
import subprocess

import pytest

from framejit.report.html import page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.skipif(BROWSER is None, reason="there is no Chromium"), pytest.mark.slow]


NOTEBOOK = """<!doctype html><html><head><meta charset="utf-8"><title></title><style>
body {{ background: {back}; color: {front}; }} pre {{ background: lime; color: lime; }} td {{ color: lime; }}
</style></head><body><p id="other">a cell</p>{cell}</body></html>"""


@pytest.fixture
def browse(explained, tmp_path):
    """Opens the page, runs a script after its own, and returns what the script said: the title it gave the page."""

    def run(script: str, *options: str, width: int = 1200, fragment: str = "", text: str = "") -> str:
        path = tmp_path / "report.html"
        path.write_text((text or page(explained)).replace("</body>", f"<script>{script}</script></body>"))
        command = [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path}/profile",
        ]
        command += [
            *options, f"--window-size={width},900", "--virtual-time-budget=2000", "--dump-dom",
            f"{path.as_uri()}{fragment}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return re.search(r"<title>(.*?)</title>", done.stdout)[1]

    return run


def test_keys_and_counts(browse):
    press = "dispatchEvent"
    script = f"""
        const key = (k) => document.body.{press}(new KeyboardEvent("keydown", {{ key: k, bubbles: true }}));
        const seen = [];
        for (const k of ["j", "j", "j", "k"]) {{ key(k); seen.push(document.activeElement.id); }}
        key("o");
        seen.push([...document.querySelectorAll("details")].every((d) => d.open));
        key("o");
        seen.push([...document.querySelectorAll("details")].some((d) => d.open));
        seen.push(document.querySelectorAll(".finding").length);
        document.title = seen.join(" ");
    """
    assert browse(script) == "finding-1 finding-2 finding-2 finding-1 true false 2"


def test_a_link_opens_the_part_it_leads_to(browse, explained):
    graph_id = explained.graphs[1].graph_id
    script = (
        f'document.title = document.getElementById("graph-{graph_id}").open + " " + '
        'document.querySelectorAll(".graph[open]").length'
    )
    assert browse(script, fragment=f"#graph-{graph_id}") == "true 1"


@pytest.mark.parametrize("width", [500, 900, 1600])
def test_nothing_is_wider_than_the_window(browse, width):
    script = """
        document.querySelectorAll("details").forEach((d) => { d.open = true; });
        document.title = document.documentElement.scrollWidth <= innerWidth;
    """
    assert browse(script, width=width) == "true"


def test_everything_that_scrolls_can_be_reached_by_key(browse):
    script = """
        document.querySelectorAll("details").forEach((d) => { d.open = true; });
        const scrolling = [...document.querySelectorAll("pre, .scroll")].filter((e) => e.scrollWidth > e.clientWidth);
        const stuck = scrolling.filter((e) => e.tabIndex < 0);
        document.title = stuck.length;
    """
    assert browse(script) == "0"


def test_light_and_dark(browse):
    script = "document.title = getComputedStyle(document.body).backgroundColor"
    assert browse(script, "--blink-settings=preferredColorScheme=1") == "rgb(255, 255, 255)"
    assert browse(script, "--blink-settings=preferredColorScheme=0") == "rgb(13, 17, 23)"


@pytest.mark.parametrize(("back", "front"), [("white", "rgb(0, 0, 0)"), ("black", "rgb(255, 255, 255)")])
def test_a_notebook_s_colours_are_taken(browse, explained, back, front):
    script = """
        document.querySelectorAll("details").forEach((d) => { d.open = true; });
        const cell = document.querySelector(".framejit");
        const colours = [...cell.querySelectorAll("pre, td, h4")].map((e) => getComputedStyle(e).color);
        colours.push(...[...cell.querySelectorAll("svg text")].map((e) => getComputedStyle(e).fill));
        const boxes = [...cell.querySelectorAll("svg")].every((e) => e.getBoundingClientRect().height > 50);
        const other = getComputedStyle(document.getElementById("other")).fontSize;
        document.title = [...new Set(colours)].join("; ") + " " + boxes + " " + other;
    """
    text = NOTEBOOK.format(back=back, front=front, cell=explained._repr_html_())
    assert browse(script, text=text) == f"{front} true 16px"
