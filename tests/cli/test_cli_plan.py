"""What is chosen and planned, before anything is measured."""

from __future__ import annotations

import json

import pytest


def planned(here, *argv: str) -> list[str]:
    told = here("run", *argv, "--dry-run", "--json")
    assert told.code in (0, 77), told.err
    return [row["case"] for row in json.loads(told.out)]


def test_a_dry_run_prints_the_cases_with_an_estimate_and_stores_nothing(here, user) -> None:
    user.scenario("sized", axes="{items: [16, 32]}")
    told = here("run", "sized.yaml", "--dry-run", "--precision", "fast.yaml")
    assert told.code == 0
    assert "2 cases to measure" in told.out
    assert " s" in told.out
    assert not (user.folder / "results").exists()


def test_names_tags_paths_folders_and_globs_find_scenarios(here, user) -> None:
    assert planned(here, "same-vs-same") == ["same-vs-same"]
    assert set(planned(here, "control")) >= {"same-vs-same", "no-grad-inside-inference-mode"}
    assert planned(here, "*-inside-*") == ["no-grad-inside-inference-mode"]
    user.scenario("mine/a"), user.scenario("mine/b")
    user.write("mine/work.py", (user.folder / "work.py").read_text())
    assert planned(here, "./mine") == planned(here, "./mine/*.yaml") == ["a", "b"]
    assert planned(here, "tiny.yaml", "./mine/a.yaml") == ["tiny", "a"]


def test_the_plan_says_why_a_case_is_skipped_and_what_would_help(here, user) -> None:
    told = here("run", user.scenario("big", needs="{gpus: 9}"), "tiny.yaml", "--dry-run")
    assert told.code == 0
    assert "skipped" in told.out
    assert "9" in told.out
    alone = here("run", "./big.yaml", "--dry-run")
    assert alone.code == 77


def test_only_keeps_one_value_of_an_axis(here, user) -> None:
    user.scenario("sized", axes="{items: [16, 32]}")
    assert planned(here, "./sized.yaml", "--only", "items=16") == ["sized[items=16]"]


def test_the_shards_of_a_plan_hold_every_case_once_and_a_skip_too(here, user) -> None:
    user.scenario("big", needs="{gpus: 9}")
    user.scenario("sized", axes="{items: [16, 32, 64, 128, 256]}")
    whole = planned(here, "./sized.yaml", "./big.yaml")
    parts = [planned(here, "./sized.yaml", "./big.yaml", "--shard", f"{part}/2") for part in (1, 2)]
    assert sorted(parts[0] + parts[1]) == sorted(whole)
    assert [len(part) for part in parts] == [3, 3]
    assert parts == [planned(here, "./sized.yaml", "./big.yaml", "--shard", f"{part}/2") for part in (1, 2)]


def test_a_host_that_skips_other_cases_has_the_same_shards(here, user) -> None:
    user.scenario("sized", axes="{items: [16, 32, 64, 128, 256]}")
    user.scenario("few", needs="{memory: 1KiB}")
    there = [planned(here, "./few.yaml", "./sized.yaml", "--shard", f"{part}/2") for part in (1, 2)]
    user.scenario("few", needs="{memory: 900TiB}")
    here_ = [planned(here, "./few.yaml", "./sized.yaml", "--shard", f"{part}/2") for part in (1, 2)]
    assert [sorted(part) for part in here_] == [sorted(part) for part in there]


@pytest.mark.parametrize("text", ["3/2", "0/2", "1/0", "2", "a/b", "1/"])
def test_a_shard_that_is_none_is_a_mistake(here, text: str) -> None:
    told = here("run", "tiny.yaml", "--shard", text, "--dry-run")
    assert (told.code, "1/2" in told.err) == (2, True)


def test_a_value_that_the_axis_does_not_have_is_a_mistake(here, user) -> None:
    user.scenario("sized", axes="{items: [16, 32]}")
    told = here("run", "./sized.yaml", "--only", "items=17", "--dry-run")
    assert told.code == 2
    assert "16" in told.err
