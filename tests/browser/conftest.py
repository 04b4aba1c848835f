"""One browser for all tests of a session, one without scripts, and the pages that they look at."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report"))

from browser_window import Window
from factory_of_pages import concluded, evil, many, nothing, reader, sampled
from factory_of_records import make_case, make_run, sample_records

from aiperf.report.html.page import render_html


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    made = Window.start(tmp_path_factory.mktemp("profile"))
    yield made
    made.driver.quit()


@pytest.fixture(scope="session")
def without_scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    made = Window.start(tmp_path_factory.mktemp("profile"), javascript=False)
    yield made
    made.driver.quit()


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def page(shelf: Path) -> Path:
    """Every outcome, some with samples, one case never begun."""
    records, kept = sample_records(), {}
    for number, size in enumerate(("1KiB", "64KiB", "2MiB")):
        case = make_case("swept", axes={"size": size}, tags=("sweeping",))
        pairs = sampled(case, times={"before": 1e-6 * 40**number, "after": 2e-6 * 30**number})
        kept["swept"] = pairs
        records.append(concluded(case, pairs))
    run = make_run(planned=(*(r.case.id for r in records), "later"), status="interrupted")
    return written(shelf / "page.html", render_html(run, records, pairs=reader(**kept)))


@pytest.fixture(scope="session")
def evil_page(shelf: Path) -> Path:
    return written(shelf / "evil.html", evil())


@pytest.fixture(scope="session")
def big_page(shelf: Path) -> Path:
    run, records = many(5000)
    pairs = sampled(make_case(), samples=60, times={"before": 1.1e-3, "after": 1e-3})
    return written(shelf / "big.html", render_html(run, records, pairs=lambda _: tuple(pairs)))


@pytest.fixture(scope="session")
def empty_page(shelf: Path) -> Path:
    return written(shelf / "empty.html", render_html(make_run(findings=()), [], pairs=nothing))
