"""Each page of the guide does what it says: its snippets run, its commands write what it shows, its links lead
somewhere."""
import re

import pytest

from pages import ROOT, blocks, commands, file_name, prepare, prose, run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GUIDE = {"start", "how-it-works", "explain-a-program", "write-a-backend"}


def test_the_guide_has_its_four_pages():
    assert {page.stem for page in PAGES} >= GUIDE


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_is_true(page, tmp_path):
    environment = prepare(tmp_path)
    for language, text in blocks(page):
        name = file_name(text) if language == "python" else None
        if name is not None:
            (tmp_path / name).write_text(text)
        for command in commands(text) if language == "console" else ():
            output = run(command, tmp_path, environment)
            assert re.fullmatch(command.pattern, output), f"$ {command.line}\n{output}\n\nshown:\n{command.output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_snippet_is_run(page):
    """A Python block is a file, and a command of the page runs it or runs what imports it."""
    text = page.read_text()
    ran = " ".join(
        command.line for language, block in blocks(page) if language == "console" for command in commands(block)
    )
    for language, block in blocks(page):
        if language == "python":
            name = file_name(block)
            assert name is not None, f"a block has no name: {block.splitlines()[0]}"
            module = name.removesuffix(".py")
            assert name in ran or f"-m {module}" in ran or re.search(rf"^(from|import) {module}\b", text, re.M), name


def test_the_architecture_names_files_that_exist_and_each_in_one_way():
    folders = ("framejit", "guards", "backends", "tests", "benchmarks", "examples", "docs")
    files = [f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.*")]
    files += [f"/{path.name}" for path in ROOT.iterdir()]
    named = re.findall(r"`([\w/.]+\.(?:py|c|h|md))`", (ROOT / "ARCHITECTURE.md").read_text())
    meant = {name: [file for file in files if file.endswith(f"/{name}")] for name in named}
    assert {name: found for name, found in meant.items() if len(found) != 1} == {}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md"], ids=lambda page: page.stem)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose(page)):
        if "://" not in target:
            assert (page.parent / target).exists(), target
