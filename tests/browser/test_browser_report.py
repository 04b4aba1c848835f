"""The HTML page in a real browser: sorting, filtering, colours, paper, small windows, no scripts, no network, speed."""

from __future__ import annotations

import base64
import math
import re
from pathlib import Path

import pytest
from browser_window import Window
from factory_of_pages import many
from selenium.webdriver.common.keys import Keys

CASE, BEFORE, SPEEDUP, PAIRS, VERDICT = 1, 2, 4, 8, 9
MOST_MILLISECONDS = 3000
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def numbers(texts: list[str]) -> list[float]:
    """The number that a cell shows; not a number for a dash."""
    found = []
    for text in texts:
        match = re.match(r"([\d.]+)\s*(\S*)", text)
        found.append(float(match.group(1)) * UNITS.get(match.group(2), 1.0) if match else math.nan)
    return found


def rows_of_many() -> int:
    """Of the page of 5000 cases: the skips, all for one reason, are one row."""
    skipped = sum(record.status == "skipped" for record in many(5000)[1])
    assert skipped > 50
    return 5000 - skipped + 1


def told(values: list[float]) -> list[float]:
    return [v for v in values if not math.isnan(v)]


def seen(window: Window, selector: str) -> bool:
    return window.ask("document.querySelector(arguments[0]).checkVisibility()", selector)


@pytest.mark.parametrize("column", [BEFORE, SPEEDUP, PAIRS])
def test_a_column_is_sorted_by_its_numbers_with_rows_that_have_none_last(window, page, column) -> None:
    window.show(page)
    asked = numbers(window.column(column))
    window.head(column).click()
    upwards = numbers(window.column(column))
    assert told(upwards) == sorted(told(asked))
    assert [math.isnan(v) for v in upwards] == sorted(math.isnan(v) for v in asked)
    window.head(column).click()
    downwards = numbers(window.column(column))
    assert told(downwards) == sorted(told(asked), reverse=True)
    assert not math.isnan(downwards[0])
    assert math.isnan(downwards[-1])


def test_numbers_are_not_sorted_as_text(window, page) -> None:
    window.show(page)
    window.head(BEFORE).click()
    shown = [t for t in window.column(BEFORE) if t != "–"]
    assert shown != sorted(shown)


def test_words_are_sorted_as_people_sort_them(window, page) -> None:
    window.show(page)
    window.head(CASE).click()
    sizes = [t for t in window.column(CASE) if t.endswith("iB")]
    assert sizes.index("h2d 1MiB") < sizes.index("h2d 256MiB")
    assert [t for t in sizes if "h2d" not in t] == ["1KiB", "2MiB", "64KiB"]


def test_the_sorted_column_and_its_direction_are_told_to_those_who_cannot_see_arrows(window, page) -> None:
    window.show(page)
    sorted_heads = "[...document.querySelectorAll('#cases th[aria-sort]')].map(h => [h.textContent, h.ariaSort])"
    assert window.ask(sorted_heads) == []
    window.head(SPEEDUP).click()
    assert window.ask(sorted_heads) == [["speedup", "ascending"]]
    window.head(SPEEDUP).click()
    assert window.ask(sorted_heads) == [["speedup", "descending"]]
    window.head(BEFORE).click()
    assert window.ask(sorted_heads) == [["before", "ascending"]]


@pytest.mark.parametrize("key", [Keys.ENTER, Keys.SPACE], ids=["enter", "space"])
def test_the_keyboard_sorts_too(window, page, key) -> None:
    window.show(page)
    window.ask("document.querySelectorAll('#cases th button')[3].focus()")
    window.driver.switch_to.active_element.send_keys(Keys.TAB)
    focused = window.driver.switch_to.active_element
    assert focused.text.startswith("speedup")
    assert window.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    focused.send_keys(key)
    speedups = told(numbers(window.column(SPEEDUP)))
    assert speedups == sorted(speedups)


def test_a_count_filters_by_its_outcome_and_lets_go_again(window, page) -> None:
    window.show(page)
    everything = len(window.column(0))
    for word in ("improved", "skipped", "failed", "inconclusive", "not-begun"):
        tile = f"#tiles li.{word}"
        count = int(window.ask("document.querySelector(arguments[0]).querySelector('b').textContent", tile))
        window.press(f"{tile} button")
        assert {v.replace(" ", "-") for v in window.column(VERDICT)} == {word}
        # Skips for one reason are one row.
        assert len(window.column(VERDICT)) == (1 if word == "skipped" else count)
        assert count > 0
        assert window.ask("document.querySelectorAll('#tiles [aria-pressed=true]').length") == 1
        window.press(f"{tile} button")
        assert len(window.column(0)) == everything


def test_text_scenario_and_tag_filter_together_and_the_rest_is_counted(window, page) -> None:
    window.show(page)
    everything = len(window.column(0))
    window.driver.find_element("id", "text").send_keys("COPY 256")
    assert window.column(CASE) == ["h2d 256MiB"]
    assert window.ask("document.getElementById('shown').value") == f"1 of {everything} rows"
    window.press("#clear")
    window.driver.execute_async_script("setTimeout(arguments[0])")
    assert len(window.column(0)) == everything
    choose = "(e => { e.value = arguments[1]; e.dispatchEvent(new Event('input', {bubbles: true})); })"
    window.ask(f"{choose}(document.getElementById(arguments[0]))", "tag", "sweeping")
    assert set(window.column(0)) == {"swept"}
    window.ask(f"{choose}(document.getElementById(arguments[0]))", "scenario", "time-slicing-vs-mps")
    assert window.column(0) == []


def test_sorting_keeps_the_filter_and_the_address_brings_both_back(window, page) -> None:
    window.show(page)
    window.press("#tiles li.improved button")
    window.head(SPEEDUP).click()
    window.head(SPEEDUP).click()
    shown = window.column(SPEEDUP)
    assert numbers(shown) == sorted(numbers(shown), reverse=True)
    address = window.ask("location.hash")
    window.show(page, hash_=address)
    assert window.column(SPEEDUP) == shown
    assert set(window.column(VERDICT)) == {"improved"}
    assert window.ask("location.hash") == address


def test_a_row_leads_to_its_case_in_full(window, page) -> None:
    window.show(page)
    window.press("#cases tbody a")
    target = window.ask("location.hash")
    top = window.ask("document.querySelector(arguments[0]).getBoundingClientRect().top", target)
    assert 0 <= top < 900
    assert seen(window, f"{target} svg")


def test_without_scripts_the_table_is_whole_and_links_work(window, without_scripts, page) -> None:
    window.show(page)
    with_scripts = window.column(VERDICT)
    without_scripts.show(page)
    assert without_scripts.column(VERDICT) == with_scripts
    assert without_scripts.ask("document.querySelectorAll('#cases th button').length") == 0
    assert not seen(without_scripts, "#filters")
    assert not seen(without_scripts, "#theme")
    assert seen(without_scripts, "#tiles li.regressed")
    assert seen(without_scripts, "figure svg")
    without_scripts.press("#cases tbody a")
    target = without_scripts.ask("location.hash")
    assert 0 <= without_scripts.ask("document.querySelector(arguments[0]).getBoundingClientRect().top", target) < 900


def test_dark_and_light_follow_the_system_and_the_button_turns_them(window, page) -> None:
    looks = []
    for dark in (False, True):
        window.show(page, dark=dark)
        looks.append((window.colour("body", "backgroundColor"), window.colour("svg text", "fill")))
    assert looks[0] == ("rgb(255, 255, 255)", looks[0][1])
    assert looks[0][0] != looks[1][0]
    assert looks[0][1] != looks[1][1]
    window.press("#theme")
    assert window.colour("body", "backgroundColor") == looks[0][0]
    window.press("#theme")
    assert window.colour("body", "backgroundColor") == looks[1][0]


@pytest.mark.parametrize("name", ["page", "evil_page", "big_page", "empty_page"])
def test_the_console_stays_empty_and_nothing_is_asked_for_but_the_file(window, name, request) -> None:
    path = request.getfixturevalue(name)
    window.show(path)
    window.ask("document.querySelectorAll('#cases th button').forEach(b => b.click())")
    assert window.complaints() == []
    assert {url for url in window.requests() if not url.startswith("data:")} == {path.as_uri()}


def test_texts_of_records_run_nothing_and_add_nothing(window, evil_page) -> None:
    window.show(evil_page)
    assert window.ask("document.images.length") == 0
    assert window.ask("document.scripts.length") == 2
    assert "<script>alert(1)</script>" in window.ask("document.querySelector('h1').textContent")
    assert len(window.column(0)) == 4
    window.press("#tiles li.failed button")
    assert len(window.column(0)) == 1


def test_paper_shows_everything_and_no_button(window, page) -> None:
    window.show(page, dark=True)
    articles = window.ask("document.querySelectorAll('article').length")
    window.emulate(dark=True, media="print")
    assert window.colour("body", "backgroundColor") == "rgb(255, 255, 255)"
    assert not seen(window, "#theme")
    assert not seen(window, "#filters")
    copies = "[...document.querySelectorAll('button')].filter(b => b.textContent === 'copy')"
    assert window.ask(f"{copies}.length") > 1
    assert not any(window.ask(f"{copies}.map(b => b.checkVisibility())"))
    assert seen(window, "#cases th button")
    drawn = "[...document.querySelectorAll('article')].filter(a => getComputedStyle(a).contentVisibility === 'visible')"
    assert window.ask(f"{drawn}.length") == articles > 5
    assert window.ask("document.documentElement.scrollWidth <= innerWidth")
    printed = base64.b64decode(window.driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 3
    assert window.ask("[...document.querySelectorAll('details')].every(d => d.open)")


def test_those_who_cannot_see_it_find_a_table_with_rows_and_headings(window, page) -> None:
    window.show(page)
    nodes = window.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [n["role"]["value"] for n in nodes if not n["ignored"]]
    assert "table" in roles
    assert roles.count("columnheader") >= 11
    assert roles.count("row") > len(window.column(0))
    images = [n for n in nodes if not n["ignored"] and n["role"]["value"] in ("image", "img")]
    assert all(n["name"]["value"] for n in images)
    assert len(images) >= 3


def test_rows_out_of_sight_are_there_for_those_who_cannot_see_too(window, big_page) -> None:
    window.show(big_page)
    nodes = window.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    assert sum(n["role"]["value"] == "row" for n in nodes if not n["ignored"]) > rows_of_many()


def test_a_narrow_window_loses_nothing_to_the_side_and_no_verdict(window, page) -> None:
    window.show(page, width=400)
    assert window.ask("document.documentElement.scrollWidth") <= 400
    right = "[...document.querySelectorAll('#cases tbody tr')].map(r => r.cells[9].getBoundingClientRect().right)"
    assert max(window.ask(right)) <= 400


def test_five_thousand_cases_open_and_sort_in_under_three_seconds(window, big_page) -> None:
    assert big_page.stat().st_size < 3_000_000
    window.show(big_page)
    taken = window.driver.execute_async_script(
        "const done = arguments[0];"
        "document.querySelectorAll('#cases th button')[4].click();"
        "document.body.getBoundingClientRect();"
        "requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));"
    )
    keys = window.ask("[...document.querySelectorAll('#cases tbody tr')].map(r => r.dataset.k.split(' ')[2])")
    assert len(keys) == rows_of_many()
    assert keys == sorted(keys, key=lambda k: math.inf if k == "-" else float(k))
    assert taken < MOST_MILLISECONDS


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_a_picture_of_the_page_can_be_looked_at(window, page, tmp_path, width, dark) -> None:
    window.show(page, width=width, height=1800, dark=dark)
    path = tmp_path / f"{width}-{'dark' if dark else 'light'}.png"
    assert window.driver.save_screenshot(str(path))
    assert Path(path).stat().st_size > 20_000
