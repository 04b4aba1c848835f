"""``aiperf show NAME``: the latest stored measurement beside the scenario."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture
def stored(reader, user):
    """The user's folder with one measured run of ``tiny`` under a given parent folder, on a given host."""
    user.write("tiny.yaml", (reader.folder / "tiny.yaml").read_text())

    def _stored(parent: str, *, day: int = 1, host: str = "node-7") -> str:
        folder = user.folder / parent / f"2026-11-0{day}T00-00-00-{host}"
        shutil.copytree(reader.latest(), folder)
        path = folder / "run.json"
        run = json.loads(path.read_text())
        run |= {"run": folder.name, "started": f"2026-11-0{day}T00:00:00+00:00"}
        run["host"] |= {"hostname": host, "gpus": [{"name": "NVIDIA H200"}] * 2}
        path.write_text(json.dumps(run))
        return folder.name

    return _stored


def words(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def test_a_scenario_without_any_measurement_says_how_to_get_one(here) -> None:
    shown = here("show", "./tiny.yaml")
    assert "Latest measurement not measured yet: aiperf run tiny.yaml" in words(shown.out)
    assert json.loads(here("show", "./tiny.yaml", "--json").out)[0]["measured"] == []


def test_a_scenario_of_two_nodes_says_so_and_how_it_is_run_on_them(here) -> None:
    shown = words(here("show", "all-reduce-flat-vs-hierarchical").out)
    assert "What it needs 2 nodes, each with 2 CPUs. Skipped on this host: it is spread over 2 nodes." in shown
    assert "To run it aiperf run all-reduce-flat-vs-hierarchical --slurm -N 2 Or on each node, by a launcher:" in shown


def test_the_newest_run_is_shown_with_verdict_interval_place_and_folder(here, stored, reader) -> None:
    stored("results", day=1, host="old-node")
    newest = stored("results", day=2)
    result = reader.record()["results"][0]["comparison"]
    shown = here("show", "./tiny.yaml")
    assert shown.code == 0
    text = words(shown.out)
    assert f"on node-7 (2 × NVIDIA H200), run results/{newest} tiny:" in text
    assert "old-node" not in text
    assert "reference" not in text
    assert "has changed" not in text
    (row,) = json.loads(here("show", "./tiny.yaml", "--json").out)[0]["measured"]
    assert (row["case"], row["run"], row["reference"], row["scenario_changed"]) == (
        "tiny",
        f"results/{newest}",
        False,
        False,
    )
    assert [row[key] for key in ("ratio", "low", "high")] == [result[key] for key in ("ratio", "low", "high")]
    assert (row["host"], row["machine"]) == ("node-7", "2 × NVIDIA H200")
    assert f"tiny: {row['verdict']}" in text


def test_a_reference_run_counts_only_without_a_run_of_ones_own_and_is_called_so(here, stored) -> None:
    reference = stored("results/reference", day=3)
    text = words(here("show", "./tiny.yaml").out)
    assert f"reference run results/reference/{reference}" in text
    assert json.loads(here("show", "./tiny.yaml", "--json").out)[0]["measured"][0]["reference"] is True
    own = stored("results", day=1)
    text = words(here("show", "./tiny.yaml").out)
    assert f"run results/{own}" in text
    assert "reference run" not in text


def test_a_measurement_of_another_version_of_the_file_says_so(here, user, stored) -> None:
    stored("results")
    path = user.folder / "tiny.yaml"
    path.write_text(path.read_text() + "measure: {cache: cold}\n")
    assert "The scenario file has changed since then; aiperf run tiny.yaml measures it" in words(
        here("show", "./tiny.yaml").out
    )


def test_only_the_measurement_of_another_version_of_the_file_says_so(here, user, stored) -> None:
    older, newer = (stored("results", day=day) for day in (1, 2))
    path = user.folder / "results" / older / "cases" / "tiny.json"
    record = json.loads(path.read_text())
    record["case"] |= {"id": "tiny[size=1]", "scenario_hash": "of another version"}
    path.with_name("tiny[size=1].json").write_text(json.dumps(record))
    path.unlink()
    text = words(here("show", "./tiny.yaml").out)
    first, second = (text.index(f"run results/{run}") for run in (older, newer))
    changed = "The scenario file has changed since then"
    assert text.count(changed) == 1
    assert first < text.index(changed) < second
    rows = json.loads(here("show", "./tiny.yaml", "--json").out)[0]["measured"]
    assert {row["case"]: row["scenario_changed"] for row in rows} == {"tiny[size=1]": True, "tiny": False}


def test_a_damaged_record_is_named_and_counts_as_none(here, user, stored) -> None:
    run = stored("results")
    (user.folder / "results" / run / "cases" / "tiny.json").write_text("{")
    shown = here("show", "./tiny.yaml")
    assert "tiny.json" in shown.err
    assert "not measured yet" in shown.out


def test_a_measured_name_is_told_with_its_run_and_with_the_file_of_that_name_that_lies_here(reader):
    told = reader.types("show", "tiny")
    assert told.code == 2
    said = " ".join(told.err.split())
    assert '"tiny" is not a scenario here, but a stored run measured it. Show that run: aiperf show 2' in said
    assert said.endswith("tiny; or the file here: aiperf show ./tiny.yaml")
