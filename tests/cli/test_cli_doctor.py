"""``aiperf doctor``: no host is too poor for it, and its exit code is what --strict says."""

from __future__ import annotations

import json

import pytest

from aiperf.host.probes.every import PROBES


def saved(user, name: str, **levels: str) -> str:
    """A saved report in which some probes have other levels."""
    rows = [
        {
            "id": p.id, "group": p.group, "title": p.title, "level": levels.get(p.id.replace("-", "_"), "ok"),
            "value": "read", "where": "there", "reason": "", "good": p.good, "why": p.why, "fix": "", "book": "",
            "steady": p.steady, "part": "",
        }
        for p in PROBES
    ]  # fmt: skip
    document = {"schema": "aiperf doctor 2", "when": name, "host": {"hostname": name}, "findings": rows, "seconds": 1.0}
    user.write(f"{name}.json", json.dumps(document))
    return f"{name}.json"


def test_this_host_is_read_without_an_error(user) -> None:
    done = user.types("doctor")
    assert (done.code, done.err) == (0, "")
    assert done.plain
    assert f"{len(PROBES)} probes: " in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 100


@pytest.mark.parametrize("width", ["80", pytest.param("100", marks=pytest.mark.long)])
def test_every_probe_fits_the_terminal(here, monkeypatch, width) -> None:
    monkeypatch.setenv("COLUMNS", width)
    told = here("doctor", "--all")
    assert told.code == 0
    assert max(len(line) for line in told.out.splitlines()) <= int(width)
    assert all(probe.id in told.out for probe in PROBES)


def test_json_has_every_probe_in_order_and_counts_them(here) -> None:
    told = here("doctor", "--json")
    document = json.loads(told.out)
    assert [row["id"] for row in document["findings"]] == [probe.id for probe in PROBES]
    assert sum(document["counts"].values()) == len(PROBES)
    assert {row["level"] for row in document["findings"]} <= {"ok", "warn", "unfit", "unreadable", "absent"}
    assert document["host"]["memory"]


def test_one_group_is_chosen_by_the_beginning_of_its_name(here) -> None:
    rows = json.loads(here("doctor", "--group", "mem", "--json").out)["findings"]
    assert {row["group"] for row in rows} == {"memory"}
    rows = json.loads(here("doctor", "--group", "gpu", "--format", "json").out)["findings"]
    assert {row["group"] for row in rows} == {"GPU"}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--group", "wheels"), "is not a group"),
        (("--group", "c"), "Groups: CPU, container."),
        (("--checklist", "--group", "CPU"), "cannot be combined with --checklist"),
        (("--data", "no-such-folder"), "is not a folder"),
        (("--save", "no-such-folder/a.json"), "cannot be written"),
        (("--diff", "tiny.yaml", "tiny.yaml"), "is not a report"),
        (("--diff", "missing.json", "missing.json"), "No such file"),
        (("--diff", "a.json", "b.json", "--strict"), "does not read the host"),
    ],
)
def test_a_mistake_is_told_with_the_way_out(here, argv, said) -> None:
    told = here("doctor", *argv)
    assert told.code == 2
    assert said in told.err
    assert told.plain


def test_strict_fails_for_unfit_and_for_nothing_else(here, monkeypatch) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    argv = ("doctor", "--group", "framework", "--strict", "--json")
    told = here(*argv)
    assert json.loads(told.out)["counts"]["warn"] >= 1
    assert told.code == 0
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    told = here(*argv)
    assert told.code == 6
    assert json.loads(told.out)["counts"]["unfit"] == 1
    assert here(*argv[:3]).code == 0


def test_what_was_saved_can_be_compared(here, user, monkeypatch) -> None:
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    assert here("doctor", "--group", "framework", "--save", "one.json").code == 0
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    user.write("two.json", here("doctor", "--group", "framework", "--json").out)
    told = here("doctor", "--diff", "one.json", "two.json", "--json")
    assert told.code == 0
    assert [entry["id"] for entry in json.loads(told.out)] == ["nccl-env"]
    told = here("doctor", "--diff", "one.json", "two.json")
    assert "1 of 7 probes differ" in told.out
    assert "unset NCCL_DEBUG" in told.out


def test_a_difference_between_two_hosts_is_printed_in_every_format(here, user) -> None:
    one, two = saved(user, "one"), saved(user, "two", thp="warn")
    assert "Transparent huge pages (thp, memory)" in here("doctor", "--diff", one, two).out
    assert "| memory | thp | ok: read | warn: read |" in here("doctor", "--diff", one, two, "--format", "markdown").out


@pytest.mark.parametrize(
    "change", [{"schema": "x"}, {"findings": [{}]}, {"findings": 1}, {"host": []}, {"seconds": "now"}]
)
def test_a_damaged_save_is_refused(here, user, change) -> None:
    name = saved(user, "one")
    document = json.loads((user.folder / name).read_text()) | change
    user.write(name, json.dumps(document))
    told = here("doctor", "--diff", name, name)
    assert told.code == 2
    assert "is not a report" in told.err


def test_the_checklist_walks_every_item_with_scenarios_and_questions(here) -> None:
    told = here("doctor", "--checklist")
    assert told.code == 0
    assert "191 items: 72 for probes" in told.out
    assert "aiperf run pageable-vs-pinned-copy" in told.out
    assert "no scenario yet: " in told.out
    assert "Do you know the largest contributors to run time" in told.out
    steps = json.loads(here("doctor", "--checklist", "--json").out)
    assert len(steps) == 191
    assert here("doctor", "--checklist", "--format", "markdown").out.startswith("## aiperf doctor --checklist")
