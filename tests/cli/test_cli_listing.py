"""``aiperf list``, ``show`` and ``new``."""

from __future__ import annotations

import json


def test_the_list_names_every_shipped_scenario_and_the_tags(here) -> None:
    told = here("list")
    assert told.code == 0
    assert "pageable-vs-pinned-copy" in told.out
    assert "Tags: " in told.out
    rows = json.loads(here("list", "--json").out)
    assert {"same-vs-same", "data-parallel-vs-ddp", "train-eager-vs-compile"} <= {row["name"] for row in rows}


def test_a_tag_and_a_folder_narrow_the_list(here, user) -> None:
    assert [row["name"] for row in json.loads(here("list", "--folder", ".", "mine", "--json").out)] == ["tiny"]
    assert "pageable" not in here("list", "control").out


def test_a_tag_that_nothing_has_and_a_folder_that_is_none_are_mistakes(here) -> None:
    unknown = here("list", "contrl")
    assert unknown.code == 2
    assert 'no scenario has the tag "contrl"' in unknown.err
    assert "control" in unknown.err
    missing = here("list", "--folder", "nowhere")
    assert missing.code == 2
    assert '"nowhere" is no folder' in missing.err


def test_a_broken_scenario_is_still_listed_with_its_problem(here, user) -> None:
    user.write("lot/broken.yaml", "title: [")
    told = here("list", "--folder", "lot")
    assert told.code == 0
    assert "broken" in told.out


def test_show_explains_a_scenario_in_words_and_as_json(here) -> None:
    told = here("show", "same-vs-same")
    assert told.code == 0
    assert "A transformer's forward pass against itself" in told.out
    assert json.loads(here("show", "same-vs-same", "--json").out)[0]["name"] == "same-vs-same"


def test_a_near_miss_is_named(here) -> None:
    told = here("show", "same-vs-some")
    assert told.code == 2
    assert "same-vs-same" in told.err


def test_a_new_scenario_runs_at_once(user) -> None:
    made = user.types("new", "my-pair")
    assert made.code == 0
    assert made.out.splitlines()[-1] == "next: aiperf run ./my-pair.yaml"
    done = user.runs("./my-pair.yaml", "--only", "rows=1024")
    assert done.code == 0, done.out + done.err
    record = user.record("my-pair[rows=1024]")
    assert record["status"] == "measured"
    assert record["results"][0]["comparison"]["ratio"] > 1.5


def test_a_new_scenario_overwrites_nothing(here, user) -> None:
    assert here("new", "tiny").code == 2
    assert "expect: equivalent" in (user.folder / "tiny.yaml").read_text()
    assert here("new", "../outside").code == 2


def test_a_new_scenario_goes_into_the_folder_asked_for(here, user) -> None:
    told = here("new", "x", "--folder", "deep/er")
    assert told.code == 0
    assert (user.folder / "deep/er/x.yaml").is_file()
    assert told.out.splitlines()[-1] == "next: aiperf run deep/er/x.yaml"
