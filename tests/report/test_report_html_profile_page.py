from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from factory_of_profiles import made

from aiperf.records.profiled import Profile
from aiperf.report.html.profile_page import profiles_html


class Outline(HTMLParser):
    """Headings of a page, and what it would load from elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in ("h1", "h2") and data.strip():
            self.headings.append(data)


def named(*names: str) -> list[Profile]:
    return [replace(made(), case=name) for name in names]


def test_the_page_has_the_table_of_the_cases_and_every_case_with_its_pictures() -> None:
    page = profiles_html("2026-run", named("one", "two"))
    assert Outline(page).headings == ["2026-run", "one", "two"]
    assert page.count("<svg") == 4
    assert "2 cases profiled" in page
    assert page.index("2 cases profiled") < page.index("<h2>one")
    assert page.count("Counters, by ncu") == 2
    assert "2 cases profiled" not in profiles_html("2026-run", named("one"))


def test_the_page_needs_nothing_from_outside_and_escapes_names() -> None:
    page = profiles_html("<b>run", named("<script>alert(1)</script>\x1b[31m"))
    assert "script" not in Outline(page).tags
    assert "\x1b" not in page
    assert not re.search(r"https?://(?!www\.w3\.org)|<link[^>]+href=\"(?!data:)", page)


def test_a_page_that_would_be_too_large_says_how_many_cases_it_leaves_out() -> None:
    whole = profiles_html("run", named("one", "two", "three"))
    most = len(whole.encode()) - 1000
    page = profiles_html("run", named("one", "two", "three"), most_bytes=most)
    assert Outline(page).headings == ["run", "one", "two"]
    assert "1 more case is not shown in full" in page
    assert len(page.encode()) <= most
    # The table still has it.
    assert page.count("three") == 1
