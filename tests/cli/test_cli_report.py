"""``aiperf report`` and ``aiperf show RUN CASE`` on a stored run."""

from __future__ import annotations

import csv
import html
import io
import json
import shutil

import pyarrow.parquet as pq
import pytest
from cli_user import CALM

from aiperf.cli.main import entry


@pytest.fixture
def run(reader, user, here):
    """A copy of the measured run, to read or to spoil."""
    shutil.copytree(reader.folder / "results", user.folder / "results", symlinks=True)
    return here


def test_the_latest_run_is_told_again_word_for_word(run, user) -> None:
    told = run("report")
    assert told.code == 0
    assert "verdicts provisional" in told.out
    assert run("report", user.latest().name).out == run("report", f"results/{user.latest().name}").out == told.out


def test_a_run_comes_in_every_dialect(run) -> None:
    outcomes = json.loads(run("report", "--json").out)["outcomes"]
    assert set(outcomes) <= CALM
    assert run("report", "--format", "json").out == run("report", "--json").out
    rows = list(csv.DictReader(io.StringIO(run("report", "--format", "csv").out)))
    assert rows[0]["scenario"] == "tiny"
    assert f"| {next(iter(outcomes))}" in run("report", "--format", "markdown").out
    assert len(run("report", "--all-metrics").out) > len(run("report").out)


def test_recomputing_from_the_raw_samples_comes_out_the_same(run) -> None:
    told = run("report", "--recompute")
    assert told.code == 0
    assert "1 of 1 cases unchanged" in told.out


def test_other_samples_give_another_result_and_exit_with_5(run, user) -> None:
    path = user.latest() / "samples" / "tiny.parquet"
    table = pq.read_table(path)
    rows = table.select(["side", "wall_s"]).to_pylist()
    slower = [row["wall_s"] * (3 if row["side"] == "after" else 1) for row in rows]
    place = table.column_names.index("wall_s")
    pq.write_table(table.set_column(place, table.schema.field("wall_s"), [slower]), path)
    told = run("report", "--recompute")
    assert told.code == 5
    assert "tiny differs from what was stored" in told.out
    assert told.err == ""
    for form in ("csv", "markdown"):
        told = run("report", "--recompute", "--format", form)
        assert (told.code, told.err) == (5, "tiny differs from what was stored\n")
    told = run("report", "--recompute", "--json")
    assert (told.code, json.loads(told.out)["warnings"]) == (5, ["tiny differs from what was stored"])


def test_a_run_of_one_case_is_explained_without_naming_it_and_of_several_each_has_its_command(run, user) -> None:
    whole = run("show", "latest", "tiny").out
    assert whole
    for name in ("latest", user.latest().name, f"results/{user.latest().name}"):
        assert run("show", name).out == whole
    cases = user.latest() / "cases"
    record = json.loads((cases / "tiny.json").read_text())
    record["case"]["id"] = "other one"
    (cases / "other_one.json").write_text(json.dumps(record))
    told = run("show", "latest")
    assert told.code == 0
    word = record["results"][0]["verdict"]["word"]
    assert [" ".join(line.split()) for line in told.out.splitlines()[1:]] == [
        f"tiny {word}",
        f"other one {word}",
        "",
        "aiperf show latest tiny explains the first; name another as here or as in the table.",
    ]
    commands = [row["command"] for row in json.loads(run("show", "latest", "--json").out)]
    assert commands == ["aiperf show latest tiny", "aiperf show latest 'other one'"]
    assert run("show", "latest", "other one").out != whole


def test_what_is_to_be_typed_next_names_the_results_that_were_named(run, user) -> None:
    (user.folder / "results").rename(user.folder / "my runs")
    cases = user.folder / "my runs" / "latest" / "cases"
    (cases / "tiny.json").unlink()
    told = run("show", "latest", "--results", "my runs")
    assert "aiperf report latest --results 'my runs' shows what the run has" in told.err


def test_a_case_that_is_no_scenario_here_is_found_in_the_run_that_measured_it(run, user) -> None:
    cases = user.latest() / "cases"
    record = json.loads((cases / "tiny.json").read_text())
    record["case"] |= {"id": "old-vs-new", "scenario": "old-vs-new"}
    (cases / "old-vs-new.json").write_text(json.dumps(record))
    told = run("show", "old-vs-new")
    assert (told.code, f"aiperf show {user.latest().name} old-vs-new" in told.err) == (2, True)


def test_a_record_that_claims_more_than_its_samples_show_exits_with_5(run, user) -> None:
    path = user.latest() / "cases" / "tiny.json"
    record = json.loads(path.read_text())
    record["results"][0]["comparison"]["ratio"] = 2.0
    record["results"][0]["verdict"]["word"] = "improved"
    path.write_text(json.dumps(record))
    assert "improved" in run("report").out
    told = run("report", "--recompute")
    assert told.code == 5
    assert "tiny differs" in told.out


@pytest.mark.parametrize("spoil", ["unlink", "write"])
def test_samples_that_are_gone_or_garbage_are_told_without_a_traceback(run, user, spoil) -> None:
    path = user.latest() / "samples" / "tiny.parquet"
    path.unlink() if spoil == "unlink" else path.write_bytes(b"PAR1 no such thing")
    assert run("report").code == 0
    told = run("report", "--recompute")
    assert told.code == 5
    assert "recomputed from raw samples: 0 of 1 cases unchanged" in told.out
    assert "tiny cannot be recomputed: " in told.out
    assert "tiny.parquet: " in "".join(told.out.split("\n"))


def test_a_damaged_record_is_named_and_passed_over(run, user) -> None:
    (user.latest() / "cases" / "tiny.json").write_text('{"case": ')
    told = run("report")
    assert told.code == 0
    assert "tiny.json" in told.err
    assert "ignored" in told.err
    assert "1 no record · 0 s" in told.out
    assert json.loads(run("report", "--json").out)["outcomes"] == {"no record": 1}
    told = run("report", "--recompute")
    assert (told.code, "samples: 0 of 1 cases unchanged, 1 without a record" in told.out) == (5, True)


def test_a_run_that_lost_all_its_records_names_its_cases_and_does_not_pass_a_recomputation(run, user) -> None:
    (user.latest() / "cases" / "tiny.json").unlink()
    assert "tiny   no record: planned, but its record is missing or unreadable" in run("report").out
    assert run("report", "--recompute").code == 5
    page = user.folder / "lost.html"
    assert run("report", "--html", "--output", str(page)).code == 0
    assert "<td>no record<td>no readable record" in page.read_text()


def test_a_run_whose_own_record_is_damaged_tells_its_cases_and_makes_nothing_up(run, user) -> None:
    path = user.latest() / "run.json"
    path.write_bytes(path.read_bytes()[:150])
    told = run("report")
    head, table = told.out.split("\n\n", 1)
    assert "own record is damaged" in told.err
    assert head == "the run's own record is damaged: its host, software, precision and end are unknown"
    assert "tiny" in table
    document = json.loads(run("report", "--json").out)
    assert {name for name, value in document["run"].items() if value is not None} == {"run", "status"}
    assert document["run"]["status"] == "unknown"
    assert "no GPU" not in run("report", "--format", "markdown").out
    shown = run("show", "latest", "tiny")
    assert "own record is damaged" in shown.err
    assert "--seed" not in shown.out
    assert "its seed and command line are unknown" in shown.out
    page = user.folder / "page.html"
    assert run("report", "--html", "--output", str(page)).code == 0
    assert "own record is damaged: this page shows only the cases that can be read" in html.unescape(page.read_text())
    assert "precision<td>" not in page.read_text()


def test_the_verdict_of_a_case_is_explained(run) -> None:
    told = run("show", "latest", "tiny")
    assert told.code == 0
    assert len(told.out.splitlines()) > 5
    assert json.loads(run("show", "latest", "tiny", "--json").out)[0]["case"]["id"] == "tiny"


def test_runs_and_cases_that_are_not_there_are_mistakes_that_name_those_that_are(run, user) -> None:
    assert user.latest().name in run("report", "yesterday").err
    told = run("show", "latest", "tinny")
    assert (told.code, "tiny" in told.err) == (2, True)
    nothing = run("report", "--results", "elsewhere")
    assert (nothing.code, "no run is stored in elsewhere" in nothing.err) == (2, True)


def test_a_fault_of_aiperf_itself_is_told_with_its_place_and_a_code_of_its_own(here, monkeypatch) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("aiperf.cli.list.list_scenarios", breaks)
    told = here("list")
    assert (told.code, told.out) == (70, "")
    assert "in breaks" in told.err
    assert told.err.endswith("\naiperf: internal error: ZeroDivisionError: by zero\n")


def test_entry_is_the_one_place_that_turns_outcomes_into_codes(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["aiperf", "--version"])
    assert entry() == 0
    assert capsys.readouterr().out.startswith("aiperf 0.")
