from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from aiperf.launch import one_run
from aiperf.launch.command import measure_command_pair, plan_commands
from aiperf.launch.command_details import impossible
from aiperf.launch.guardian import Guardian
from aiperf.launch.shims import ResolvedCommand
from aiperf.launch.trial import CommandPlan, Trial, choose
from aiperf.launch.written import AskedFiles
from aiperf.records import Case, Check, Failure, Pair, ProgramMetric, Side
from aiperf.settings import Limits, Precision, Settings

PROGRAMS = Path(__file__).parents[1] / "programs"
CPU = (max(os.sched_getaffinity(0)),)
QUICK = Settings(precision=Precision(side_seconds=0.2), limits=Limits(command=20))
BRIEF = replace(QUICK, precision=Precision(side_seconds=0.02))
"""For pairs in which one run of each side is enough."""
QUEUED = CommandPlan(False, "a test", 2, False, ())
SLICED = CommandPlan(True, "a test", 2, False, ())
QUIET = Trial("after", wall_s=0.5, user_s=0.49, system_s=0.01, queued_s=0.0, io_bytes=0, gpu=False, peak_bytes=1 << 20)


def program(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-S", str(PROGRAMS / name), *arguments)


def case(
    before: tuple[str, ...], after: tuple[str, ...], *, kind: str = "none", env: dict[str, str] | None = None
) -> Case:
    sides = (Side("before", command=before), Side("after", command=after, env=env or {}))
    return Case("pair", "pair", "", "", sides, check=Check(kind=kind))  # type: ignore[arg-type]


def measure(pair: Case, plan: CommandPlan | None, *, settings: Settings = QUICK, **more: Any) -> Pair | Failure:
    with Guardian() as guardian:
        return measure_command_pair(
            pair, index=0, order=[side.name for side in reversed(pair.sides)], seed=1, settings=settings, cpus=CPU,
            guardian=guardian, plan=plan, **more,
        )  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = {child.pid for child in psutil.Process().children()}
    yield
    assert list(tmp_path.glob("aiperf-*")) == []
    assert [child for child in psutil.Process().children() if child.pid not in before] == []


@pytest.mark.parametrize("plan", [QUEUED, SLICED], ids=["queued", "sliced"])
def test_a_pair_holds_the_runs_of_both_sides(plan: CommandPlan) -> None:
    pair = measure(case(program("spin_known.py", "600000"), program("spin_known.py", "300000")), plan)
    assert isinstance(pair, Pair)
    assert Counter(s.side for s in pair.samples) == {"before": 2, "after": 2}
    assert [run.side for run in pair.runs] == ["before", "after"]
    assert all(run.facts["sliced"] == plan.sliced for run in pair.runs)
    assert all(s.user_s is not None and s.user_s < 2 * s.wall_s + 0.1 for s in pair.samples)
    assert pair.order == ("after", "before")
    assert 0 < pair.worker_seconds <= pair.seconds
    assert pair.cpus == CPU


@pytest.mark.alone
@pytest.mark.parametrize("plan", [QUEUED, SLICED], ids=["queued", "sliced"])
def test_each_side_gets_the_times_of_its_own_program(plan: CommandPlan) -> None:
    twice = case(program("spin_known.py", "6000000"), program("spin_known.py", "3000000"))
    # Another virtual machine may take time of either side, which some hosts count as the program's: of a few pairs,
    # one is left alone.
    for _ in range(5):
        pair = measure(twice, plan)
        assert isinstance(pair, Pair)
        of = {n: [s for s in pair.samples if s.side == n] for n in ("before", "after")}
        cpu = {n: min(s.user_s or 0.0 for s in of[n]) for n in of}
        wall = {n: min(s.wall_s for s in of[n]) for n in of}
        if 1.6 < cpu["before"] / cpu["after"] < 2.5 and wall["before"] > 1.2 * wall["after"]:
            return
    pytest.fail(f"CPU seconds {cpu}, wall seconds {wall}")


def test_both_sides_get_one_draw_of_what_varies_from_run_to_run(tmp_path: Path) -> None:
    code = "import os, sys; print(sorted(os.environ.items()), file=open(sys.argv[1], 'a'))"
    seen = [tmp_path / name for name in ("before", "after")]
    before, after = ((sys.executable, "-S", "-c", code, str(path)) for path in seen)
    assert isinstance(measure(case(before, after), QUEUED), Pair)
    drawn = [set(path.read_text().splitlines()) for path in seen]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) >= 2


def test_queued_programs_take_turns_in_the_pairs_order_and_back() -> None:
    pair = measure(case(program("spin_known.py", "1"), program("spin_known.py", "1")), QUEUED)
    assert isinstance(pair, Pair)
    assert [s.side for s in pair.samples] == ["after", "before", "before", "after"]


@pytest.mark.alone
def test_programs_that_only_compute_are_sliced_and_short_ones_run_often() -> None:
    both = case(program("spin_known.py", "5000000"), program("spin_known.py", "5000000"))
    # What other virtual machines take of a trial looks like waiting: of a few, one is left alone.
    plans = [plan_commands(both, seed=1, settings=QUICK, guardian=None)]
    while not (isinstance(plans[-1], CommandPlan) and plans[-1].sliced) and len(plans) < 5:
        plans.append(plan_commands(both, seed=1, settings=QUICK, guardian=None))
    plan = plans[-1]
    assert isinstance(plan, CommandPlan)
    assert plan.sliced, plan.reason
    short = case(program("spin_known.py", "1"), program("spin_known.py", "1"))
    plan = plan_commands(short, seed=1, settings=QUICK, guardian=None)
    assert isinstance(plan, CommandPlan)
    assert not plan.sliced
    assert plan.runs >= 4


@pytest.mark.parametrize(
    ("trial", "word"),
    [
        (replace(QUIET, gpu=True), "GPU"),
        (replace(QUIET, io_bytes=50 << 20), "50 MiB"),
        (replace(QUIET, user_s=0.89), "1.8 cores"),
        (replace(QUIET, user_s=0.29), "60 %"),
        (replace(QUIET, user_s=0.1, system_s=0.4), "80 % of its CPU time in the kernel when run alone"),
        (replace(QUIET, wall_s=0.01, user_s=0.01, system_s=0.0), "10 ms"),
        (replace(QUIET, peak_bytes=9 << 30), "memory"),
    ],
)
def test_a_program_that_does_more_than_compute_is_queued_with_the_reason(trial: Trial, word: str) -> None:
    plan = choose([QUIET, trial], settings=QUICK, memory=8 << 30)
    assert not plan.sliced
    assert word in plan.reason
    assert choose([QUIET, QUIET], settings=QUICK, memory=8 << 30).sliced
    assert not choose([QUIET, QUIET], settings=replace(QUICK, slice="off"), memory=8 << 30).sliced


def test_time_spent_behind_other_processes_does_not_make_a_program_idle() -> None:
    crowded = replace(QUIET, wall_s=1.0, queued_s=0.5)
    assert choose([QUIET, crowded], settings=QUICK, memory=8 << 30).sliced


def test_it_is_told_whose_run_it_is_and_slices_are_nobodys() -> None:
    marks: list[str | None] = []
    quick = case(program("spin_known.py", "1"), program("spin_known.py", "1"))
    measure(quick, QUEUED, mark=marks.append)
    assert marks == ["after", None, "before", None, "before", None, "after", None]
    marks.clear()
    measure(quick, SLICED, mark=marks.append)
    assert marks == ["slices of all sides", None]
    plan_commands(quick, seed=1, settings=QUICK, guardian=None, mark=marks.append)
    assert marks[2::2] == ["warm-up of before", "warm-up of after", "output of before", "output of after"]


def test_what_the_runs_of_a_program_used_is_told_as_the_sum_over_them() -> None:
    pair = measure(case(program("spin_known.py", "3000000"), program("spin_known.py", "1")), QUEUED)
    assert isinstance(pair, Pair)
    for run in pair.runs:
        own = [s for s in pair.samples if s.side == run.side]
        assert run.usage["iterations"] == len(own) == 2
        assert run.usage["user_s"] == pytest.approx(sum(s.user_s or 0.0 for s in own))
        assert run.usage["system_s"] == pytest.approx(sum(s.system_s or 0.0 for s in own))


def test_a_program_on_several_cores_is_not_held_on_one() -> None:
    pair = measure(case(program("spin_known.py", "1"), program("spin_known.py", "1")), replace(QUEUED, parallel=True))
    assert isinstance(pair, Pair)
    assert pair.cpus == ()


@pytest.mark.parametrize(
    "plan", [QUEUED, pytest.param(SLICED, marks=pytest.mark.long), None], ids=["queued", "sliced", "trial"]
)
@pytest.mark.parametrize(
    ("name", "kind", "message", "tail", "status"),
    [
        ("exit3.py", "error", "exit status 3", "nothing to do here", 3),
        ("crash.py", "crash", "killed by SIGSEGV", "about to crash", -11),
    ],
)
def test_a_failing_program_is_a_failure_with_its_reason(
    plan: CommandPlan | None, name: str, kind: str, message: str, tail: str, status: int
) -> None:
    failure = measure(case(program("spin_known.py", "1000"), program(name)), plan)
    assert isinstance(failure, Failure)
    assert (failure.side, failure.kind, failure.message, failure.stderr_tail) == ("after", kind, message, tail)
    assert failure.phase == ("measure" if plan else "warm-up")
    assert failure.exit_status == status


@pytest.mark.alone
@pytest.mark.parametrize("plan", [QUEUED, SLICED], ids=["queued", "sliced"])
def test_a_program_that_never_ends_is_killed_at_the_limit(plan: CommandPlan) -> None:
    settings = replace(QUICK, limits=Limits(command=0.4))
    failure = measure(case(program("spin_known.py", "1"), program("ignore_term.py")), plan, settings=settings)
    assert isinstance(failure, Failure)
    assert (failure.side, failure.kind) == ("after", "hang")
    assert "0.4 s" in failure.message


def test_a_program_that_does_not_exist_is_a_failure_at_the_start() -> None:
    failure = measure(case(("no-such-program",), program("exit3.py")), None)
    assert isinstance(failure, Failure)
    assert (failure.side, failure.phase) == ("before", "start")
    assert "No such file" in failure.message


@pytest.mark.parametrize("plan", [QUEUED, SLICED], ids=["queued", "sliced"])
def test_cancelling_kills_both_programs(plan: CommandPlan) -> None:
    cancel = threading.Event()
    timer = threading.Timer(0.3, cancel.set)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        measure(case(program("hang.py"), program("hang.py")), plan, cancel=cancel)
    timer.join()


def test_outputs_are_compared_when_asked() -> None:
    say = (sys.executable, "-S", "-c", "import os; print('x' * 9 + os.environ.get('MORE', ''))")
    same = measure(case(say, say, kind="bitwise"), QUEUED)
    other = measure(case(say, say, kind="bitwise", env={"MORE": "y"}), QUEUED)
    loose = measure(case(say, say, env={"MORE": "y"}), QUEUED)
    assert isinstance(same, Pair)
    assert isinstance(other, Pair)
    assert isinstance(loose, Pair)
    assert same.checks[0].passed
    assert same.checks[0].compared == "standard output of after with before, bitwise, 2 runs"
    assert not other.checks[0].passed
    assert "byte 9" in other.checks[0].detail
    assert loose.checks[0].passed
    assert loose.checks[0].kind == "none"
    assert [run.facts.get("prints") for run in (*same.runs, *loose.runs)] == [None] * 4


def test_two_that_print_nothing_pass_the_comparison_and_are_said_to_print_nothing() -> None:
    silent = measure(case(("true",), ("true",), kind="bitwise"), QUEUED)
    assert isinstance(silent, Pair)
    assert silent.checks[0].passed
    assert [run.facts["prints"] for run in silent.runs] == ["nothing", "nothing"]


def test_it_is_told_why_what_two_print_was_not_compared() -> None:
    asked, fails = ("sh", "-c", "echo 1"), ("sh", "-c", "test ! -p /dev/stdout")
    hurried = replace(BRIEF, precision=replace(BRIEF.precision, case_seconds=1e-6))
    for after, settings, why in ((asked, BRIEF, "same"), (fails, BRIEF, "failed"), (asked, hurried, "too_long")):
        pair = measure(case(asked, after), None, settings=settings)
        assert isinstance(pair, Pair)
        assert [run.facts.get("prints") for run in pair.runs] == [None, why]


@pytest.mark.long
def test_files_are_compared_when_asked_and_their_programs_are_never_sliced(tmp_path: Path) -> None:
    write = "import sys; open(sys.argv[1], 'w').write(sys.argv[2]); print('done')"
    words = {text: (sys.executable, "-S", "-c", write, str(tmp_path / "out"), text) for text in ("one", "two")}

    def pair_of(before: str, after: str, **check: Any) -> Pair:
        pair = measure(replace(case(words[before], words[after]), check=Check(**check)), None)
        assert isinstance(pair, Pair)
        return pair

    files = (str(tmp_path / "out"),)
    same, other = pair_of("one", "one", kind="none", files=files), pair_of("one", "two", kind="none", files=files)
    both = pair_of("one", "two", kind="bitwise", files=files)
    assert [(check.kind, check.passed) for check in same.checks] == [("files", True)]
    assert [(check.kind, check.passed) for check in other.checks] == [("files", False)]
    assert [(check.kind, check.passed) for check in both.checks] == [("printed", True), ("files", False)]
    assert [(run.facts["sliced"], "which is compared" in run.facts["why"]) for run in same.runs] == [(False, True)] * 2
    assert [run.facts["written_elsewhere"] for run in (*same.runs, *both.runs)] == [3] * 4


@pytest.mark.parametrize(
    "idle",
    [
        "true",
        pytest.param("touch {out}", marks=pytest.mark.long),
        pytest.param("printf e | dd of={out} bs=1 seek=2 conv=notrunc", marks=pytest.mark.long),
        "ln -s {kept} {out}",
    ],
)
@pytest.mark.parametrize("cheater", [pytest.param("before", marks=pytest.mark.long), "after"])
def test_what_one_run_has_written_does_not_count_for_another(tmp_path: Path, cheater: str, idle: str) -> None:
    out, kept = tmp_path / "out", tmp_path / "kept"
    kept.write_text("one")
    works = ("sh", "-c", f"printf one > {out}")
    idles = ("sh", "-c", idle.format(out=out, kept=kept))
    sides = (works, idles) if cheater == "after" else (idles, works)
    pair = measure(replace(case(*sides), check=Check("none", files=(str(out),))), None, settings=BRIEF)
    assert isinstance(pair, Pair)
    assert not pair.checks[0].passed
    assert not os.path.lexists(out)


@pytest.mark.parametrize(
    "text",
    [
        "import sys; f = open(sys.argv[1], 'a'); f.write('one')",
        "import os, sys; os.path.exists(sys.argv[1]) and sys.exit('there'); open(sys.argv[1], 'w').write('one')",
    ],
    ids=["appends", "fails where it is there"],
)
def test_each_run_begins_without_the_file(tmp_path: Path, text: str) -> None:
    writes = (sys.executable, "-S", "-c", text, str(tmp_path / "out"))
    asked = replace(case(writes, writes), check=Check("none", files=(str(tmp_path / "out"),)))
    pair = measure(asked, None, settings=QUICK)
    assert isinstance(pair, Pair)
    assert pair.checks[0].passed
    assert min(run.usage["iterations"] for run in pair.runs) >= 2


@pytest.mark.parametrize("plan", [None, QUEUED], ids=["before the first pair", "between two pairs"])
def test_a_file_that_is_not_of_these_runs_is_not_removed(tmp_path: Path, plan: CommandPlan | None) -> None:
    (tmp_path / "out").write_text("mine")
    found = measure(replace(case(("true",), ("true",)), check=Check("none", files=(str(tmp_path / "out"),))), plan)
    assert isinstance(found, Failure)
    what = "is not of these runs, but each run has to create it: name another file, or remove this one"
    assert (found.phase, found.message) == ("start", f"{tmp_path / 'out'} {what}")
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("end", ["exit 3", "sleep 9"])
def test_no_file_stays_of_a_run_that_failed_or_was_cancelled(tmp_path: Path, end: str) -> None:
    cancel = threading.Event()
    timer = threading.Timer(0.5, cancel.set)
    writes = ("sh", "-c", f"printf one > {tmp_path / 'out'}; {end}")
    pair = replace(case(writes, writes), check=Check("none", files=(str(tmp_path / "out"),)))
    if end == "exit 3":
        failure = measure(pair, QUEUED)
        assert isinstance(failure, Failure)
        assert failure.exit_status == 3
    else:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            measure(pair, QUEUED, cancel=cancel)
        timer.join()
    assert not (tmp_path / "out").exists()


def test_a_file_that_cannot_be_removed_fails_its_side_and_hides_no_other_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(files: AskedFiles) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "out"))

    monkeypatch.setattr(AskedFiles, "remove", refuses)
    asked = Check("none", files=(str(tmp_path / "out"),))
    found = measure(replace(case(("true",), ("true",)), check=asked), QUEUED)
    assert isinstance(found, Failure)
    what = f"a file that each run has to write cannot be removed: Permission denied: {tmp_path / 'out'}"
    assert (found.side, found.phase, found.message) == ("after", "start", what)
    monkeypatch.setattr(one_run, "_remove", lambda case, side: None)
    failed = measure(replace(case(("false",), ("false",)), check=asked), QUEUED)
    assert isinstance(failed, Failure)
    assert failed.exit_status == 1


@pytest.mark.long
def test_files_lie_in_the_folder_of_their_side(tmp_path: Path) -> None:
    sides = tuple(
        Side(name, command=("sh", "-c", "printf one > out; echo said >&2"), folder=str(tmp_path / name))
        for name in ("before", "one", "two")
    )
    for side in sides:
        Path(side.folder).mkdir()
    pair = measure(Case("pair", "pair", "", "", sides, check=Check("bitwise", files=("out",))), None)
    assert isinstance(pair, Pair)
    assert [(check.kind, check.passed, check.sides) for check in pair.checks] == [
        (kind, True, (name,)) for kind in ("printed", "files") for name in ("one", "two")
    ]
    assert [run.facts["written_elsewhere"] for run in pair.runs] == [3] * 3
    assert not list(tmp_path.glob("*/out"))


@pytest.mark.parametrize("wrong", [pytest.param(0, marks=pytest.mark.long), 1], ids=["first", "second"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_one_run_of_many_that_prints_something_else_is_wrong_output(tmp_path: Path, side: str, wrong: int) -> None:
    count = (
        "import os, sys; n = len(os.listdir(sys.argv[1])); open(f'{sys.argv[1]}/{n}', 'w'); print('x' * 4, n == WRONG)"
    )
    places = {name: tmp_path / name for name in ("before", "after")}
    for place in places.values():
        place.mkdir()
    commands = {
        name: (sys.executable, "-S", "-c", count.replace("WRONG", str(wrong if name == side else -1)), str(place))
        for name, place in places.items()
    }
    pair = measure(case(commands["before"], commands["after"], kind="bitwise"), QUEUED)
    assert isinstance(pair, Pair)
    (check,) = pair.checks
    assert (check.passed, check.sides) == (False, ("after",))
    assert ("two runs of before itself" if side == "before" else f"after, run {wrong}") in check.detail


def test_a_pair_in_which_a_run_used_more_cpu_time_than_it_had_does_not_count() -> None:
    pair = measure(case(program("spin_known.py", "1000000"), program("spin_known.py", "1000000")), QUEUED)
    assert isinstance(pair, Pair)
    assert not pair.void
    ended = SimpleNamespace(user_s=0.4, system_s=0.148)
    runs = [SimpleNamespace(index=0, wall_s=0.0808, ended=ended)]
    incident = impossible("before", runs, (1,), voids=True)  # type: ignore[arg-type]
    assert incident is not None
    assert (incident.kind, incident.voids) == ("impossible_time", True)
    assert incident.detail == "run 0 used 548 ms of CPU time in 80.8 ms on 1 CPU"
    assert impossible("before", runs, tuple(range(8)), voids=True) is None  # type: ignore[arg-type]


@pytest.mark.alone
def test_work_of_a_daemon_is_in_the_time_of_the_program_that_waits_for_it_and_not_in_the_other_sides_slices(
    tmp_path: Path,
) -> None:
    work = "import sys; [i * i for i in range(6_000_000)]; open(sys.argv[1], 'w')"
    waits = (
        "import os, sys; done = sys.argv[1] + str(os.getpid())\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); os.fork() and os._exit(0)\n"
        f"    os.execv(sys.executable, [sys.executable, '-S', '-c', {work!r}, done])\n"
        "os.wait()\nwhile not os.path.exists(done): pass\nprint(1)"
    )
    spin = (sys.executable, "-S", "-c", "[i * i for i in range(6_000_000)]; print(1)")
    elsewhere = (sys.executable, "-S", "-c", waits, str(tmp_path / "done"))
    pair = measure(case(spin, elsewhere, kind="bitwise"), replace(SLICED, runs=1))
    assert isinstance(pair, Pair)
    assert not pair.void
    wall = {sample.side: sample.wall_s for sample in pair.samples}
    assert wall["after"] > 1.25 * wall["before"]


def test_what_stands_for_a_shim_is_run_and_named(tmp_path: Path) -> None:
    say = (sys.executable, "-S", "-c", "print('direct')")
    plan = replace(QUEUED, resolved={"after": ResolvedCommand(say, shim="/shims/say")})
    pair = measure(case(say, ("no-such-shim",), kind="bitwise"), plan)
    assert isinstance(pair, Pair)
    assert pair.checks[0].passed
    facts = {run.side: (run.facts.get("shim"), run.facts.get("program")) for run in pair.runs}
    assert facts == {"before": (None, None), "after": ("/shims/say", sys.executable)}


@pytest.mark.long
def test_the_output_of_a_run_beyond_those_that_count_is_not_what_is_compared() -> None:
    def say(turns: int) -> tuple[str, ...]:
        return (sys.executable, "-S", "-c", f"print('x' * 5000, flush=True); sum(range({turns}))")

    for _ in range(3):
        sliced = measure(case(say(1_000_000), say(4_000_000), kind="bitwise"), SLICED)
        assert isinstance(sliced, Pair)
        assert sliced.checks[0].passed, sliced.checks[0].detail


def test_a_program_may_leave_grandchildren_but_they_do_not_stay() -> None:
    pair = measure(case(program("fork_child.py"), program("fork_child.py")), QUEUED)
    assert isinstance(pair, Pair)
    assert all(run.facts["stragglers"] >= 2 for run in pair.runs)


INTERRUPTED = """
import sys
from aiperf.launch.command import measure_command_pair
from aiperf.launch.guardian import Guardian
from aiperf.launch.trial import CommandPlan
from aiperf.records import Case, Side
from aiperf.settings import Settings
hang = (sys.executable, "-S", sys.argv[1])
case = Case("hang", "hang", "", "", (Side("before", command=hang), Side("after", command=hang)))
plan = CommandPlan(True, "a test", 1, False, ())
with Guardian() as guardian:
    print("ready", flush=True)
    measure_command_pair(case, index=0, order=("before", "after"), seed=1, settings=Settings(), cpus=None,
                         guardian=guardian, plan=plan)
"""


def below(parent: int) -> list[psutil.Process]:
    """The programs that a run of aiperf has started."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(parent).children(recursive=True)
        return [p for p in found if "hang.py" in " ".join(p.cmdline())]
    return []


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.long)], ids=["ctrl-c", "kill -9"]
)
def test_ending_aiperf_in_the_middle_of_a_pair_leaves_no_program(tmp_path: Path, number: int) -> None:
    argv = [sys.executable, "-c", INTERRUPTED, str(PROGRAMS / "hang.py")]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen(argv, env=env, cwd=PROGRAMS.parents[1], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    parent.stdout.readline()
    deadline = time.monotonic() + 10
    while len(programs := below(parent.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(programs) == 2
    parent.send_signal(number)
    parent.wait()
    parent.stdout.close()
    assert psutil.wait_procs(programs, timeout=10)[1] == []
    # A killed parent's files go with its guardian, which removes them after the programs.
    while list(tmp_path.glob("aiperf-command-*")) and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.alone
def test_the_last_line_with_a_number_is_handed_on_while_a_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_run, "_LISTEN_S", 0.0)
    text = "import time; print('rate 1', flush=True); time.sleep(.2); print('rate 2', flush=True); time.sleep(.2)"
    speaking = (sys.executable, "-S", "-c", text)
    rate = (ProgramMetric("rate", better="higher", pattern="rate ([0-9]+)"),)
    both = replace(
        case(speaking, speaking), sides=tuple(Side(n, command=speaking, metrics=rate) for n in ("before", "after"))
    )
    heard: list[tuple[str, str]] = []
    pair = measure(both, replace(QUEUED, runs=1), heard=lambda side, line: heard.append((side, line)))
    assert isinstance(pair, Pair)
    # Each look is handed on, also when there is nothing new: time goes by.
    seen = [said for said, _ in groupby(said for said in heard if said[1])]
    assert seen == [("after", "rate 1"), ("after", "rate 2"), ("before", "rate 1"), ("before", "rate 2")]
    assert len(heard) > len(seen)
    assert [run.values for run in pair.runs] == [{"rate": (2.0,)}, {"rate": (2.0,)}]


def test_a_program_that_is_asked_for_a_number_is_never_put_to_sleep() -> None:
    plan = choose([QUIET, replace(QUIET, own_clock=True)], settings=QUICK, memory=8 << 30)
    assert not plan.sliced
    assert "its own metric" in plan.reason
