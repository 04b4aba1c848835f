"""The documentation: built strict without a network, generated from what there is, complete, and loading nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from aiperf.cli.defaults import DEFAULTS, variable
from aiperf.cli.main import COMMANDS
from aiperf.scenario.schema import ScenarioFile
from aiperf.scenario.signature import shipped_workloads
from docs.generate.drawings import DRAWINGS, FOLDER
from docs.generate.manual import manual
from docs.generate.picture import PICTURE, picture
from docs.generate.recordings import RECORDINGS, recording
from docs.generate.reference import commands_page, scenario_page, workloads_page

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
_DEAD = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built from a copy without the page that others write, where no address can be reached."""
    copy, folder = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("site")
    for name in ("docs", "aiperf", "scenarios", "configs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "trust.md"))
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, copy / name)
    env = {**os.environ, "https_proxy": _DEAD, "http_proxy": _DEAD, "NO_MKDOCS_2_WARNING": "1"}
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(argv, cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
def test_every_page_of_the_nav_that_is_written_is_built(site) -> None:
    named = re.findall(r": (\w+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert {page.stem for page in site.glob("*.html")} - {"404"} == set(named) - {"trust"}
    assert len(named) == 16


@pytest.mark.long
def test_a_page_loads_nothing_from_elsewhere(site) -> None:
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\bsrc=\"?([^\" >]+)", text)
        loaded += re.findall(r"<link[^>]*\brel=\"?(?:stylesheet|icon|preload|preconnect)\"?[^>]*", text)
        assert loaded
        assert [one for one in loaded if "//" in one] == []
    assert not (site / "generate").exists()


def test_the_commands_page_and_the_manual_name_every_command_and_option(here_help) -> None:
    page, roff = commands_page(), manual()
    for name in COMMANDS:
        assert f"## aiperf {name}\n" in page
        assert f".SS aiperf {name}\n" in roff
        for flag in set(re.findall(r"(?<=\s)--[a-z-]+", here_help(name))) - {"--help"}:
            assert f"`{flag}`" in page
    assert ".B \\-\\-suite \\fINAME|FILE\\fR\n" in roff
    assert ".B \\-\\-dry\\-run\n" in roff
    assert ".SH EXIT STATUS" in roff
    assert all(variable(option) in roff for option in DEFAULTS)


@pytest.fixture
def here_help():
    """The options of a command as its parser knows them."""
    from docs.generate.reference import command_of

    return lambda name: " " + " ".join(flag for p in command_of(name).params for flag in (*p.opts, *p.secondary_opts))


def test_the_scenario_page_has_every_key_and_links_that_lead_somewhere() -> None:
    page = scenario_page()
    assert all(f"| `{key}` |" in page for key in ScenarioFile.model_fields)
    anchors = {re.sub("[^a-z]+", "-", title.lower()) for title in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    assert set(re.findall(r"\(#([\w-]+)\)", page)) <= anchors


def test_the_workload_page_has_every_shipped_workload() -> None:
    assert set(re.findall(r"^### (\S+)$", workloads_page(), re.MULTILINE)) == set(shipped_workloads())


def test_every_variable_is_on_the_settings_page_and_every_default() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "aiperf").rglob("*.py")]
    used = set(re.findall(r"\bAIPERF_[A-Z]+(?:_[A-Z]+)*\b", "\n".join(sources)))
    assert len(used) > 10
    assert {name for name in used if f"`{name}`" not in SETTINGS} == set()
    for option, meaning in DEFAULTS.items():
        assert f"| `--{option}` | `{variable(option)}` | {meaning} |" in SETTINGS


@pytest.mark.long
def test_the_pictures_are_those_that_the_generators_draw() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture()
    for name, draw in DRAWINGS.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == draw()
    for name, width in RECORDINGS.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == recording(width)
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        assert "var(" not in text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(("name", "width"), RECORDINGS.items())
def test_a_recording_holds_every_interval_and_verdict_within_its_width(name: str, width: int) -> None:
    drawn = ElementTree.fromstring((FOLDER / name).read_text(encoding="utf-8"))
    rows: dict[str, list[str]] = {}
    for part in drawn.iter("{http://www.w3.org/2000/svg}text"):
        rows.setdefault(part.get("y", ""), []).append((part.text or "").replace("\xa0", " "))
    lines = ["".join(parts).rstrip() for parts in rows.values()]
    assert max(map(len, lines)) <= width
    words = "improved|regressed|equivalent|inconclusive"
    compared = [line for line in lines if re.search(rf"×\s+[\d.]+ … [\d.]+.*\b({words})$", line)]
    assert len(compared) == 14
    assert any("of limit" in line for line in lines) == (width >= 160)


def test_the_readme_is_short_and_shows_the_picture() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert "](docs/pictures/one-h200.svg)" in text
    assert "*AI Systems Performance Engineering*" in text
    assert all(name in text for name in ("make demo", "make test"))
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []
