"""The recipe of a gate with a way of measuring that hands out runs made by hand."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from recipes_made import HOST, Told, make_pair, make_settings

from aiperf.analysis.gate_judge import GateReference, judge_case
from aiperf.analysis.recompute import conclude
from aiperf.errors import Exit, UserError
from aiperf.host.fingerprint import fingerprint
from aiperf.host.relevance import HostCheck
from aiperf.plan.gates import GateConfig, MetricRule
from aiperf.plan.plan import Plan
from aiperf.recipes.gate import run_gate
from aiperf.recipes.gate_base import Gate
from aiperf.recipes.promote import promote_runs, promotion_warnings
from aiperf.recipes.run import RunOutcome
from aiperf.records import Case, CaseRecord, Failure, HostFinding, Invocation, Measure, Note, RunRecord, Side, Skip
from aiperf.settings import Limits
from aiperf.store.write import RunWriter

PAIRS = 12


@dataclass
class Fake:
    """Stands for ``run_plan``: each case takes the next ratio of its script (head against base), then the last one."""

    script: dict[str, list[float | str]]
    calls: list[tuple[Plan, object, dict[str, object]]] = field(default_factory=list)
    interrupt: bool = False
    problems: tuple[str, ...] = ()
    meanwhile: object = None
    spread: float = 0.002

    def __call__(self, plan, *, host, settings, progress, invocation, **more):
        self.calls.append((plan, settings, more))
        records = [self.record(case, settings) for case in plan.cases]
        records += [CaseRecord(skip.case, "skipped", skip_reason=skip.reason) for skip in plan.skips]
        if callable(self.meanwhile):
            self.meanwhile()
        status = "interrupted" if self.interrupt else "finished"
        run = RunRecord(f"r{len(self.calls)}", invocation.argv, "", status=status, host_id="nobody")
        return RunOutcome(Path(f"results/r{len(self.calls)}"), run, tuple(records), Exit.OK, self.problems)

    def record(self, case, settings):
        script = self.script[case.id]
        step = script[min(len(self.calls), len(script)) - 1]
        if step == "failed":
            return CaseRecord(
                case, "failed", stop="failure", failure=Failure(case.sides[1].name, "set-up", "error", "no model")
            )
        given = (
            {"stop": "unfit", "notes": (Note("voided", {"voids": 5, "pairs": 9}),)}
            if step == "unfit"
            else {"stop": "verdict"}
        )
        sides = tuple(side.name for side in case.sides)
        pairs = self.pairs(1.0 if isinstance(step, str) else step, sides, passed=step != "wrong")
        delta = case.measure.delta or 0.02
        results = conclude(case, pairs, alpha=0.0158, delta=delta, width=0.01)
        return CaseRecord(
            case,
            "measured",
            results,
            tuple(pairs),
            seconds=3.0,
            threshold=delta,
            alpha=0.0158,
            seed=settings.seed,
            **given,
        )

    def pairs(self, ratio, sides, **how):
        found = []
        for i in range(PAIRS):
            away = 1 + self.spread if i // 2 % 2 else 1 / (1 + self.spread)
            order = sides if i % 2 == 0 else sides[::-1]
            found.append(make_pair(i, order, 0, ratio=ratio * away, sides=sides, **how))
        return found


def git(folder, *arguments):
    identity = ["-c", "user.name=T", "-c", "user.email=t@t"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A repository with two commits of old.py; new.py is not committed."""
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "old.py").write_text("print(1)\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    (folder / "old.py").write_text("print(2)\n")
    git(folder, "commit", "-qam", "two")
    (folder / "new.py").write_text("print(3)\n")
    monkeypatch.chdir(folder)
    return folder


def case(repo, name="a", *, program="old.py", **changes):
    side = {"command": ("python", program)}
    given = {"measure": Measure(clock="wall"), "path": str(repo / f"{name}.yaml"), "scenario_hash": "abc"} | changes
    return Case(name, name, "t", "w", (Side("before", **side), Side("after", **side)), **given)


def gate(repo, measure, *cases, skips=(), settings=None, told=None, **config):
    cases = cases or (case(repo),)
    given = {} if "baseline" in config else {"against": "main~1"}
    asked = Gate(
        GateConfig("default", **(given | config)), Plan(cases, tuple(skips)), HOST, settings or make_settings(),
        lambda: told or Told(), Invocation("gate"), measure,
    )  # fmt: skip
    return run_gate(asked)


# ---- base and head rebuilt -------------------------------------------------------------------------------------------


def test_base_and_head_are_measured_against_each_other_once_where_nothing_looks_worse(repo):
    fake = Fake({"a": [1.0]})
    outcome = gate(repo, fake)
    assert (outcome.exit, outcome.level, outcome.rows[0].status) == (Exit.OK, "rebuild", "passed")
    ((plan, _, more),) = fake.calls
    base = git(repo, "rev-parse", "main~1")
    assert [side.ref for side in plan.cases[0].sides] == [base, "working-tree"]
    assert more == {"host_check": HostCheck.warn}
    assert outcome.base == f"main~1 ({base[:12]})"
    assert outcome.head == f"main with uncommitted changes ({git(repo, 'rev-parse', 'HEAD')[:12]})"
    assert outcome.runs == ("results/r1",)
    assert outcome.rows[0].reproduce == f"aiperf gate a.yaml --against {base[:12]} --precision standard --seed 0"


def test_a_head_that_is_all_committed_is_named_by_its_branch_and_commit(repo):
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "-m", "everything")
    commit = git(repo, "rev-parse", "HEAD")[:12]
    assert gate(repo, Fake({"a": [1.0]})).head == f"main ({commit})"
    git(repo, "checkout", "--quiet", "--detach")
    assert gate(repo, Fake({"a": [1.0]})).head == f"detached HEAD ({commit})"


def test_a_head_that_is_its_own_base_is_said_before_it_is_measured_and_with_the_outcome(repo):
    (repo / "new.py").unlink()
    said = "head is the base, so the gate compares the code with itself; name an earlier base with --against"
    told = Told()
    outcome = gate(repo, Fake({"a": [1.0]}), told=told, against="main")
    assert (told.notes, said in outcome.notes) == ([said], True)
    (repo / "old.py").write_text("print(4)\n")
    told = Told()
    assert said not in gate(repo, Fake({"a": [1.0]}), told=told, against="main").notes
    assert told.notes == []


def test_the_command_that_repeats_a_case_has_every_option_that_changes_what_is_measured(repo):
    settings = replace(make_settings(), seed=4, budget=90.0, pin="0-1", peaks=False, limits=Limits(*(30.0,) * 7))
    outcome = gate(repo, Fake({"a": [0.9, 0.91]}), settings=settings)
    # The session that confirmed it had the next seed, and what the first had left of the budget.
    assert len(outcome.runs) == 2
    assert outcome.rows[0].reproduce.endswith(
        "--precision standard --seed 5 --budget 90s --pin 0-1 --no-peaks --timeout 30s"
    )


def test_what_looks_worse_is_measured_again_with_another_seed_and_fails_when_it_is_worse_again(repo):
    fake, told = Fake({"a": [0.9, 0.91], "b": [1.0]}), Told()
    outcome = gate(repo, fake, case(repo), case(repo, "b"), told=told)
    assert (outcome.exit, outcome.runs) == (Exit.REGRESSION, ("results/r1", "results/r2"))
    first, again = fake.calls
    assert [c.id for c in again[0].cases] == ["a"]
    assert again[1].seed != first[1].seed
    a, b = outcome.rows
    assert (a.status, a.confirmed, a.ratio) == ("regressed", True, pytest.approx(0.91))
    assert (b.status, b.confirmed) == ("passed", None)
    assert outcome.sentence == "regressed: time of a · exit code 1: confirmed regression"
    assert told.notes == ["1 case looks worse than allowed: measuring again in a fresh session"]


def test_one_session_alone_never_fails(repo):
    once = gate(repo, Fake({"a": [0.9, 1.0]}))
    assert (once.exit, once.rows[0].status, once.rows[0].confirmed) == (Exit.OK, "passed", False)
    unasked = Fake({"a": [0.9]})
    outcome = gate(repo, unasked, confirm=False, on_inconclusive="fail")
    assert (outcome.exit, outcome.rows[0].status, len(unasked.calls)) == (Exit.INCONCLUSIVE, "inconclusive", 1)


def test_a_tree_that_changes_under_the_gate_confirms_nothing(repo):
    fake = Fake({"a": [0.9]}, meanwhile=lambda: (repo / "old.py").write_text("print(99)\n"))
    outcome = gate(repo, fake)
    assert (len(fake.calls), outcome.rows[0].status) == (1, "inconclusive")
    assert "was changed during the first session" in outcome.notes[0]
    fixed = Fake({"a": [0.9]}, meanwhile=lambda: (repo / "old.py").write_text("print(98)\n"))
    assert gate(repo, fixed, head="main").exit is Exit.REGRESSION


def test_a_log_that_grows_beside_the_code_does_not_keep_a_regression_from_being_confirmed(repo):
    fake = Fake({"a": [0.9]}, meanwhile=lambda: (repo / "gate.log").write_text("measuring\n"))
    outcome = gate(repo, fake)
    assert (len(fake.calls), outcome.exit) == (2, Exit.REGRESSION)
    assert not any("was changed" in note for note in outcome.notes)


def test_another_side_and_a_head_and_a_build_can_be_asked_for(repo):
    fake = Fake({"a": [1.0]})
    cased = case(repo)
    cased = replace(cased, sides=(replace(cased.sides[0], env={"X": "1"}), cased.sides[1]))
    outcome = gate(repo, fake, cased, side="before", head="main", build="make")
    sides = fake.calls[0][0].cases[0].sides
    assert [(s.name, s.ref, s.env) for s in sides][1] == ("head", "main", {"X": "1"})
    assert fake.calls[0][2] == {"host_check": HostCheck.warn, "build": "make"}
    assert outcome.rows[0].side == "before"


def test_the_gates_threshold_is_the_one_that_stops_the_case(repo):
    fake = Fake({"a": [0.96]})
    outcome = gate(repo, fake, metrics=(MetricRule("time", 0.08),))
    assert fake.calls[0][0].cases[0].measure.delta == 0.08
    assert (outcome.rows[0].status, outcome.rows[0].threshold) == ("passed", 0.08)


def test_code_that_base_does_not_have_is_new_and_no_failure_of_the_others(repo):
    fake = Fake({"a": [1.0]})
    outcome = gate(repo, fake, case(repo), case(repo, "n", program="new.py"))
    assert [c.id for c in fake.calls[0][0].cases] == ["a"]
    assert outcome.exit is Exit.OK
    new = outcome.rows[1]
    assert (new.status, new.ratio) == ("no_baseline", None)
    assert "has no new.py" in new.sentence
    alone = gate(repo, Fake({}), case(repo, "n", program="new.py"))
    assert alone.exit is Exit.OK


def test_a_scenario_in_a_folder_that_base_does_not_have_is_new(repo):
    (repo / "benchmarks").mkdir()
    side = {"workload": f"{repo}/bench.py:old", "folder": str(repo / "benchmarks")}
    sides = (Side("before", **side), Side("after", **side))
    added = replace(case(repo, "a"), sides=sides, path=str(repo / "benchmarks/a.yaml"))
    outcome = gate(repo, Fake({}), added)
    assert (outcome.rows[0].status, outcome.exit) == ("no_baseline", Exit.OK)
    assert "new at head: base" in outcome.rows[0].sentence
    assert "has no benchmarks" in outcome.rows[0].sentence


def workload(repo, name, function, **params):
    side = {"workload": f"{repo}/bench.py:{function}", "params": params}
    return replace(case(repo, name), sides=(Side("before", **side), Side("after", **side)))


def test_a_function_or_parameter_that_base_does_not_have_is_new_and_no_failure_of_the_others(repo):
    (repo / "bench.py").write_text("def old(context, *, n): ...\n")
    git(repo, "add", "bench.py")
    git(repo, "commit", "-qm", "three")
    base = git(repo, "rev-parse", "main")[:12]
    (repo / "bench.py").write_text("def old(context, *, n, fast=0): ...\ndef new(context): ...\n")
    fake = Fake({"a": [1.0]})
    cases = workload(repo, "a", "old", n=1), workload(repo, "f", "new"), workload(repo, "p", "old", n=1, fast=1)
    outcome = gate(repo, fake, *cases, against="main")
    assert [c.id for c in fake.calls[0][0].cases] == ["a"]
    assert [(row.case, row.status) for row in outcome.rows] == [
        ("a", "passed"), ("f", "no_baseline"), ("p", "no_baseline")
    ]  # fmt: skip
    assert [row.sentence for row in outcome.rows[1:]] == [
        f"new at head: base {base} has no function new in bench.py",
        f"new at head: base {base} has no parameter fast of old in bench.py",
    ]
    assert outcome.exit is Exit.OK


def test_what_a_build_makes_is_not_new_at_head(repo):
    (repo / ".gitignore").write_text("made\n")
    (repo / "made").write_text("")
    fake = Fake({"a": [1.0]})
    assert gate(repo, fake, case(repo, program="made"), build="make").exit is Exit.OK
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    ("step", "code"), [("failed", Exit.WRONG), ("wrong", Exit.WRONG), ("unfit", Exit.UNFIT), (1.0, Exit.OK)]
)
def test_what_came_of_a_case_decides_the_exit_code(repo, step, code):
    assert gate(repo, Fake({"a": [step]})).exit is code


@pytest.mark.parametrize("host_check", [HostCheck.warn, HostCheck.strict])
def test_what_is_done_about_findings_is_what_was_asked(repo, host_check):
    fake = Fake({"a": [0.9]})
    plan = Plan((case(repo),), ())
    run_gate(
        Gate(
            GateConfig(against="main"),
            plan,
            HOST,
            make_settings(),
            Told,
            Invocation("gate"),
            fake,
            host_check=host_check,
        )
    )
    assert [more["host_check"] for *_, more in fake.calls] == [host_check, host_check]


def test_a_case_that_the_host_was_unfit_for_is_unfit_and_not_failed(repo):
    refused = CaseRecord(case(repo), "failed", stop="unfit", failure=Failure("", "start", "error", "hot: too hot"))
    row, *_ = judge_case(refused, GateConfig().metrics, against=GateReference())
    assert (row.status, row.sentence) == ("unfit", "hot: too hot")


def test_a_case_that_fails_in_the_fresh_session_is_a_failed_case(repo):
    assert gate(repo, Fake({"a": [0.9, "failed"]})).exit is Exit.WRONG


def test_everything_skipped_is_77(repo):
    skipped = Plan((), (Skip(case(repo), "needs 1 GPU", ""),))
    outcome = run_gate(
        Gate(GateConfig(against="main"), skipped, HOST, make_settings(), Told, Invocation("gate"), Fake({}))
    )
    assert (outcome.exit, outcome.rows[0].sentence) == (Exit.SKIPPED, "needs 1 GPU")


def test_an_interrupt_keeps_what_was_judged_and_confirms_nothing(repo):
    fake = Fake({"a": [0.9]}, interrupt=True)
    outcome = gate(repo, fake)
    assert (outcome.exit, len(fake.calls), outcome.rows[0].status) == (Exit.INTERRUPTED, 1, "inconclusive")


def test_what_could_not_be_saved_is_told(repo):
    outcome = gate(repo, Fake({"a": [1.0]}, problems=("the disk is full",)))
    assert (outcome.exit, outcome.notes) == (Exit.USAGE, ("the disk is full",))


def test_a_third_of_the_budget_is_kept_for_the_fresh_session(repo):
    fake = Fake({"a": [0.9]})
    gate(repo, fake, settings=make_settings(budget=90.0))
    assert fake.calls[0][1].budget == pytest.approx(60.0)
    assert 80 < fake.calls[1][1].budget <= 90
    whole = Fake({"a": [1.0]})
    gate(repo, whole, settings=make_settings(budget=90.0), confirm=False)
    assert whole.calls[0][1].budget == 90.0


def test_a_gated_metric_that_is_not_measured_is_told(repo):
    rules = (MetricRule("time"), MetricRule("gpu_memory"))
    outcome = gate(repo, Fake({"a": [1.0]}), metrics=rules)
    assert outcome.notes == ("gpu_memory is not measured in a, so it is not gated there",)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"against": ""}, "nothing to gate against"),
        ({"against": "nowhere"}, "is not a branch, tag or commit"),
    ],
)
def test_without_a_base_nothing_is_measured(repo, config, told):
    fake = Fake({"a": [1.0]})
    with pytest.raises(UserError, match=told):
        gate(repo, fake, **config)
    assert fake.calls == []


@pytest.mark.parametrize(("config", "side"), [({}, "middle"), ({"baseline": "b.json"}, "before")])
def test_a_side_that_cannot_be_gated_is_told(repo, config, side):
    with pytest.raises(UserError, match=f"a has no side {side} to gate"):
        gate(repo, Fake({}), side=side, **config)


# ---- against a baseline ----------------------------------------------------------------------------------------------


@pytest.fixture
def kept(repo, tmp_path):
    """Stores runs of case a with these ratios; their names."""

    def keep(*ratios, host=HOST, findings=(), **changes):
        host_id, fields = fingerprint(host)
        names = []
        for ratio in ratios:
            writer = RunWriter.create(tmp_path / "results", hostname="h")
            run = RunRecord(
                writer.name, (), "2026-01-01", status="finished", host={"fingerprint": fields}, host_id=host_id,
                git={"sha": "0123456789abcdef"}, findings=findings,
            )  # fmt: skip
            fake = Fake({"a": [ratio]})
            writer.write_run(run)
            writer.write_case(fake.record(case(repo, **changes), make_settings()))
            names.append(writer.name)
        return names

    return keep


@pytest.fixture
def promoted(kept, tmp_path):
    def promote(*ratios, **how):
        path = tmp_path / "base.json"
        promote_runs(kept(*ratios, **how), results=tmp_path / "results", baseline=path, who="Ada", why="first")
        return path

    return promote


def test_a_quick_run_is_no_baseline(repo, tmp_path):
    writer = RunWriter.create(tmp_path / "results", hostname="h")
    writer.write_run(RunRecord(writer.name, (), "2026-01-01", status="finished"))
    record = Fake({"a": [2.0]}).record(case(repo), make_settings())
    quick = tuple(replace(r, verdict=replace(r.verdict, provisional=True)) for r in record.results)
    writer.write_case(replace(record, results=quick))
    with pytest.raises(UserError, match="provisional"):
        promote_runs([writer.name], results=tmp_path / "results", baseline=tmp_path / "b.json", who="Ada", why="first")
    assert not (tmp_path / "b.json").exists()


def test_a_speedup_is_held_against_promoted_runs_and_confirmed(repo, promoted):
    path = str(promoted(2.0, 2.001))
    fake = Fake({"a": [2.0]})
    outcome = gate(repo, fake, baseline=path)
    assert (outcome.exit, outcome.level, len(fake.calls)) == (Exit.OK, "ratio", 1)
    assert all(not side.ref for side in fake.calls[0][0].cases[0].sides)
    worse = gate(repo, Fake({"a": [1.8, 1.8]}), baseline=path)
    assert (worse.exit, worse.rows[0].confirmed) == (Exit.REGRESSION, True)
    assert "--baseline" in worse.rows[0].reproduce


def test_a_single_stored_session_says_that_noise_between_sessions_is_unknown(repo, promoted):
    outcome = gate(repo, Fake({"a": [2.0]}), baseline=str(promoted(2.0)))
    assert "never calibrated" in outcome.notes[0]


@pytest.mark.parametrize("absolute", [False, True])
def test_another_host_never_yields_a_number_and_measures_nothing(repo, promoted, absolute):
    path = promoted(*[1.0] * 5, host=replace(HOST, cpu_model="other"))
    fake = Fake({"a": [1.0]})
    outcome = gate(repo, fake, baseline=str(path), absolute=absolute)
    assert (outcome.exit, fake.calls) == (Exit.NO_BASELINE, [])
    assert [(d.name, d.then, d.now) for d in outcome.differences] == [("cpu_model", "other", "c")]
    assert [(r.status, r.ratio, r.before, r.after, r.p) for r in outcome.rows] == [
        ("not_comparable", None, None, None, None)
    ]


def test_absolute_values_need_five_sessions(repo, promoted):
    path = str(promoted(1.0, 1.0, 1.0, 1.0))
    fake = Fake({"a": [1.0]})
    outcome = gate(repo, fake, baseline=path, absolute=True)
    assert (outcome.exit, fake.calls, outcome.rows[0].ratio) == (Exit.NO_BASELINE, [], None)
    assert "1 more session is missing" in outcome.rows[0].sentence
    path = str(promoted(1.0))
    fine = gate(repo, Fake({"a": [1.0]}), baseline=path, absolute=True)
    assert (fine.exit, fine.level, fine.rows[0].status) == (Exit.OK, "absolute", "passed")


def test_a_case_that_the_baseline_lacks_or_whose_scenario_changed_is_not_measured(repo, promoted):
    path = str(promoted(1.0))
    fake = Fake({"a": [1.0]})
    outcome = gate(repo, fake, case(repo, "b"), case(repo, scenario_hash="new"), baseline=path)
    assert (outcome.exit, fake.calls) == (Exit.NO_BASELINE, [])
    assert [row.status for row in outcome.rows] == ["no_baseline", "not_comparable"]


def test_a_promotion_warns_of_an_unfit_host_and_of_a_single_session(kept, tmp_path):
    unfit = HostFinding("cpu.quota", "unfit", "CPU quota", "0.5 of 4 CPUs allowed")
    (first,) = kept(2.0, findings=(unfit, replace(unfit, level="warn", title="Load")))
    given = {"results": tmp_path / "results", "baseline": tmp_path / "b.json", "who": "Ada", "why": "first"}
    said = promotion_warnings([first], promote_runs([first], **given), results=given["results"])
    assert said[0].startswith(f"warning: {first} was measured on an unfit host: CPU quota: 0.5 of 4 CPUs allowed")
    assert said[1].startswith("warning: one session does not show the noise between sessions")
    assert len(said) == 2
    (second,) = kept(2.01)
    assert promotion_warnings([second], promote_runs([second], **given), results=given["results"]) == []


def test_a_promotion_writes_who_why_and_the_commit(promoted):
    told = json.loads(promoted(2.0).read_text())["promotions"]
    assert [(t["who"], t["why"], t["commit"], len(t["runs"])) for t in told] == [
        ("Ada", "first", "0123456789abcdef", 1)
    ]


def test_who_is_gits_user_and_nobody_is_told(repo, kept, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    given = {"results": tmp_path / "results", "baseline": tmp_path / "b.json", "who": "", "why": "x"}
    with pytest.raises(UserError, match="--who: is empty"):
        promote_runs(kept(1.0), **given)
    assert not (tmp_path / "b.json").exists()
    git(repo, "config", "user.name", "Grace")
    assert promote_runs(kept(1.0), **given).promotions[0].who == "Grace"


def test_a_damaged_run_is_not_promoted(kept, tmp_path):
    (name,) = kept(1.0)
    next((tmp_path / "results" / name / "cases").iterdir()).write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        promote_runs([name], results=tmp_path / "results", baseline=tmp_path / "b.json", who="Ada", why="x")


class Counting(Fake):
    """Sides whose time is the same, and whose user time has the ratio of the script."""

    def pairs(self, ratio, sides, **how):
        spent = dict(zip(sides, (ratio, 1.0), strict=True))
        return [
            replace(pair, samples=tuple(replace(s, user_s=s.wall_s * spent[s.side]) for s in pair.samples))
            for pair in super().pairs(1.0, sides, **how)
        ]


def test_a_case_is_gated_by_what_it_is_about_beside_the_metrics_of_the_gate(repo):
    about = case(repo, measure=Measure(clock="wall", metric="user", delta=0.03))
    fake = Counting({"a": [0.8]})
    outcome = gate(repo, fake, about, metrics=(MetricRule("time", threshold=0.5),))
    assert [(row.metric, row.status) for row in outcome.rows] == [("user", "regressed"), ("time", "passed")]
    assert fake.calls[0][0].cases[0].measure.delta == 0.03


def test_a_threshold_of_the_gate_is_that_of_the_metric_that_it_names(repo):
    fake = Fake({"a": [1.0]})
    gate(repo, fake, case(repo), metrics=(MetricRule("user", threshold=0.5), MetricRule("time", threshold=0.04)))
    ((plan, _, _),) = fake.calls
    assert plan.cases[0].measure.delta == 0.04
