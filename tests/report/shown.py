"""What a reader of HTML sees in it."""
from __future__ import annotations

import collections
from html.parser import HTMLParser

VOID = {"meta", "line", "rect", "path"}


class Page(HTMLParser):
    """What is in a page, and that each element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.classes: collections.Counter[str] = collections.Counter()
        self.facts: dict[str, int] = {}
        self.elements: collections.Counter[str] = collections.Counter()
        self._fact = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.elements[tag] += 1
        self.classes.update((found.get("class") or "").split())
        assert not {"src", "onclick", "onload", "style"} & set(found), found
        if "id" in found:
            self.ids.append(found["id"])
        if "href" in found:
            self.links.append(found["href"])
        self._fact = found.get("data-fact") or self._fact
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self._fact and data.strip().isdigit():
            self.facts[self._fact] = int(data)
            self._fact = ""
