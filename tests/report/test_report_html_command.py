"""``aiperf report --html``: where the page goes, what is printed, which flags do not go together."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest
from factory_of_pages import concluded, sampled
from factory_of_records import make_case, make_run

from aiperf.cli.main import entry
from aiperf.report.html.view import command
from aiperf.store.write import RunWriter


@pytest.fixture
def stored(tmp_path):
    """A stored run of two cases with their samples: its folder."""
    writer = RunWriter.create(tmp_path / "results", hostname="gpu-07")
    ids = []
    for size in ("1MiB", "2MiB"):
        case = make_case("copy", axes={"size": size})
        pairs = sampled(case, times={"before": 2e-3, "after": 1e-3})
        writer.write_case(replace(concluded(case, pairs), pairs=tuple(pairs)))
        ids.append(case.id)
    writer.write_run(make_run(run=writer.folder.name, planned=tuple(ids)))
    return writer.folder


@pytest.fixture
def types(stored, monkeypatch, capsys):
    """Type ``aiperf report`` with flags; (exit code, stdout, stderr)."""

    def typed(*argv: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["aiperf", "report", "--results", str(stored.parent), *argv])
        capsys.readouterr()
        code = int(entry())
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return code, told.out, told.err

    return typed


def test_the_page_goes_into_the_folder_of_the_run_and_its_path_is_printed(stored, types) -> None:
    code, out, err = types("--html")
    assert (code, out, err) == (0, f"{stored / 'report.html'}\n", "")
    page = (stored / "report.html").read_text(encoding="utf-8")
    assert page.count("<article") == 2
    assert "before: 72 samples in 6 pairs" in page
    assert [p.name for p in stored.iterdir() if p.name.startswith(".")] == []


def test_a_run_is_reproduced_by_the_name_of_the_command_wherever_it_was_installed() -> None:
    typed = ("/opt/site packages/aiperf/__main__.py", "run", "--only", "size=1 MiB")
    assert command(make_run(argv=typed)) == "aiperf run --only 'size=1 MiB'"
    assert command(make_run(argv=())) == ""


def test_the_parts_of_a_run_are_one_table_and_one_page(stored, types) -> None:
    writer = RunWriter.create(stored.parent, hostname="gpu-07")
    case = make_case("add")
    pairs = sampled(case, times={"before": 3e-3, "after": 1e-3})
    writer.write_case(replace(concluded(case, pairs), pairs=tuple(pairs)))
    writer.write_run(make_run(run=writer.folder.name, planned=(case.id,)))
    code, out, err = types(stored.name, writer.folder.name)
    assert (code, err) == (0, "")
    assert "3 improved" in out
    assert types(stored.name, writer.folder.name, "--recompute")[1].count("3 of 3 cases unchanged") == 1
    code, out, _ = types(stored.name, writer.folder.name, "--html")
    assert out == f"{stored / 'report-2-parts.html'}\n"
    assert (stored / "report-2-parts.html").read_text(encoding="utf-8").count("<article") == 3


def test_programs_are_told_the_path_as_json(stored, types) -> None:
    assert json.loads(types("--html", "--json")[1]) == {"html": str(stored / "report.html")}


def test_a_page_goes_where_it_is_asked_to_and_replaces_what_was_there(stored, types, tmp_path) -> None:
    path = tmp_path / "my page.html"
    path.write_text("old")
    assert types("--html", "--output", str(path))[1] == f"{path}\n"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not (stored / "report.html").exists()


def test_the_page_of_one_case_stands_beside_that_of_the_run(stored, types) -> None:
    types("--html")
    whole = (stored / "report.html").read_text(encoding="utf-8")
    out = types("--html", "--case", "copy[size=2MiB]")[1]
    assert out == f"{stored / 'report-copy[size=2MiB].html'}\n"
    page = (stored / "report-copy[size=2MiB].html").read_text(encoding="utf-8")
    assert re.findall(r"<h4>(\S+)", page) == ["copy[size=2MiB]"]
    assert (stored / "report.html").read_text(encoding="utf-8") == whole
    both = types("--html", "--case", "copy[size=2MiB]", "--case", "copy[size=1MiB]")[1]
    assert both == f"{stored / 'report-cases.html'}\n"


def test_a_case_that_is_not_there_is_a_mistake_that_names_those_that_are(types) -> None:
    code, out, err = types("--html", "--case", "cop")
    assert (code, out) == (2, "")
    assert "copy[size=1MiB]" in err


@pytest.mark.parametrize(
    "argv", [("--output", "x.html"), ("--case", "copy[size=1MiB]"), ("--html", "--format", "csv")], ids=" ".join
)
def test_flags_that_would_not_be_heeded_are_refused(types, argv) -> None:
    code, out, err = types(*argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 2


def test_a_place_that_cannot_be_written_is_a_mistake_that_names_it(types, tmp_path) -> None:
    for path in (tmp_path, tmp_path / "no" / "folder.html"):
        code, _, err = types("--html", "--output", str(path))
        assert code == 2
        assert str(path) in err
        assert "--output" in err


def test_a_damaged_record_is_told_on_the_page_and_on_stderr(stored, types) -> None:
    (stored / "cases" / "bad.json").write_text("{")
    _, _, err = types("--html")
    assert "bad.json" in err
    assert "bad.json" in (stored / "report.html").read_text(encoding="utf-8")


def test_samples_that_are_gone_do_not_cost_the_page(stored, types) -> None:
    shutil.rmtree(stored / "samples")
    assert types("--html")[0] == 0
    assert (stored / "report.html").read_text(encoding="utf-8").count("The samples could not be read") == 2


def test_a_page_of_recomputed_results_says_which_differ_and_exits_with_5(stored, types) -> None:
    path = next((stored / "cases").glob("copy*1MiB*.json"))
    record = json.loads(path.read_text())
    record["results"][0]["comparison"]["ratio"] = 99.0
    path.write_text(json.dumps(record))
    code, _, err = types("--html", "--recompute")
    assert code == 5
    assert "copy[size=1MiB] differs from what was stored" in err
    page = (stored / "report.html").read_text(encoding="utf-8")
    assert "copy[size=1MiB] differs from what was stored" in page
    assert "99.0×" not in page


def test_the_page_can_be_made_where_nothing_but_the_run_is(stored, types, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert types("--html", "--output", "here.html")[1] == "here.html\n"
    assert (tmp_path / "here.html").is_file()
