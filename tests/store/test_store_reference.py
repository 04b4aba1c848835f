"""Reference runs and the newest record of every case: what counts, from where, and that it can be recomputed."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from factory_of_runs import make_measured, write_run
from factory_of_stored_records import make_case

from aiperf.analysis.book import Measured
from aiperf.analysis.recompute import conclude
from aiperf.errors import UserError
from aiperf.records import CaseRecord, Measure, Pair, Sample, Side, SideRun
from aiperf.records.profiled import Mechanism, Profile
from aiperf.store.counted import COUNTED, CountedClaim
from aiperf.store.profiles import write_profile
from aiperf.store.read import StoredRun, find_runs, open_run
from aiperf.store.reference import (
    all_concluded_again,
    latest_measurements,
    newest_measured,
    profiled_record,
    recorded_seconds,
    reference_folder,
)
from aiperf.store.write import RunWriter

SHIPPED = Path(__file__).resolve().parents[2] / "results"
FEW = 16
"""Of the runs of one case; the others are concluded again by ``make test-long``."""


def reference_runs(results: Path) -> list[StoredRun]:
    folder = reference_folder(results)
    return [open_run(run, results=folder) for run in find_runs(folder)]


def differing(run: StoredRun) -> tuple[str, ...]:
    records, damaged = run.read_cases()
    return (*all_concluded_again(run, records)[1], *(str(d.path) for d in damaged))


def times(found):
    """What was told of speed; every record made here holds its memory, too."""
    return [m for m in found if m.metric == "time"]


def cited(case_id: str, *, ratio: float = 2.0, **changes) -> CaseRecord:
    record = make_measured(case_id, ratio=ratio)
    return replace(record, **changes) if changes else record


def pair(index: int, ratio: float) -> Pair:
    order = ("before", "after") if index % 2 else ("after", "before")
    times = {"before": ratio * 1e-3, "after": 1e-3}
    samples = tuple(Sample(side, r, 0, 10, 10 * times[side]) for r in range(3) for side in order)
    return Pair(index, order, 1, samples, tuple(SideRun(s, (1,), None, 0.0, 0) for s in times))


def concluded(name: str = "copy") -> CaseRecord:
    """A record whose results follow from its pairs."""
    case = replace(make_case(name), measure=Measure(clock="wall"))
    pairs = tuple(pair(i, 1.5 * math.exp(0.01 * math.sin(3 * i))) for i in range(6))
    results = conclude(case, pairs, alpha=0.0158, delta=0.02, width=0.01)
    return CaseRecord(case, "measured", results, pairs, stop="verdict", host_id="h-1")


def test_the_newest_record_of_this_host_wins_over_older_ones_and_over_references(tmp_path) -> None:
    write_run(tmp_path, [cited("copy", ratio=2.0)], hour=0)
    write_run(tmp_path, [cited("copy", ratio=3.0)], hour=1)
    write_run(tmp_path / "reference", [cited("copy", ratio=9.0), cited("other", ratio=4.0, host_id="h-2")], hour=5)
    found, damaged = newest_measured(tmp_path, host_id="h-1")
    assert damaged == ()
    assert {m.case: (m.ratio, m.here) for m in times(found)} == {"copy": (3.0, True), "other": (4.0, False)}
    assert {m.host for m in found} == {"a GPU"}


def test_beside_a_newer_record_of_a_cpu_the_newest_with_a_gpu_is_told_too(results) -> None:
    def on(gpus: int, ratio: float) -> CaseRecord:
        record = cited("copy", ratio=ratio)
        return replace(record, case=replace(record.case, needs=replace(record.case.needs, gpus=gpus)))

    for hour, (gpus, ratio) in enumerate([(1, 4.0), (1, 3.0), (0, 5.0), (0, 2.0)]):
        write_run(results / "reference", [on(gpus, ratio)], hour=hour)
    told = times(newest_measured(results, host_id="elsewhere")[0])
    assert {(m.ratio, m.gpu, m.newest) for m in told} == {(2.0, False, True), (3.0, True, False)}
    write_run(results, [on(1, 6.0)], hour=4)
    told = times(newest_measured(results, host_id="h-1")[0])
    assert {(m.ratio, m.gpu, m.newest, m.here) for m in told} == {(6.0, True, True, True)}


@pytest.fixture
def results(tmp_path):
    """Results with a folder for references in which there is none: without it the project's own would count."""
    (tmp_path / "reference").mkdir()
    return tmp_path


def test_another_hosts_record_counts_only_as_a_reference(results) -> None:
    write_run(results, [cited("copy")])
    assert newest_measured(results, host_id="elsewhere")[0] == ()
    write_run(results / "reference", [cited("copy", ratio=5.0)])
    (found,) = times(newest_measured(results, host_id="elsewhere")[0])
    assert (found.ratio, found.here) == (5.0, False)


def test_gates_calibration_and_failures_are_no_measurement_of_a_scenario(results) -> None:
    gated, session = cited("gated"), cited("copy@aa-001")
    slowed, failed = cited("slowed"), cited("failed", status="failed", results=())
    gated = replace(gated, case=replace(gated.case, rebuilt=True))
    slowed = replace(slowed, case=replace(slowed.case, sides=(Side("before"), Side("after", slowdown=0.05))))
    write_run(results, [gated, session, slowed, failed])
    assert newest_measured(results, host_id="h-1")[0] == ()


def test_every_step_of_a_ladder_is_told_against_the_first_side_and_the_one_before_it(results) -> None:
    record = cited("ladder")
    (result, *_) = record.results
    steps = (replace(result, side="mid"), replace(result, side="last"), replace(result, side="last", against="mid"))
    sides = tuple(Side(name) for name in ("before", "mid", "last"))
    case = replace(record.case, sides=sides, expect="improved")
    write_run(results, [replace(record, results=steps, case=case)])
    found = newest_measured(results, host_id="h-1")[0]
    assert [(m.side, m.against, m.first, m.last, m.expect) for m in found] == [
        ("mid", "before", True, False, "improved"),
        ("last", "before", True, True, "improved"),
        ("last", "mid", False, True, ""),
    ]


def test_three_hosts_of_a_kind_predict_the_ratio_of_another_one_and_two_do_not(results) -> None:
    def on(place: int, ratio: float, *, folder: Path, hour: int, cpus: int = 16) -> None:
        gpu = {"name": "a GPU", "uuid": f"GPU-{place}"}
        host = {"hostname": "gpu-07", "gpus": [gpu], "cpus": list(range(cpus))}
        record = cited("copy", ratio=ratio, host_id=f"h-{place}", started=f"2026-01-0{hour + 1}T00:00:00+00:00")
        write_run(folder, [record], hour=hour, host=host, host_id=f"h-{place}")

    references = results / "reference"
    on(0, 2.0, folder=references, hour=1)
    on(1, 2.1, folder=references, hour=2)
    on(2, 4.0, folder=references, hour=3, cpus=4)
    assert {m.another for m in newest_measured(results, host_id="elsewhere")[0]} == {None}
    on(3, 2.2, folder=references, hour=5)
    # The same host, earlier: what it has measured since counts.
    on(3, 9.0, folder=results, hour=4)
    on(4, 2.3, folder=results, hour=6)
    found = newest_measured(results, host_id="elsewhere")[0]
    (time,) = times(found)
    assert time.another is not None
    assert len(time.another.hosts) == 4
    assert time.another.low < 2.0 < 2.3 < time.another.high < 4.0
    assert [m.another for m in found if m.metric != "time"] == [None]
    (measured,), _ = latest_measurements("copy", references)
    assert [*measured.another] == [("after", "before")]


def test_a_provisional_verdict_is_told_as_one(results) -> None:
    record = cited("copy")
    (result, *rest) = record.results
    quick = replace(result, verdict=replace(result.verdict, provisional=True))
    write_run(results, [cited("sure"), replace(record, results=(quick, *rest))])
    found = times(newest_measured(results, host_id="h-1")[0])
    assert {m.case: m.provisional for m in found} == {"sure": False, "copy": True}


def test_a_record_tells_of_speed_and_of_the_memory_of_its_device(results) -> None:
    record = cited("copy")
    by = {r.comparison.metric: r for r in record.results}
    tail = replace(by["time"], comparison=replace(by["time"].comparison, metric="latency_p99"))
    about = replace(record.case, measure=Measure(metric="latency_p99"), expect="improved")
    others = tuple(replace(r, primary=False) for r in record.results)
    write_run(results, [replace(record, case=about, results=(tail, *others))])
    found = newest_measured(results, host_id="h-1")[0]
    memory = "gpu_memory" if record.case.needs.gpus else "peak_memory"
    assert [(m.metric, m.expect) for m in found] == [("latency_p99", "improved"), (memory, "")]


def test_a_damaged_record_is_named(results) -> None:
    folder = write_run(results, [cited("copy")])
    (folder / "cases" / "copy.json").write_text("{")
    found, damaged = newest_measured(results, host_id="h-1")
    assert found == ()
    assert [d.path.name for d in damaged] == ["copy.json"]


def test_reference_runs_lie_in_the_results_or_in_the_projects_own(tmp_path) -> None:
    assert reference_folder(tmp_path) == SHIPPED / "reference"
    write_run(tmp_path / "reference", [concluded()])
    assert reference_folder(tmp_path) == tmp_path / "reference"
    assert [run.record.status for run in reference_runs(tmp_path)] == ["finished"]


def test_every_verdict_of_a_run_is_recomputed_and_what_does_not_follow_is_named(tmp_path) -> None:
    folder = write_run(tmp_path / "reference", [concluded("copy"), concluded("other")])
    (run,) = reference_runs(tmp_path)
    assert differing(run) == ()
    path = folder / "cases" / "other.json"
    plain = json.loads(path.read_text())
    plain["results"][0]["verdict"]["word"] = "equivalent"
    path.write_text(json.dumps(plain))
    assert differing(open_run(folder, results=tmp_path)) == ("other differs from what was stored",)
    (folder / "cases" / "copy.json").write_text("{")
    damaged = str(folder / "cases" / "copy.json")
    assert differing(open_run(folder, results=tmp_path)) == ("other differs from what was stored", damaged)


def test_one_case_whose_samples_are_lost_or_of_another_does_not_stop_the_others(tmp_path) -> None:
    folder = write_run(tmp_path, [concluded("copy"), concluded("other"), concluded("third")])
    run = open_run(folder, results=tmp_path)
    records, damaged = run.read_cases()
    assert all_concluded_again(run, records) == (records, ())
    (folder / "samples" / "copy.parquet").unlink()
    (folder / "samples" / "third.parquet").write_bytes(b"PAR1")
    fresh, told = all_concluded_again(run, records)
    assert [r.case.id for r in fresh] == ["copy", "other", "third"]
    assert [text.partition(": ")[0] for text in told] == ["copy cannot be recomputed", "third cannot be recomputed"]
    assert all(".parquet: " in text for text in told)
    assert run.lost(records, damaged) == 0


def test_what_a_run_should_hold_and_does_not_is_counted(tmp_path) -> None:
    planned = ("copy", "other", "third")
    folder = write_run(tmp_path, [concluded("copy"), concluded("other")], planned=planned)
    (folder / "cases" / "other.json").write_text("{")
    run = open_run(folder, results=tmp_path)
    assert run.lost(*run.read_cases()) == 2
    unfinished = replace(run, record=replace(run.record, status="interrupted"))
    assert unfinished.lost(*run.read_cases()) == 1
    calibrated = replace(run, record=replace(run.record, planned=("copy", "other[n=1]")))
    sessions = [concluded("copy"), concluded("other[n=1]@aa-001"), concluded("other[n=1]@aa-002")]
    assert calibrated.lost(sessions, ()) == 0
    profiled = replace(run, record=replace(run.record, command="profile"))
    assert profiled.lost((), ()) == 0


def test_what_a_scenario_took_is_told_by_the_newest_records_of_its_cases(results) -> None:
    def case(name: str, seconds: float, **changes) -> CaseRecord:
        record = cited(name, seconds=seconds, **changes)
        return replace(record, case=replace(record.case, scenario=name.partition("[")[0]))

    write_run(results / "reference", [case("copy[1]", 7.0, host_id="h-2"), case("other", 3.0)], hour=0)
    write_run(results, [case("copy[1]", 5.0), case("copy[2]", 2.0), case("failed", 9.0, status="failed")], hour=1)
    write_run(results, [case("copy[2]", 1.0, precision="quick")], hour=2)
    assert recorded_seconds(results) == {"copy": [5.0, 2.0], "other": [3.0]}


def test_what_is_shipped_is_small_and_names_its_commit_and_host() -> None:
    size = sum(path.stat().st_size for path in (SHIPPED / "reference").rglob("*") if path.is_file())
    assert size < 88 << 20
    for run in reference_runs(SHIPPED):
        assert len(run.record.git["sha"]) == 40
        assert run.record.host["cpu_model"]
        precision = run.record.settings["precision"]
        name = precision["name"] if isinstance(precision, dict) else precision
        # The book's programs have more pairs of one launch each; a look that is provisional is no reference.
        assert name == "standard" or (name == "estimate" and not precision["provisional"]), run.record.run


def cases_of(run: StoredRun) -> int:
    return len(list((run.folder / "cases").iterdir()))


def concluded_again(runs: list[StoredRun]) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Run -> its warnings, and what does not follow from its samples; only runs with one or the other."""
    found = {run.record.run: (run.warnings, differing(run)) for run in runs}
    return {name: told for name, told in found.items() if told != ((), ())}


def newest_of_one_case() -> list[StoredRun]:
    return [run for run in reference_runs(SHIPPED) if cases_of(run) == 1][-FEW:]


def test_every_verdict_of_the_newest_shipped_reference_runs_of_one_case_follows_from_its_samples() -> None:
    runs = newest_of_one_case()
    assert len(runs) == FEW
    assert concluded_again(runs) == {}


@pytest.mark.long
def test_every_verdict_of_every_other_shipped_reference_run_does() -> None:
    done = {run.folder for run in newest_of_one_case()}
    runs = [run for run in reference_runs(SHIPPED) if run.folder not in done]
    assert runs, "no reference run is shipped"
    assert concluded_again(runs) == {}


CLAIM = {"page_faults": "down"}
BY_PERF = CountedClaim("made", "c0ffee", "page_faults", "down", 9.0, 1.0, "", "perf", "0123abcd", "a CPU", "2026-12-01")


def measured_with_claims(results: Path) -> Measured:
    """The headline of a reference record whose scenario claims a counter."""
    record = make_measured("made")
    case = replace(record.case, moves=CLAIM, scenario_hash="c0ffee")
    write_run(reference_folder(results), [replace(record, case=case)])
    return next(one for one in newest_measured(results, host_id="")[0] if one.case == "made")


def keep_counters(results: Path, *lines: CountedClaim) -> None:
    file = reference_folder(results) / COUNTED
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))


def test_a_record_comes_with_the_kept_counters_of_its_scenario_file_alone(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    found = measured_with_claims(tmp_path)
    keep_counters(
        tmp_path, BY_PERF, replace(BY_PERF, scenario_hash="facade", after=99.0), replace(BY_PERF, case="other")
    )
    profiled = profiled_record(found, tmp_path)
    assert profiled is not None
    assert profiled.record.case.id == "made"
    assert [(m.before, m.after, m.tool) for m in profiled.profile.mechanism] == [(9.0, 1.0, "perf")]
    assert profiled.origin == "perf on a CPU at 0123abcd, 2026-12-01"


def test_a_profile_of_ones_own_goes_before_kept_counters_if_it_is_of_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    found = measured_with_claims(tmp_path)
    keep_counters(tmp_path, BY_PERF)
    for scenario_hash, origin in (("facade", "perf on a CPU at 0123abcd, 2026-12-01"), ("c0ffee", "run ")):
        run = RunWriter.create(tmp_path).folder
        mechanism = (Mechanism("page_faults", "down", "moved", 8.0, 2.0, tool="perf"),)
        write_profile(run, make_case("made"), Profile("made", mechanism=mechanism, facts={"scenario": scenario_hash}))
        profiled = profiled_record(found, tmp_path)
        assert profiled is not None
        assert profiled.origin.startswith(origin)
    assert profiled.profile.mechanism[0].before == 8.0


def test_a_record_that_cannot_be_read_any_more_has_no_profile_and_damaged_counters_are_told(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    found = measured_with_claims(tmp_path)
    keep_counters(tmp_path, replace(BY_PERF, before=math.nan))
    with pytest.raises(UserError, match="finite"):
        profiled_record(found, tmp_path)
    (tmp_path / "reference" / found.run).rename(tmp_path / "reference" / "elsewhere")
    assert profiled_record(found, tmp_path) is None
