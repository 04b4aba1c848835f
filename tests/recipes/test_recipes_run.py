"""The recipe of a run with a stand that hands out pairs made by hand: what is stored, told and returned."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from recipes_made import FAST, HOST, Bench, Told, failing, make_case, make_settings, noisy, pair, raises

from aiperf.analysis.limits import PeakRate
from aiperf.errors import AiperfError, Exit
from aiperf.host import health
from aiperf.host.health import HealthReading
from aiperf.host.peaks import peak_spec
from aiperf.host.relevance import HostCheck
from aiperf.launch.gang import LaunchFailed
from aiperf.plan.plan import Plan
from aiperf.recipes import run as recipe
from aiperf.recipes import run_peaks, schedule
from aiperf.recipes.case_runner import noise_for
from aiperf.recipes.peaks import PeakOutcome
from aiperf.recipes.run import exit_code, run_plan
from aiperf.recipes.schedule import relative_width
from aiperf.records import Failure, HostFinding, Invocation, Measure, Needs, Side, Skip
from aiperf.records.calibration import Calibration
from aiperf.store.read import open_run, read_pairs
from aiperf.store.write import RunWriter, StoreError


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run cases with the pairs of a script; what came of it, and the stored run."""

    def _run(script, *cases, skips=(), host_check=HostCheck.off, **settings):
        bench, told = Bench(script), Told()
        monkeypatch.setattr(recipe, "MeasurementSession", lambda host, settings, *_: bench)
        outcome = run_plan(
            Plan(tuple(cases) or (make_case("a"),), tuple(skips)),
            host=HOST,
            settings=make_settings(tmp_path, **settings),
            progress=told,
            invocation=Invocation("run", ("aiperf", "run", "a")),
            host_check=host_check,
        )
        stored = open_run(results=tmp_path)
        return SimpleNamespace(outcome=outcome, stored=stored, bench=bench, told=told, cases=stored.read_cases()[0])

    return _run


def test_every_case_of_the_plan_is_measured_stored_and_told_in_order(run) -> None:
    skip = Skip(make_case("c"), "needs 9 GPUs", "use another host")
    done = run([pair(ratio=1.5)], make_case("a"), make_case("b"), skips=[skip])
    assert done.outcome.exit is Exit.OK
    assert [r.case.id for r in done.cases] == ["a", "b", "c"]
    assert [r.status for r in done.cases] == ["measured", "measured", "skipped"]
    assert done.told.done == ["c", "a", "b"]
    assert done.stored.record.status == "finished"
    assert done.stored.record.argv == ("aiperf", "run", "a")
    assert {r.case.id: r.results for r in done.outcome.records} == {r.case.id: r.results for r in done.cases}
    assert [len(p.samples) for p in read_pairs(done.stored, done.cases[0])] == [8] * 4


@pytest.mark.parametrize("budget", [None, 1e6])
def test_the_stand_hears_what_comes_over_the_end_of_a_case(run, budget) -> None:
    done = run([pair(ratio=1.5)], make_case("a"), make_case("b"), budget=budget)
    calls = tuple(done.bench.calls)
    assert done.bench.expected[3] == calls[4:]
    assert done.bench.expected[-1] == ()


def test_a_failed_case_does_not_stop_the_next_one(run) -> None:
    done = run([failing(), pair(ratio=1.5)], make_case("a"), make_case("b"))
    assert [r.status for r in done.cases] == ["failed", "measured"]
    assert done.outcome.exit is Exit.WRONG


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device", "/scratch/pair-0"),
        LaunchFailed(Failure("after", "measure", "protocol", "its pipe to aiperf held no valid reply")),
    ],
)
def test_a_full_disk_or_a_garbled_reply_ends_one_case_and_not_the_run(run, error) -> None:
    done = run([raises(error), pair(ratio=1.5)], make_case("a"), make_case("b"))
    assert [r.status for r in done.cases] == ["failed", "measured"]
    said = error.failure.message if isinstance(error, LaunchFailed) else "No space left on device: /scratch/pair-0"
    assert done.cases[0].failure.message == said
    assert done.stored.record.status == "finished"
    assert done.outcome.exit is Exit.WRONG


def test_an_interrupt_ends_the_run_and_keeps_every_case_begun(run) -> None:
    script = [*[pair(ratio=1.5)] * 4, *[pair(ratio=1.5)] * 2, raises(KeyboardInterrupt())]
    done = run(script, make_case("a"), make_case("b"), make_case("c"))
    assert done.outcome.exit is Exit.INTERRUPTED
    assert [(r.case.id, r.status, len(r.pairs)) for r in done.cases] == [("a", "measured", 4), ("b", "interrupted", 2)]
    assert done.stored.record.status == "interrupted"
    assert len(read_pairs(done.stored, done.cases[1])) == 2


def test_an_interrupt_leaves_a_case_at_its_look_the_verdict_of_that_look(run) -> None:
    # Both had their look at four pairs; one of them was at the first pair after it.
    script = [*[noisy(0.04)] * 8, raises(KeyboardInterrupt())]
    done = run(script, make_case("a"), make_case("b"), budget=1e6)
    assert sorted((r.case.id, r.status, r.stop, len(r.pairs)) for r in done.cases) == [
        ("a", "measured", "budget", 4),
        ("b", "measured", "budget", 4),
    ]
    assert {r.outcome(r.results[0]) for r in done.cases} == {"inconclusive"}
    assert {r.notes[0].code for r in done.cases} == {"ended_at_look"}
    assert done.outcome.exit is Exit.INTERRUPTED


def test_an_interrupt_between_two_looks_leaves_a_case_without_a_verdict(run) -> None:
    done = run([*[noisy(0.04)] * 5, raises(KeyboardInterrupt())], budget=1e6)
    assert [(r.status, r.stop, r.outcome(r.results[0])) for r in done.cases] == [("interrupted",) * 3]


def test_an_interrupt_while_a_limit_is_measured_loses_no_pair(run, monkeypatch) -> None:
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_peaks, "measure_peaks", interrupted)
    done = run([pair(ratio=1.5, peaks={"cpu_stream": 1e6})])
    assert [(r.status, len(r.pairs)) for r in done.cases] == [("interrupted", 4)]
    assert done.cases[0].results[0].comparison.ratio == pytest.approx(1.5, rel=0.01)


def test_a_disk_that_fills_up_ends_the_run_and_what_was_measured_is_still_returned(run, monkeypatch) -> None:
    real = RunWriter.write_case

    def full(writer, record):
        if record.case.id == "b":
            raise StoreError("b could not be saved: no space left on device", saved=writer.saved, lost="b")
        return real(writer, record)

    monkeypatch.setattr(RunWriter, "write_case", full)
    done = run([pair(ratio=1.5)], make_case("a"), make_case("b"), make_case("c"))
    assert done.outcome.exit is Exit.USAGE
    assert done.outcome.problems == ("b could not be saved: no space left on device",)
    assert [r.case.id for r in done.outcome.records] == ["a", "b"]
    assert done.outcome.records[1].results[0].verdict.word == "improved"
    assert done.stored.record.status == "interrupted"


def test_limits_that_cannot_be_kept_are_told_and_cost_only_the_limits(run, monkeypatch) -> None:
    def broken(*_, **__):
        raise AiperfError("the peaks of this host cannot be saved: read-only file system")

    monkeypatch.setattr(run_peaks, "measure_peaks", broken)
    done = run([pair(ratio=1.5, peaks={"cpu_stream": 1e6})])
    assert done.outcome.exit is Exit.OK
    assert "the peaks of this host cannot be saved: read-only file system" in done.told.notes


def test_a_roof_whose_launches_tell_little_is_a_note_of_the_run(run, monkeypatch) -> None:
    outcome = PeakOutcome(peak_spec("cpu_stream"), None, "the interval spans a factor of 4", fresh=True)
    monkeypatch.setattr(run_peaks, "measure_peaks", lambda *_, **__: [outcome, replace(outcome, problem="")])
    done = run([pair(ratio=1.5, peaks={"cpu_stream": 1e6})])
    notes = [note for note in done.told.notes if note.startswith("the peak ")]
    assert notes == ["the peak cpu_stream: the interval spans a factor of 4"]


def test_a_roof_is_measured_once_a_run_and_not_at_all_when_unwanted(run, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(run_peaks, "measure_peaks", lambda names, **_: asked.append(list(names)) or [])
    run([pair(ratio=1.5, peaks={"cpu_stream": 1e6})], make_case("a"), make_case("b"))
    assert asked == [["cpu_stream"]]
    run([pair(ratio=1.5, peaks={"cpu_stream": 1e6})], peaks=False)
    assert asked == [["cpu_stream"]]


def test_a_stored_peak_that_a_case_exceeds_is_measured_again_also_without_measuring_peaks(run, monkeypatch) -> None:
    stored = {"cpu_stream": PeakRate(1e8, "B/s")}
    asked = []

    def measured(names, **_):
        asked.append(list(names))
        stored["cpu_stream"] = PeakRate(1e12, "B/s")
        return []

    monkeypatch.setattr(run_peaks, "measure_peaks", measured)
    monkeypatch.setattr(run_peaks, "peak_rates", lambda host_id: dict(stored))
    done = run([pair(ratio=1.5, peaks={"cpu_stream": 1e6})], peaks=False)
    assert asked == [["cpu_stream"]]
    assert done.cases[0].results[0].verdict.word == "improved"


def test_a_result_beyond_the_limit_is_impossible_and_exits_with_5(run, monkeypatch) -> None:
    monkeypatch.setattr(run_peaks, "measure_peaks", lambda *_, **__: [])
    monkeypatch.setattr(run_peaks, "peak_rates", lambda host_id: {"cpu_stream": PeakRate(1e8, "B/s")})
    done = run([pair(ratio=1.5, peaks={"cpu_stream": 1e6})])
    assert done.outcome.exit is Exit.WRONG
    assert done.cases[0].results[0].verdict.reason == "beyond_limit"


def test_what_cannot_be_cleared_up_after_the_last_case_is_told_and_costs_the_run_nothing(run, monkeypatch) -> None:
    def stuck(*_: object) -> None:
        raise AiperfError("process 7 does not die")

    monkeypatch.setattr(Bench, "__exit__", stuck)
    done = run([pair(ratio=1.5)])
    assert (done.outcome.exit, done.stored.record.status) == (Exit.OK, "finished")
    assert done.told.notes[-1] == "process 7 does not die"


def test_a_budget_gives_each_case_a_look_and_then_the_widest_interval_goes_on(run) -> None:
    done = run([*[noisy(0.03)] * 4, *[noisy(0.2)] * 4, noisy(0.2)], make_case("calm"), make_case("wild"), budget=1e6)
    order = [name for name, *_ in done.bench.calls]
    assert order[:4] == ["calm"] * 4
    assert order[4:8] == ["wild"] * 4
    assert order[8] == "wild"
    assert {r.stop for r in done.cases} == {"max_pairs"}


def test_an_interval_that_cannot_be_trusted_comes_before_the_widest() -> None:
    def width(low: float, high: float, *reasons: str) -> float:
        results = tuple(
            SimpleNamespace(
                primary=True, verdict=SimpleNamespace(reason=reason), comparison=SimpleNamespace(low=low, high=high)
            )
            for reason in reasons
        )
        return relative_width(SimpleNamespace(results=results, settings=make_settings()))

    wide = width(0.5, 2.0, "interval_straddles")
    assert width(0.9, 1.1, "interval_straddles") < wide
    assert width(6.4, 6.5, "beyond_threshold", "two_groups") > wide


def test_a_budget_is_spent_by_all_that_a_run_does_and_by_limits_too(run, monkeypatch) -> None:
    now = clock(monkeypatch)

    def slow(*_, **__):
        now[0] += 50.0
        return []

    monkeypatch.setattr(run_peaks, "measure_peaks", slow)
    script = [pair(ratio=1.0, spread=0.2, peaks={"cpu_stream": 1e6})]
    wild = [make_case("a"), make_case("b")]
    enough = run(script, *wild, budget=51.0)
    assert {(r.stop, len(r.pairs)) for r in enough.cases} == {("max_pairs", 8)}
    spent = run(script, *wild, budget=49.0)
    assert {(r.stop, len(r.pairs)) for r in spent.cases} == {("budget", 4)}


def clock(monkeypatch, *, of_a_pair=0.0):
    """A clock that stands at a thousand seconds and goes on by hand, or by so much with each pair."""
    now = [1000.0]
    monkeypatch.setattr(schedule.time, "monotonic", lambda: now[0])
    real = Bench.measure

    def measure(bench, *given, **how):
        now[0] += of_a_pair
        return real(bench, *given, **how)

    monkeypatch.setattr(Bench, "measure", measure)
    return now


def test_what_a_case_has_spent_is_not_taken_from_it_twice(run, monkeypatch) -> None:
    clock(monkeypatch, of_a_pair=10.0)
    # Four pairs of each take 80 s and two more of the first 20; what is left is less than a pair, or more.
    done = run([noisy(0.2)], make_case("a"), make_case("b"), budget=109.0)
    assert sorted((r.stop, len(r.pairs)) for r in done.cases) == [("budget", 4), ("budget", 6)]
    done = run([noisy(0.2)], make_case("a"), make_case("b"), budget=111.0)
    assert sorted((r.stop, len(r.pairs)) for r in done.cases) == [("budget", 6), ("budget", 6)]


def test_under_a_budget_a_case_keeps_to_its_own_limit(run, monkeypatch) -> None:
    clock(monkeypatch, of_a_pair=10.0)
    done = run([noisy(0.2)], precision=replace(FAST, case_seconds=61.0), budget=1e6)
    assert [(r.stop, len(r.pairs)) for r in done.cases] == [("budget", 6)]


@pytest.mark.parametrize("budget", [None, 1e6])
def test_the_pairs_of_the_next_two_cases_are_foreseen_and_no_further(run, budget) -> None:
    done = run([pair(ratio=1.5)], *(make_case(name) for name in "abcd"), budget=budget)
    calls = tuple(done.bench.calls)
    assert done.bench.expected[3] == calls[4:12]


def test_while_the_widest_goes_on_those_after_it_are_foreseen(run) -> None:
    names = ("calm", "wild", "wilder")
    script = [*[noisy(0.03)] * 4, *[noisy(0.1)] * 4, *[noisy(0.2)] * 4, noisy(0.2)]
    done = run(script, *(make_case(name) for name in names), budget=1e6)
    assert done.bench.calls[12][0] == "wilder"
    assert [name for name, *_ in done.bench.expected[12]] == ["wilder", "wild", "wild", "calm", "calm"]


def test_roofs_know_which_pairs_come_after_them(run, monkeypatch) -> None:
    told = []
    monkeypatch.setattr(
        run_peaks, "measure_peaks", lambda names, *, then, **_: told.append([p.case.id for p in then]) or []
    )
    run([pair(ratio=1.5, peaks={"cpu_stream": 1e6})], make_case("a"), make_case("b"))
    assert told == [["b"] * 4]


def test_findings_of_the_host_are_reported_and_recorded(run, monkeypatch) -> None:
    finding = HostFinding("stale_workers", "warn", "Stale workers", "PID 7 still running", advice="end them")
    other = HostFinding("thp", "warn", "Transparent huge pages", "never")
    monkeypatch.setattr(health, "read_health", lambda ids, **_: HealthReading((finding, other)))
    done = run([pair(ratio=1.5)])
    assert done.stored.record.findings == (finding,)
    assert done.told.notes == ["Stale workers: PID 7 still running. What helps: end them."]


def test_the_exit_code_ranks_wrong_before_unfit_before_skipped(run) -> None:
    measured = run([pair(ratio=1.5)]).cases[0]
    skipped, failed = replace(measured, status="skipped", results=()), replace(measured, status="failed", results=())
    unfit = replace(measured, stop="unfit")
    assert exit_code((measured, skipped), False) is Exit.OK
    assert exit_code((skipped, skipped), False) is Exit.SKIPPED
    assert exit_code((measured, unfit), False) is Exit.UNFIT
    assert exit_code((unfit, failed), False) is Exit.WRONG
    assert exit_code((failed,), True) is Exit.INTERRUPTED
    assert exit_code((), False) is Exit.OK


def test_calibration_is_used_for_the_same_way_of_measuring_only() -> None:
    known = (Calibration("process+wall", "s", 20, 0, 0.1, 0.03, 0.06, "now", scale=1.4),)
    assert noise_for(make_case(), known).tau == 0.03
    assert noise_for(make_case("other"), known).scale == 1.4
    assert noise_for(replace(make_case(), measure=Measure(clock="device")), known).tau == 0.0
    sides = tuple(Side(n, command=("true",)) for n in ("before", "after"))
    assert noise_for(replace(make_case(), sides=sides), known).tau == 0.0


BUSY = HostFinding("cpu-oversubscription", "unfit", "", "CPU 0-1 97 % busy", advice="Stop it.")
DISK = HostFinding("io-scheduler", "warn", "I/O scheduler", "bfq")


@pytest.fixture
def found(monkeypatch):
    """What a run finds of the host; also of which probes it asked."""

    def _found(*facts, late=()):
        calls = []

        def look(ids, **_):
            calls.append(ids)
            return HealthReading(facts, late)

        monkeypatch.setattr(health, "read_health", look)
        return calls

    return _found


def test_findings_that_touch_a_case_are_stored_with_it_and_others_are_not(run, found) -> None:
    calls = found(BUSY, DISK)
    done = run([pair(ratio=1.5)], make_case("a"), replace(make_case("b"), tags=("storage",)), host_check=HostCheck.warn)
    assert done.outcome.exit is Exit.OK
    plain, storage = done.cases
    assert [finding.level for finding in plain.findings] == ["unfit"]
    assert plain.findings[0].text.startswith("CPU 0-1 97 % busy; other work takes")
    assert [finding.level for finding in storage.findings] == ["unfit", "warn"]
    assert len(calls) == 1
    assert done.stored.record.settings["host_check"] == "warn"


def test_a_roof_that_a_side_charges_makes_a_finding_touch_it(run, found, monkeypatch) -> None:
    monkeypatch.setattr(run_peaks, "measure_peaks", lambda *_, **__: [])
    found(DISK)
    done = run([pair(ratio=1.5, peaks={"disk_read": 1e6})], host_check=HostCheck.warn)
    assert [finding.level for finding in done.cases[0].findings] == ["warn"]


def test_strict_measures_no_case_that_the_host_is_unfit_for_and_exits_with_6(run, found) -> None:
    found(replace(BUSY, id="gpu_processes"))
    gpu = replace(make_case("g"), needs=Needs(gpus=1))
    done = run([pair(ratio=1.5)], make_case("a"), gpu, host_check=HostCheck.strict)
    assert [(r.case.id, r.status) for r in done.cases] == [("a", "measured"), ("g", "failed")]
    assert {name for name, *_ in done.bench.calls} == {"a"}
    assert done.outcome.exit is Exit.UNFIT
    refused = done.cases[1]
    assert refused.failure.message.startswith(
        "the host is unfit for this case: CPU 0-1 97 % busy; other work on the GPU"
    )
    assert refused.findings
    assert "g" in done.told.done


def test_strict_measures_what_is_only_warned_of(run, found) -> None:
    found(replace(BUSY, level="warn"))
    done = run([pair(ratio=1.5)], host_check=HostCheck.strict)
    assert done.outcome.exit is Exit.OK
    assert done.cases[0].findings[0].level == "warn"


def test_strict_refuses_a_case_whose_first_pair_shows_that_it_uses_what_the_host_lacks(run, found, monkeypatch) -> None:
    monkeypatch.setattr(run_peaks, "measure_peaks", lambda *_, **__: [])
    found(HostFinding("monitor-memory", "warn", "Headroom of memory", "5 % available"))
    warm = pair(ratio=1.5, peaks={"page_cache_read": 1e6})
    done = run([warm, pair(ratio=1.5)], make_case("a"), make_case("b"), host_check=HostCheck.strict)
    assert [(r.case.id, r.status, r.stop) for r in done.cases] == [
        ("a", "failed", "unfit"),
        ("b", "measured", "verdict"),
    ]
    assert [name for name, *_ in done.bench.calls] == ["a", "b", "b", "b", "b"]
    assert (done.cases[0].results, done.cases[0].pairs) == ((), ())
    assert "a warm read needs free memory" in done.cases[0].failure.message
    assert done.cases[0].failure.message.endswith("Its first pair, which revealed what it uses, was dropped.")
    assert str(done.cases[0].findings[0]).startswith("unfit: Headroom")
    assert done.outcome.exit is Exit.UNFIT


def test_what_passes_is_found_again_while_the_run_measures(run, monkeypatch) -> None:
    looks = [HealthReading((replace(BUSY, level="warn"), DISK)), HealthReading(()), HealthReading((BUSY,))]
    monkeypatch.setattr(health, "read_health", lambda *_, **__: looks.pop(0) if len(looks) > 1 else looks[0])
    monkeypatch.setattr(health, "STALE_S", 0.0)
    script = [pair(ratio=1.5)]
    done = run(script, *(replace(make_case(name), tags=("storage",)) for name in "ab"), host_check=HostCheck.warn)
    first, second = done.cases
    assert [finding.level for finding in first.findings] == ["warn"]
    assert [finding.level for finding in second.findings] == ["unfit", "warn"]
    assert "new host finding since the run began: CPU 0-1 97 % busy. What helps: Stop it." in done.told.notes
    # What waits for its turn is not to be taken for work of others.
    assert done.bench.stills == ["begin", "end"] * 2


def test_while_what_was_found_is_fresh_nothing_has_to_be_still(run, monkeypatch) -> None:
    monkeypatch.setattr(health, "read_health", lambda *_, **__: HealthReading(()))
    assert run([pair(ratio=1.5)], make_case("a"), make_case("b"), host_check=HostCheck.warn).bench.stills == []


def test_a_look_at_the_host_that_fails_is_told_and_costs_only_the_look(run, monkeypatch) -> None:
    def dies(bench):
        raise AiperfError("process 7 does not die")

    monkeypatch.setattr(health, "read_health", lambda *_, **__: HealthReading(()))
    monkeypatch.setattr(health, "STALE_S", 0.0)
    monkeypatch.setattr(Bench, "still", dies)
    done = run([pair(ratio=1.5)], make_case("a"), make_case("b"), host_check=HostCheck.warn)
    assert [r.status for r in done.cases] == ["measured", "measured"]
    assert done.told.notes.count("the host could not be checked again: process 7 does not die") == 2


def test_a_load_of_the_start_refuses_no_case_whose_turn_comes_when_it_is_gone(run, monkeypatch) -> None:
    looks = [HealthReading((BUSY, replace(BUSY, id="gpu_processes"))), HealthReading(())]
    monkeypatch.setattr(health, "read_health", lambda *_, **__: looks.pop(0) if len(looks) > 1 else looks[0])
    monkeypatch.setattr(health, "STALE_S", 0.0)
    done = run([pair(ratio=1.5)], replace(make_case("g"), needs=Needs(gpus=1)), host_check=HostCheck.strict)
    assert [(r.status, r.findings) for r in done.cases] == [("measured", ())]


@pytest.mark.usefixtures("host_read_anew")
def test_a_run_records_the_variables_that_can_change_a_measurement_and_no_secret(run, monkeypatch, tmp_path) -> None:
    planted = "tok-3f9a-planted"
    for name in ("HF_TOKEN", "TORCH_HUB_TOKEN", "SLURM_JWT", "NCCL_API_KEY", "WANDB_API_KEY"):
        monkeypatch.setenv(name, planted)
    monkeypatch.setenv("NCCL_CONF", f"https://me:{planted}@host/x")
    monkeypatch.setenv("TORCH_LOGS", f"+dynamo,https://me:{planted}@host")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    done = run([pair(ratio=1.5)], host_check=HostCheck.warn)
    recorded = done.stored.record.host["fingerprint"]["record_only"]["environment"]
    assert recorded["OMP_NUM_THREADS"] == "3"
    assert any("TORCH_LOGS" in finding.value for finding in done.stored.record.findings)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert [path for path in files if planted.encode() in path.read_bytes()] == []


def test_off_reads_what_every_run_records_and_holds_it_against_no_case(run, found) -> None:
    calls = found(BUSY)
    done = run([pair(ratio=1.5)])
    assert done.cases[0].findings == ()
    assert done.stored.record.findings == (BUSY,)
    assert calls == [health.RECORDED]


def test_the_host_is_surveyed_before_the_first_pair(run, found, monkeypatch) -> None:
    calls = found(BUSY)
    seen = []
    done = run([lambda *args: seen.append(len(calls)) or pair(ratio=1.5)(*args)], host_check=HostCheck.warn)
    assert done.outcome.exit is Exit.OK
    assert set(seen) == {1}


def test_probes_without_an_answer_in_time_are_named(run, found) -> None:
    found(late=("numa-awareness",))
    done = run([pair(ratio=1.5)], host_check=HostCheck.warn)
    assert "host probes that did not answer in time, so not judged: numa-awareness" in done.told.notes


def test_a_failure_counts_before_a_refused_case(run) -> None:
    measured = run([pair(ratio=1.5)]).cases[0]
    refused = replace(measured, status="failed", stop="unfit", results=())
    failed = replace(measured, status="failed", stop="failure", results=())
    assert exit_code((measured, refused), False) is Exit.UNFIT
    assert exit_code((failed, refused), False) is Exit.WRONG
