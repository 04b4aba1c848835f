"""What profilers counted of scenarios' claims: the kept lines are of claims that there still are."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.records import Case, RunRecord, Side
from aiperf.records.profiled import Mechanism, Profile
from aiperf.scenario.load import load_scenario
from aiperf.store.profiles import write_profile
from aiperf.store.read import find_runs
from aiperf.store.write import RunWriter
from tests.bench import mechanisms
from tests.bench.mechanisms import Counted

LINE = Counted("a-vs-b[n=1]", "page_faults", "down", 100.0, 10.0, "", "perf", "0123abcd", "a CPU", "2026-12-01")


def test_every_kept_line_is_of_a_counter_that_its_scenario_claims_to_go_that_way() -> None:
    lines = mechanisms.read(mechanisms.FILE)
    assert lines
    files = {path.stem: path for path in (mechanisms.FOLDER.parents[2] / "scenarios").glob("*/*.yaml")}
    claims = {name: load_scenario(files[name]).moves for name in {line.scenario for line in lines}}
    assert [line for line in lines if claims[line.scenario].get(line.counter) != line.claimed] == []
    assert lines == mechanisms.merged(lines, ()), "sorted, and each counter of a case once"


def test_a_later_line_takes_the_place_of_the_one_before() -> None:
    other = Counted("a-vs-b[n=0]", "page_faults", "down", 5.0, 5.0, "", "perf", "0123abcd", "a CPU", "2026-12-01")
    later = Counted("a-vs-b[n=1]", "page_faults", "down", 100.0, 99.0, "", "perf", "4567abcd", "a CPU", "2026-12-02")
    assert mechanisms.merged([LINE], [other, later]) == [other, later]


def test_claims_are_judged_by_the_rule_of_today() -> None:
    assert LINE.held.state == "moved"
    by_perf = Counted("a", "page_faults", "down", 100.0, 95.0, "", "perf", "0123abcd", "a CPU", "2026-12-01")
    by_ncu = Counted("a", "dram_bytes", "up", 100.0, 95.0, "B", "ncu", "0123abcd", "a GPU", "2026-12-01")
    assert (by_perf.held.state, by_ncu.held.state) == ("did_not_move", "opposite")
    row = mechanisms.figures([LINE, by_perf, by_ncu])[0]
    assert row.name.startswith("mechanisms: 3 claims of 2 cases")
    assert row.measured == "1 as claimed, 1 not moved, 1 the other way"


def test_a_direction_that_no_claim_has_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    assert mechanisms.read(file) == []
    file.write_text(mechanisms.FILE.read_text("utf-8").replace('"down"', '"sideways"'), encoding="utf-8")
    with pytest.raises(ValueError, match="sideways"):
        mechanisms.read(file)


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
        write_profile(writer.folder, case, Profile(case.id, mechanism=claims))
    runs = find_runs(tmp_path)
    assert len(runs) == 3
    assert [line for run in runs for line in mechanisms.of_run(run, tmp_path)] == [LINE]
