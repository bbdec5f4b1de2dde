"""The page as a file: counts, links, and that it needs nothing from elsewhere."""
import collections

import pytest

import framejit
from framejit.findings.explanation import Explanation
from framejit.report.html import page, write_html

from shown import Page


def test_counts_are_those_of_the_events(explained):
    count = collections.Counter(event.kind for event in explained.events)
    shown = Page(page(explained))
    assert shown.facts == {
        "graphs": count["graph"],
        "operations": sum(event.n_ops for event in explained.events if event.kind == "graph"),
        "graph breaks": count["graph_break"],
        "recompiles": count["recompile"],
        "frames": count["frame_done"],
    }
    assert shown.facts["graphs"] > 2 and shown.facts["recompiles"] > 0
    assert shown.classes["finding"] == len(explained.findings) == 2
    assert shown.classes["graph"] == count["graph"] and shown.classes["guards"] == count["guards"]
    assert shown.classes["kernel"] == count["output_code"] > 0 and shown.classes["capture"] == count["capture_started"]
    assert shown.elements["mark"] == 2


def test_links_lead_somewhere_and_only_inside(explained):
    shown = Page(page(explained))
    assert len(set(shown.ids)) == len(shown.ids)
    assert shown.links and all(link.startswith("#") and link[1:] in shown.ids for link in shown.links)


def test_what_programs_say_is_escaped(explained):
    text = page(explained)
    assert text.count("<script>") == 1 and text.count("</script>") == 1
    assert "alert(&#x27;1&#x27;)" in text and "alert('1')" not in text


def test_it_loads_nothing(explained):
    text = page(explained)
    for word in ("http:", "https:", "@import", "url(", "<link", "<img"):
        assert word not in text


def test_a_report_with_nothing_in_it(tmp_path):
    shown = Page(page(Explanation()))
    assert set(shown.facts.values()) == {0}


def test_a_report_read_from_a_file(explained, tmp_path):
    from framejit.findings.saved_report import read_report

    explained.save(tmp_path / "report.json")
    shown, direct = Page(page(read_report(tmp_path / "report.json"))), Page(page(explained))
    for kind in ("capture", "bar", "part"):
        assert shown.classes[kind] == direct.classes[kind] > 0
    assert (
        shown.classes["finding"] == 2 and shown.classes["graph"] == len(explained.graphs) and shown.classes["node"] > 0
    )


def test_explain_writes_it(tmp_path):
    def f(x):
        return x + 1

    import torch

    framejit.explain(f)(torch.ones(2)).to_html(tmp_path / "report.html")
    assert Page((tmp_path / "report.html").read_text()).facts["graphs"] == 1


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(OSError):
        write_html(Explanation(), tmp_path / "no" / "report.html")
