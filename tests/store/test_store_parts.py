"""The parts of a run that was dealt out by --shard, read as one."""

from __future__ import annotations

import shutil

import pytest
from factory_of_runs import make_measured, write_run

from aiperf.errors import UserError
from aiperf.store.parts import open_parts
from aiperf.store.read import read_case, read_pairs


@pytest.fixture
def parts(tmp_path):
    """Names of two runs that share no case; the first was interrupted."""
    made = [
        write_run(
            tmp_path, [make_measured("copy"), make_measured("scale")], hour=1, status="interrupted", findings=(),
            finished="2026-11-20T19:30:00+00:00",
        ),
        write_run(tmp_path, [make_measured("add", ratio=3.0)], hour=0, finished="2026-11-20T18:30:00+00:00"),
    ]  # fmt: skip
    return [folder.name for folder in made]


def test_parts_are_one_run_with_all_their_cases_in_the_order_of_their_names(tmp_path, parts) -> None:
    whole = open_parts(parts, results=tmp_path)
    assert open_parts(parts[::-1], results=tmp_path).record.finished == whole.record.finished
    records, damaged = whole.read_cases()
    assert ([r.case.id for r in records], damaged) == (["add", "copy", "scale"], ())
    assert whole.record.run == " + ".join(parts)
    assert whole.record.planned == ("add", "copy", "scale")
    assert whole.record.status == "interrupted"
    assert [finding.value for finding in whole.record.findings] == ["powersave"]
    first, second = (open_parts([name], results=tmp_path) for name in parts)
    assert whole.folders == (first.folder, second.folder)
    assert whole.record.started == second.record.started < whole.record.finished == first.record.finished
    for record in records:
        own = first if record.case.id != "add" else second
        assert read_pairs(whole, record) == read_pairs(own, read_case(own, record.case.id))
    assert read_case(whole, "add").results[0].comparison.ratio == 3.0


def test_parts_that_other_machines_of_the_class_measured_name_them(tmp_path) -> None:
    names = [
        write_run(tmp_path, [make_measured(case)], hour=hour, host_id="h", host={"hostname": f"m{hour}"}).name
        for hour, case in enumerate(("copy", "scale"))
    ]
    whole = open_parts(names, results=tmp_path).record
    assert (whole.host["hostname"], [each["node"] for each in whole.also_on]) == ("m0", ["m1"])


def test_one_run_named_twice_is_that_run(tmp_path, parts) -> None:
    whole = open_parts([parts[0], str(tmp_path / parts[0])], results=tmp_path)
    assert (whole.record.run, whole.folders) == (parts[0], (tmp_path / parts[0],))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 5}, "seed: 0 in the first, 5 in the second"),
        ({"host_id": "h-9"}, "host: h-1 in the first, h-9 in the second"),
        ({"git": {"sha": "b"}}, "commit a in the first, b in the second"),
    ],
)
def test_runs_that_cannot_be_parts_of_one_plan_are_refused(tmp_path, changes, told) -> None:
    alike = {"seed": 0, "host_id": "h-1", "git": {"sha": "a"}}
    names = [
        write_run(tmp_path, [make_measured(case)], hour=hour, **{**alike, **(changes if hour else {})}).name
        for hour, case in enumerate(("copy", "add"))
    ]
    with pytest.raises(UserError, match="are not parts of one run") as caught:
        open_parts(names, results=tmp_path)
    assert told in str(caught.value)


def test_a_case_that_two_parts_hold_is_refused(tmp_path) -> None:
    names = [write_run(tmp_path, [make_measured("copy")], hour=hour).name for hour in (0, 1)]
    with pytest.raises(UserError, match=rf"copy is in both \S*{names[0]} and \S*{names[1]}"):
        open_parts(names, results=tmp_path)
    copied = tmp_path / "copied" / names[0]
    shutil.copytree(tmp_path / names[0], copied)
    with pytest.raises(UserError, match="copy is in"):
        open_parts([names[0], str(copied)], results=tmp_path)


def test_a_part_whose_own_record_is_damaged_hides_no_conflict_of_the_others(tmp_path) -> None:
    cases = ("copy", "add", "scale")
    names = [write_run(tmp_path, [make_measured(c)], hour=n, seed=n).name for n, c in enumerate(cases)]
    (tmp_path / names[0] / "run.json").write_text("{")
    with pytest.raises(UserError, match="seed: 1 in the first, 2 in the second"):
        open_parts(names, results=tmp_path)
    whole = open_parts(names[:2], results=tmp_path)
    assert (whole.record.run, whole.record.seed, len(whole.warnings)) == (names[1], 1, 1)
    assert [r.case.id for r in whole.read_cases()[0]] == ["add", "copy"]


def test_parts_of_which_one_never_ended_have_no_end(tmp_path) -> None:
    ended = write_run(tmp_path, [make_measured("copy")], finished="2026-11-20T19:30:00+00:00").name
    names = [ended, write_run(tmp_path, [make_measured("add")], hour=1, status="running").name]
    whole = open_parts(names, results=tmp_path).record
    assert (whole.finished, whole.status, whole.command, whole.argv) == ("", "running", "", ())


def test_what_is_damaged_in_a_part_is_named_and_the_rest_is_read(tmp_path, parts) -> None:
    (tmp_path / parts[1] / "cases" / "add.json").write_text("{")
    records, damaged = open_parts(parts, results=tmp_path).read_cases()
    assert [r.case.id for r in records] == ["copy", "scale"]
    assert [d.path.parent.parent.name for d in damaged] == [parts[1]]
