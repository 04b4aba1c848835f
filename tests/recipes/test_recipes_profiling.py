"""The recipe of profiling several cases: what a run has is kept, what it lacks is added, raw reports are bounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import UserError
from aiperf.profilers import one_pass
from aiperf.profilers.notes import note_sentence
from aiperf.profilers.one_pass import Done, refusal
from aiperf.profilers.profiler import ToolStatus
from aiperf.profilers.reading import Reading
from aiperf.recipes import profile as profiling
from aiperf.recipes import profile_case as one_case
from aiperf.recipes.profile import profile_cases, profile_measured, resume_run
from aiperf.recipes.profile_by_hand import commands_of
from aiperf.recipes.profile_case import ProfileRequest, profile_case
from aiperf.records import Case, CaseRecord, Needs, RunRecord, Side
from aiperf.records.profiled import Artefact, CounterRow, Profile, SideProfile, Span
from aiperf.store.profiles import read_profiles, write_profile
from aiperf.store.read import open_run
from aiperf.store.write import RunWriter

SIDES = (Side("before"), Side("after"))
ONE = Case("s", "s[n=1]", "t", "w", SIDES, moves={"calls": "down", "cache_misses": "down"}, scenario_hash="as-it-was")
TWO = replace(ONE, id="s[n=2]")


def told(case: Case, tool: Any, *, status: Any = "read", name: str = "k") -> Profile:
    """What one tool tells of both sides; the workload itself counts its calls."""
    names = ("before", "after")
    misses = {"before": {"cache-misses": 90.0}, "after": {"cache-misses": 10.0}} if tool == "perf" else {}
    return Profile(
        case.id,
        artefacts=tuple(Artefact(tool, side, status) for side in names),
        rows=tuple(CounterRow(side, tool, "op", name, metrics=misses.get(side, {})) for side in names),
        sides=tuple(SideProfile(side, tool, 1, wall_s=1.0) for side in names),
        spans=tuple(Span(side, "host", "op", name, 0.0, 1.0) for side in names) if tool != "perf" else (),
        facts={"own": {"before": {"calls": 8.0}, "after": {"calls": 1.0}}, "scenario": case.scenario_hash, "work": {}},
    )


class Tools:
    """Stands in for the tools: tells what was asked of them, and ends in an interrupt after some cases."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, str]] = []
        self.status, self.name, self.left = "read", "k", 99
        monkeypatch.setattr(profiling, "_one", self._one)

    def _one(self, case: Case, request: ProfileRequest, *_: Any, **__: Any) -> Profile:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        names = [status.tool for status in request.statuses]
        self.asked += [(case.id, tool) for tool in names]
        (tool,) = names
        return told(case, tool, status=self.status, name=self.name)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return Tools(monkeypatch)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return RunWriter.create(tmp_path).folder


def profiled(run: Path, *names: str, cases: tuple[Case, ...] = (ONE, TWO)) -> tuple[list[Profile], list[str]]:
    """Profiles of the cases with these tools, and what was said meanwhile."""
    request = ProfileRequest(tuple(ToolStatus(name, True, "here", "") for name in names))
    said: list[str] = []
    done: list[Profile] = []
    profile_cases(cases, request, run=run, note=said.append, done=done.append)
    return done, said


def test_an_interrupted_suite_goes_on_where_it_was_left(run: Path, tools: Tools):
    tools.left = 1
    with pytest.raises(KeyboardInterrupt):
        profiled(run, "torch")
    assert [profile.case for profile in read_profiles(run)[0]] == [ONE.id]
    tools.left = 99
    done, said = profiled(run, "torch")
    assert tools.asked == [(ONE.id, "torch"), (TWO.id, "torch")]
    assert [profile.case for profile in done] == [ONE.id, TWO.id]
    assert said == ["1 of 2: s[n=1] is already profiled, and kept"]


def test_a_tool_that_the_run_did_not_have_is_added_beside_what_it_had(run: Path, tools: Tools):
    profiled(run, "torch", cases=(ONE,))
    (joined,), said = profiled(run, "perf", cases=(ONE,))
    assert said == []
    assert read_profiles(run)[0] == (joined,)
    assert [(a.tool, a.side) for a in joined.artefacts] == [
        ("torch", "before"), ("torch", "after"), ("perf", "before"), ("perf", "after"),
    ]  # fmt: skip
    assert {row.tool for row in joined.rows} == {side.tool for side in joined.sides} == {"torch", "perf"}
    assert len(joined.spans) == 2
    # The claims are held against all that was told, the workload's own counts of the first time among it.
    assert [(m.counter, m.state, m.tool) for m in joined.mechanism] == [
        ("calls", "moved", "aiperf"), ("cache_misses", "moved", "perf"),
    ]  # fmt: skip


def test_a_tool_that_failed_is_tried_again_and_takes_its_own_place(run: Path, tools: Tools):
    profiled(run, "perf", cases=(ONE,))
    tools.status, tools.name = "failed", "old"
    profiled(run, "torch", cases=(ONE,))
    tools.status, tools.name = "read", "new"
    (joined,), said = profiled(run, "torch", cases=(ONE,))
    assert said == []
    assert [(a.tool, a.status) for a in joined.artefacts] == [("perf", "read")] * 2 + [("torch", "read")] * 2
    assert {row.name for row in joined.rows if row.tool == "torch"} == {"new"}
    assert {span.name for span in joined.spans} == {"new"}
    assert {row.tool for row in joined.rows} == {"torch", "perf"}


def test_a_tool_that_told_nothing_is_tried_again(run: Path, tools: Tools):
    tools.status = "empty"
    profiled(run, "torch", cases=(ONE,))
    tools.status = "read"
    (joined,), said = profiled(run, "torch", cases=(ONE,))
    assert said == []
    assert {a.status for a in joined.artefacts} == {"read"}


def skipped(run: Path, tools: Tools, *, now: ToolStatus) -> tuple[list[tuple[str, str]], list[str]]:
    """What is asked of the tools, and said, when a tool that was absent is wanted again."""
    absent = ToolStatus("perf", False, "", "perf was not found", "Install it.")
    reason = "perf was not found. Install it."
    write_profile(run, ONE, replace(told(ONE, "torch"), artefacts=(Artefact("perf", "", "skipped", reason),)))
    assert refusal(ONE, absent) == Artefact("perf", "", "skipped", reason)
    said: list[str] = []
    profile_cases([ONE], ProfileRequest((now,)), run=run, note=said.append, done=lambda _: None)
    return tools.asked, said


def test_a_tool_that_was_installed_since_is_no_longer_skipped(run: Path, tools: Tools):
    assert skipped(run, tools, now=ToolStatus("perf", True, "here", ""))[0] == [(ONE.id, "perf")]


def test_a_tool_that_is_still_not_here_is_left_as_it_was(run: Path, tools: Tools):
    asked, said = skipped(run, tools, now=ToolStatus("perf", False, "", "perf was not found", "Install it."))
    assert (asked, said) == ([], ["s[n=1] is already profiled, and kept"])


def test_a_tool_that_is_not_used_for_another_reason_now_is_told_anew(run: Path, tools: Tools):
    asked, _ = skipped(run, tools, now=ToolStatus("perf", False, "here", "the kernel forbids it"))
    assert asked == [(ONE.id, "perf")]


def test_an_interrupt_while_profiling_is_told_with_what_was_saved(run: Path, tools: Tools):
    tools.left = 1
    records = [CaseRecord(case, "measured") for case in (ONE, TWO)]
    said: list[str] = []
    request = ProfileRequest((ToolStatus("torch", True, "here", ""),))
    made, whole = profile_measured(records, request, run=run, host_id="h", note=said.append)
    assert ([profile.case for profile in made], whole) == ([ONE.id], False)
    assert said[-1] == (
        "profiling was interrupted: 1 of 2 cases are profiled and saved; "
        f"continue with aiperf profile and --resume {run.name}"
    )
    tools.left = 9
    assert profile_measured(records, request, run=run, host_id="h", note=said.append)[1]


def test_a_case_whose_scenario_has_changed_is_profiled_again(run: Path, tools: Tools):
    profiled(run, "torch", cases=(ONE,))
    (fresh,), said = profiled(run, "perf", cases=(replace(ONE, scenario_hash="changed"),))
    assert said == ["s[n=1] is profiled again: its scenario has changed"]
    assert {row.tool for row in fresh.rows} == {"perf"}


def test_ncu_is_left_out_over_a_side_of_which_nsys_saw_no_kernel(run: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, str]] = []

    def passed(case: Case, side: Side, status: ToolStatus, **_: Any) -> Any:
        asked.append((status.tool, side.name))
        seen = SideProfile(side.name, status.tool, 1, kernels=0 if side.name == "before" else 3)
        return Artefact(status.tool, side.name, "read"), [Done(["tool"], Reading(sides=(seen,)), {}, {})]  # type: ignore[arg-type]

    monkeypatch.setattr(one_case, "side_pass", passed)
    here = replace(ONE, needs=Needs(gpus=1))
    (made,), _ = profiled(run, "nsys", "ncu", cases=(here,))
    assert asked == [("nsys", "before"), ("nsys", "after"), ("ncu", "after")]
    assert [(a.tool, a.side, a.status) for a in made.artefacts[2:]] == [
        ("ncu", "before", "skipped"), ("ncu", "after", "read"),
    ]  # fmt: skip
    assert made.artefacts[2].code == "no_kernel"
    # What is settled so is not tried again when the run goes on; without nsys there is nothing to leave it out by.
    assert profiled(run, "nsys", "ncu", cases=(here,))[1] == ["s[n=1] is already profiled, and kept"]
    profiled(RunWriter.create(run.parent).folder, "ncu", cases=(here,))
    assert asked[3:] == [("ncu", "before"), ("ncu", "after")]


def test_a_profile_keeps_what_later_tools_are_joined_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def passed(case: Case, side: Side, *_: Any, **__: Any) -> Any:
        read = Done(["tool"], Reading(), {"calls": 8.0 if side.name == "before" else 1.0}, {"items": 3})
        return Artefact("torch", side.name, "read"), [read]

    monkeypatch.setattr(one_case, "side_pass", passed)
    request = ProfileRequest((ToolStatus("torch", True, "here", ""),))
    made = profile_case(ONE, request, scratch=tmp_path, raw=tmp_path, guardian=None, note=print)  # type: ignore[arg-type]
    assert made.facts == {
        "own": {"before": {"calls": 8.0}, "after": {"calls": 1.0}},
        "work": {"before": {"items": 3}, "after": {"items": 3}},
        "scenario": "as-it-was",
    }
    assert made.mechanism[0].state == "moved"


# ---- the run's own record --------------------------------------------------------------------------------------------


def record(run: Path, **fields: Any) -> RunRecord:
    made = replace(RunRecord.unknown(run.name), host_id="here", planned=(ONE.id,), status="interrupted", **fields)
    RunWriter(run).write_run(made)
    return made


def test_a_run_that_only_profiles_is_running_again_and_knows_the_new_cases(run: Path):
    record(run, finished="then")
    writer, now = resume_run(open_run(run, results=run.parent), host_id="here", planned=[ONE.id, TWO.id])
    assert writer is not None
    assert (now.status, now.finished, now.planned) == ("running", "", (ONE.id, TWO.id))
    assert open_run(run, results=run.parent).record == now


def test_the_state_of_a_run_that_was_measured_is_left_alone(run: Path):
    was = record(run)
    RunWriter(run).write_case(CaseRecord(ONE, "measured"))
    writer, now = resume_run(open_run(run, results=run.parent), host_id="here", planned=[TWO.id])
    assert writer is None
    assert now == open_run(run, results=run.parent).record == was


def test_a_run_of_another_host_and_one_whose_record_is_damaged_are_not_gone_on_with(run: Path):
    record(run)
    with pytest.raises(UserError, match="was made on another host"):
        resume_run(open_run(run, results=run.parent), host_id="there", planned=[])
    (run / "run.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        resume_run(open_run(run, results=run.parent), host_id="here", planned=[])


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_what_has_no_line_for_the_shell_has_the_reason(tmp_path: Path):
    at_ref = replace(
        ONE, sides=(Side("before", workload="x.y", ref="main"), Side("after", workload="x.y", env={"MY": "a b"}))
    )
    request = ProfileRequest(
        (
            ToolStatus("ncu", True, "here", ""),
            ToolStatus("perf", False, "", "no perf", "Get it."),
            ToolStatus("torch", True, "", ""),
        )
    )
    head, name, ncu, perf, before, after = commands_of([at_ref], request, results=tmp_path)
    assert head.startswith("# specs, and reports that these commands write, are in ")
    assert name == "# s[n=1]"
    assert ncu == "# ncu: the case runs on no GPU"
    assert perf == "# perf: no perf. Get it."
    assert before == "# torch over before: main is checked out by aiperf profile alone"
    assert after.startswith("env -i ")
    assert " MY='a b' " in after


# ---- raw reports -----------------------------------------------------------------------------------------------------


def test_raw_reports_are_kept_as_long_as_there_is_room_and_it_is_said_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(one_pass, "KEEP_BYTES", 100)
    monkeypatch.setattr(one_pass, "RUN_BYTES", 150)
    raw = tmp_path / "raw"
    for number, size in enumerate((100, 101, 60, 50)):
        (tmp_path / f"{number}.rep").write_bytes(b"x" * size)
    files = [tmp_path / f"{number}.rep" for number in range(4)]
    kept, passed_over = one_pass.keep([*files, tmp_path / "never-written"], raw, "case-before")
    assert kept == ("case-before-0.rep", "case-before-3.rep")
    assert sorted(path.name for path in raw.iterdir()) == sorted(kept)
    assert tuple(map(note_sentence, passed_over)) == (
        "case-before-1.rep was read but not kept: 101 B, over 100 B",
        "case-before-2.rep was read but not kept: raw reports of this run already take 150 B (aiperf clean frees "
        "space)",
    )
    assert one_pass.keep([files[2]], raw, "again")[0] == ()
