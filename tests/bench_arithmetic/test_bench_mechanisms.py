"""What profilers counted of scenarios' claims: the kept lines are of claims that there still are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aiperf.records import Case, RunRecord, Side
from aiperf.records.profiled import Mechanism, Profile
from aiperf.scenario.load import load_scenario
from aiperf.store.counted import CountedClaim, read_counted
from aiperf.store.profiles import write_profile
from aiperf.store.read import find_runs
from aiperf.store.write import RunWriter
from tests.bench import mechanisms

WHERE = ("0123abcd", "a CPU", "2026-12-01")
LINE = CountedClaim("a-vs-b[n=1]", "c0ffee", "page_faults", "down", 100.0, 10.0, "", "perf", *WHERE)


def test_every_kept_line_is_of_a_counter_that_its_scenario_claims_to_go_that_way() -> None:
    lines = read_counted(mechanisms.FILE)
    assert lines
    files = {path.stem: path for path in (mechanisms.RUNS.parents[1] / "scenarios").glob("*/*.yaml")}
    names = {line.case: line.case.partition("[")[0] for line in lines}
    scenarios = {name: load_scenario(files[name]) for name in set(names.values())}
    for line in lines:
        scenario = scenarios[names[line.case]]
        assert scenario.moves.get(line.counter) == line.claimed, line
        assert line.scenario_hash in scenario.hashes, f"profile it again, or take its line out: {line}"
    assert lines == mechanisms.merged(lines, ()), "sorted, and each counter of a case once"


def test_a_later_line_takes_the_place_of_the_one_before() -> None:
    other = CountedClaim("a-vs-b[n=0]", "c0ffee", "page_faults", "down", 5.0, 5.0, "", "perf", *WHERE)
    later = replace(LINE, scenario_hash="facade", after=99.0, when="2026-12-02")
    assert mechanisms.merged([LINE], [other, later]) == [other, later]
    assert mechanisms.merged([later], [other, LINE]) == [other, later], "by their days, not by who comes last"


def test_claims_are_counted_by_what_the_rule_of_today_makes_of_them() -> None:
    by_perf = CountedClaim("a", "", "page_faults", "down", 100.0, 95.0, "", "perf", *WHERE)
    by_ncu = CountedClaim("a", "", "dram_bytes", "up", 100.0, 95.0, "B", "ncu", *WHERE)
    row = mechanisms.figures([LINE, by_perf, by_ncu])[0]
    assert row.name.startswith("mechanisms: 3 claims of 2 cases")
    assert row.measured == "1 as claimed, 1 not moved, 1 the other way"


def test_lines_are_what_profilers_read_in_runs_of_a_clean_commit(tmp_path: Path) -> None:
    case = Case("a-vs-b", "a-vs-b[n=1]", "", "", (Side("before"), Side("after")))
    claims = (
        Mechanism("page_faults", "down", "moved", 100.0, 10.0, tool="perf"),
        Mechanism("bytes_sent", "same", "moved", 4.0, 4.0, tool="aiperf"),
        Mechanism("instructions", "down", "not_readable"),
    )
    for git in ({"sha": "0123abcd4567"}, {"sha": "0123abcd4567", "diff": "f00"}, {}):
        writer = RunWriter.create(tmp_path)
        about = {"host": {"cpu_model": "a CPU"}, "git": git, "started": "2026-12-01T10:00:00+00:00"}
        writer.write_run(RunRecord(writer.name, ("aiperf", "profile"), **about))
        write_profile(writer.folder, case, Profile(case.id, mechanism=claims, facts={"scenario": "c0ffee"}))
    runs = find_runs(tmp_path)
    assert len(runs) == 3
    assert [line for run in runs for line in mechanisms.of_run(run, tmp_path)] == [LINE]
