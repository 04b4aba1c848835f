"""The parts of a run that was dealt out by --shard, read as one."""

from __future__ import annotations

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
    records, damaged = whole.read_cases()
    assert ([r.case.id for r in records], damaged) == (["add", "copy", "scale"], ())
    assert whole.record.run == " + ".join(parts)
    assert whole.record.planned == ("add", "copy", "scale")
    assert (whole.record.status, whole.record.findings) == ("interrupted", ("the governor is powersave",))
    first, second = (open_parts([name], results=tmp_path) for name in parts)
    assert whole.folders == (first.folder, second.folder)
    assert whole.record.started == second.record.started < whole.record.finished == first.record.finished
    for record in records:
        own = first if record.case.id != "add" else second
        assert read_pairs(whole, record) == read_pairs(own, read_case(own, record.case.id))
    assert read_case(whole, "add").results[0].comparison.ratio == 3.0


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
    with pytest.raises(UserError, match="are no parts of one run") as caught:
        open_parts(names, results=tmp_path)
    assert told in str(caught.value)


def test_a_case_that_two_parts_hold_is_refused(tmp_path) -> None:
    names = [write_run(tmp_path, [make_measured("copy")], hour=hour).name for hour in (0, 1)]
    with pytest.raises(UserError, match=f"copy is in {names[0]} and in {names[1]}"):
        open_parts(names, results=tmp_path)


def test_what_is_damaged_in_a_part_is_named_and_the_rest_is_read(tmp_path, parts) -> None:
    (tmp_path / parts[1] / "cases" / "add.json").write_text("{")
    records, damaged = open_parts(parts, results=tmp_path).read_cases()
    assert [r.case.id for r in records] == ["copy", "scale"]
    assert [d.path.parent.parent.name for d in damaged] == [parts[1]]
