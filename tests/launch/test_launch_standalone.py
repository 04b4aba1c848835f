"""Real launches of a side by itself: one rank and a gang, healthy, failing, dying, hanging; nothing is left behind."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import PATIENCE_S

from aiperf.host.facts import HostFacts
from aiperf.launch.child import StartError
from aiperf.launch.environment import import_root
from aiperf.launch.guardian import Guardian
from aiperf.launch.standalone import Standalone, TooLarge, failure, run_to_end
from aiperf.launch.watchdog import LAUNCH_VARIABLE
from aiperf.profilers.perf import perf_record, perf_report, perf_stat
from aiperf.profilers.perf_read import counted
from aiperf.profilers.registry import statuses
from aiperf.protocol.standalone import StandaloneReport, StandaloneSpec
from aiperf.protocol.wire import decode
from aiperf.records import Case, Measure, Needs, Side

SIDES = Path(__file__).with_name("launch_sides.py")
MISBEHAVE = Path(__file__).parents[1] / "misbehave" / "misbehave.py"
PLAIN = {"PATH": os.environ["PATH"]}


@pytest.fixture(scope="module")
def guardian() -> Iterator[Guardian]:
    with Guardian() as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_left(guardian: Guardian) -> Iterator[None]:
    descriptors = len(os.listdir("/proc/self/fd"))
    before = {p.pid for p in psutil.Process().children(recursive=True)} | {guardian.pid}
    yield
    assert [p.cmdline() for p in psutil.Process().children(recursive=True) if p.pid not in before] == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def standalone(tmp_path: Path, workload: str = f"{SIDES}:vector", *, ranks: int = 1, **more: Any) -> Standalone:
    fields = {name: more.pop(name) for name in ("env", "folder", "python") if name in more}
    side = Side("before", workload=workload, ranks=ranks, **fields)
    case = Case("s", "s", "t", "w", (side, side), measure=Measure(clock="wall"), needs=Needs())
    quick = {"warmup_seconds": 0.0, "target_seconds": 0.01, "most_iterations": 5, **more}
    return Standalone(case, side, tmp_path / "standalone", 3, **quick)


def launched(one: Standalone, guardian: Guardian, *, limit: float = PATIENCE_S) -> tuple[Any, str]:
    return run_to_end(
        one.argv(one.prepare()), env=one.environment(), log=one.folder / "log", limit=limit, guardian=guardian
    )


def carriers(one: Standalone) -> list[int]:
    """Live processes that name this launch's folder in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if f"TMPDIR={one.temporary}".encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
                found.append(process.pid)
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# ---- whole launches --------------------------------------------------------------------------------------------------


def test_a_healthy_side_reports_what_it_did(tmp_path: Path, guardian: Guardian):
    one = standalone(tmp_path, env={"TEST_OWN": "yes"})
    ended, tail = launched(one, guardian)
    (report,) = one.read_reports()
    assert (ended.status, tail, failure(one.read_reports())) == (0, "", "")
    assert report.summary is not None
    facts = report.summary.facts
    assert (report.rank, report.iterations, facts["seed"]) == (0, 5, 3)
    assert facts["env"] == {"TEST_OWN": "yes"}
    assert facts["rank_variables"] == ["0", "0", "1"]
    assert facts["scratch"].startswith(str(one.folder))
    assert carriers(one) == []


@pytest.mark.parametrize(
    ("workload", "error", "last"),
    [
        (f"{SIDES}:broken", "warm-up: ValueError: broken batch (launch_sides.py:N)", "ValueError: broken batch"),
        (f"{SIDES}:refuses", "set-up: this disk has no O_DIRECT", ""),
        (f"{MISBEHAVE}:killed", "it ended before it reported anything", ""),
    ],
)
def test_a_failing_side_says_why(tmp_path: Path, guardian: Guardian, workload: str, error: str, last: str):
    one = standalone(tmp_path, workload)
    ended, tail = launched(one, guardian)
    assert ended.status != 0
    assert re.sub(r":\d+\)", ":N)", failure(one.read_reports())) == error
    assert tail.splitlines()[-1:] == ([last] if last else [])


@pytest.mark.long
def test_a_rank_that_dies_ends_the_gang_at_once(tmp_path: Path, guardian: Guardian):
    one = standalone(tmp_path, f"{SIDES}:loses_a_rank", ranks=2)
    ended, _ = launched(one, guardian)
    # Without seeing it, rank 0 would wait for as long as Gloo does: half an hour.
    assert ended is not None
    assert ended.status != 0
    assert failure(one.read_reports())
    assert one.read_reports()[1].error == "it ended before it reported anything"
    assert carriers(one) == []


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_hanging_side_is_killed_at_the_limit_with_all_it_started(tmp_path: Path, guardian: Guardian, ranks: int):
    one = standalone(tmp_path, f"{MISBEHAVE}:hangs_in_step", ranks=ranks)
    began = time.monotonic()
    ended, _ = launched(one, guardian, limit=2.0)
    assert ended is None
    assert 2.0 <= time.monotonic() - began < PATIENCE_S
    assert carriers(one) == []


def test_what_a_profiler_leaves_running_in_a_session_of_its_own_goes_too(tmp_path: Path, guardian: Guardian):
    env = {**PLAIN, LAUNCH_VARIABLE: "made-up-mark"}
    script = f'setsid sleep 61.5 & echo $! > {tmp_path}/pid; [ -n "$1" ] && sleep 600; exit 0'
    for hangs in ("", "yes"):
        ended, _ = run_to_end(
            ["sh", "-c", script, "sh", hangs],
            env=env,
            log=tmp_path / "log",
            limit=0.5 if hangs else PATIENCE_S,
            guardian=guardian,
        )
        assert (ended is None) == bool(hangs)
        assert not alive(int((tmp_path / "pid").read_text()))


def test_the_tail_has_what_was_printed_after_the_errors_because_profilers_speak_there(
    tmp_path: Path, guardian: Guardian
):
    script = "echo '==ERROR== no kernel'; echo warning >&2; printf '\\377' "
    ended, tail = run_to_end(["sh", "-c", script], env=PLAIN, log=tmp_path / "log", limit=PATIENCE_S, guardian=guardian)
    assert (ended.status, tail) == (0, "warning\n==ERROR== no kernel\n\ufffd")


def test_only_the_end_of_what_was_printed_is_kept(tmp_path: Path, guardian: Guardian):
    script = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done"
    _, tail = run_to_end(["sh", "-c", script], env=PLAIN, log=tmp_path / "log", limit=PATIENCE_S, guardian=guardian)
    assert tail.splitlines() == [f"line {number}" for number in range(2980, 3000)]


@pytest.mark.parametrize("where", ["report", "$TMPDIR/nvidia/nsight/collected"])
def test_a_profiler_that_writes_too_much_is_killed_with_all_it_started(tmp_path: Path, guardian: Guardian, where: str):
    env = {**PLAIN, LAUNCH_VARIABLE: "made-up-mark", "TMPDIR": str(tmp_path / "tmp")}
    script = (
        f"setsid sleep 61.5 & echo $! > {tmp_path}/pid; mkdir -p $TMPDIR/nvidia/nsight; cd {tmp_path}; "
        f"dd if=/dev/zero of={where} bs=1024 count=300; sleep 600"
    )
    with pytest.raises(TooLarge, match="more than 200 KiB"):
        run_to_end(
            ["sh", "-c", script],
            env=env,
            log=tmp_path / "log",
            limit=PATIENCE_S,
            guardian=guardian,
            most_bytes=200 << 10,
        )
    assert not alive(int((tmp_path / "pid").read_text()))


def test_what_the_workload_itself_writes_is_not_counted(tmp_path: Path, guardian: Guardian):
    env = {**PLAIN, "TMPDIR": str(tmp_path / "tmp")}
    write = "for f in shared/f $TMPDIR/f; do dd if=/dev/zero of=$f bs=1024 count=300; done"
    script = f"cd {tmp_path}; mkdir -p shared $TMPDIR; {write}; sleep 1.2"
    ended, _ = run_to_end(
        ["sh", "-c", script], env=env, log=tmp_path / "log", limit=PATIENCE_S, guardian=guardian, most_bytes=200 << 10
    )
    assert ended.status == 0


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path, guardian: Guardian):
    with pytest.raises(StartError, match="No such file"):
        run_to_end(["/no/profiler"], env=PLAIN, log=tmp_path / "log", limit=PATIENCE_S, guardian=guardian)


UNEVEN_GANG = """
import time
import torch
import torch.distributed as dist
from aiperf.workloads.contract import Context, Work, Workload

def slow_start(context: Context):
    context.process_group("gloo")
    out, calls = torch.zeros(4), context.shared_scratch / f"calls-{context.rank}"

    def step():
        made = len(calls.read_text()) if calls.exists() else 0
        # Only rank 1 is slow, and only at first: rank 0 feels it through the collective.
        time.sleep(0.0 if context.rank == 0 else 0.8 if made < 2 else 0.004)
        out.fill_(1.0)
        dist.all_reduce(out)
        calls.write_text("x" * (made + 1))

    return Workload(step, Work(items=4), outputs=lambda: {"out": out})
"""


@pytest.mark.long
def test_a_gang_that_begins_slowly_is_profiled_for_several_iterations_the_same_in_every_rank(
    tmp_path: Path, guardian: Guardian
):
    (tmp_path / "own.py").write_text(UNEVEN_GANG)
    one = standalone(tmp_path, f"{tmp_path / 'own.py'}:slow_start", ranks=2, target_seconds=1.9, most_iterations=7)
    ended, tail = launched(one, guardian)
    reports = one.read_reports()
    assert (ended.status, failure(reports)) == (0, ""), tail
    assert 3 <= reports[0].iterations == reports[1].iterations <= 7
    steps = {len((one.folder / "shared" / f"calls-{rank}").read_text()) for rank in (0, 1)}
    # First, three trials, two to warm up, and the profiled ones.
    assert steps == {6 + reports[0].iterations}


# ---- what a launch is made of ----------------------------------------------------------------------------------------


def test_the_spec_holds_what_the_worker_asks_for(tmp_path: Path):
    one = standalone(tmp_path, trace=True, control=True)
    spec = decode(one.prepare().read_text(), StandaloneSpec)
    assert (spec.setup.side, spec.setup.device, spec.setup.seed, spec.setup.gpus) == ("before", "cpu", 3, 0)
    assert Path(spec.setup.scratch).parent == one.folder
    assert spec.setup.scratch != spec.setup.shared_scratch == str(one.folder / "shared")
    assert (spec.ranks, spec.most_iterations, spec.target_seconds) == (1, 5, 0.01)
    assert spec.report == str(one.folder / "report-{rank}.json")
    assert spec.trace == str(one.folder / "trace-{rank}.json.gz")
    assert spec.control == tuple(str(fifo) for fifo in one.fifos)
    assert all(fifo.is_fifo() for fifo in one.fifos)
    assert one.temporary.is_dir()
    plain = decode(standalone(tmp_path / "plain").prepare().read_text(), StandaloneSpec)
    assert (plain.trace, plain.control) == ("", ())


def test_the_environment_names_folders_of_this_launch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    env = standalone(tmp_path).environment()
    assert env["TMPDIR"] == str(tmp_path / "standalone" / "tmp")
    assert env["PYTHONPATH"] == f"{import_root()}{os.pathsep}/theirs"
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"]) == ("0", "0", "1")
    assert standalone(tmp_path, env={"TMPDIR": "/own"}).environment()["TMPDIR"] == "/own"
    assert standalone(tmp_path, ranks=2).environment()["GLOO_SOCKET_IFNAME"]


def test_a_checkouts_own_packages_come_first(tmp_path: Path):
    env = standalone(tmp_path, folder="/checkout", env={"PYTHONPATH": "/checkout/src"}).environment()
    assert env["PYTHONPATH"] == f"/checkout/src{os.pathsep}{import_root()}"


def test_a_side_is_run_by_its_own_interpreter(tmp_path: Path):
    assert standalone(tmp_path).argv(Path("/s")) == [sys.executable, "-m", "aiperf.worker.standalone", "/s"]
    assert standalone(tmp_path, python="/other/python").argv(Path("/s"))[0] == "/other/python"


def test_a_failure_has_the_words_of_the_rank_that_reported_it():
    silent = StandaloneReport(error="it ended before it reported anything")
    assert failure([StandaloneReport(rank=0), StandaloneReport(rank=1)]) == ""
    assert failure([silent, StandaloneReport(error="ValueError: broken batch")]) == "ValueError: broken batch"
    assert failure([StandaloneReport(), silent]) == silent.error


def test_a_report_that_is_cut_short_is_no_report(tmp_path: Path):
    one = standalone(tmp_path)
    one.prepare()
    one.reports[0].write_text('{"rank": 0')
    assert failure(one.read_reports()) == "it ended before it reported anything"


# ---- perf's FIFOs ----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_gang_of_two_reports_by_rank_and_one_rank_alone_switches_perf_on_and_off(tmp_path: Path, guardian: Guardian):
    one = standalone(tmp_path, f"{SIDES}:reduces", ranks=2, control=True, trace=True)
    words: list[str] = []

    def answer() -> None:
        with open(one.fifos[0]) as asked, open(one.fifos[1], "w") as told:
            for word in asked:
                words.append(word.strip())
                told.write("ack\n")
                told.flush()

    spec = one.prepare()
    perf = threading.Thread(target=answer, daemon=True)
    perf.start()
    ended, tail = run_to_end(one.argv(spec), env=one.environment(), log=one.folder / "log", limit=60, guardian=guardian)
    perf.join(5)
    reports = one.read_reports()
    assert ended is not None
    assert (ended.status, failure(reports)) == (0, ""), tail
    assert words == ["enable", "disable"]
    assert [report.rank for report in reports] == [0, 1]
    assert len({report.pid for report in reports}) == 2
    assert reports[0].iterations == reports[1].iterations
    assert [path.is_file() for path in one.traces] == [True, True]


@pytest.mark.long
def test_perf_itself_counts_and_samples_only_the_profiled_part(tmp_path: Path, guardian: Guardian):
    """With perf itself where it may be used, else that it says why not."""
    perf = next(a for a in statuses(HostFacts("h", "Linux", "cpu", (0,), 1, 1)) if a.tool == "perf")
    if not perf.usable or perf.found is None:
        print("perf cannot be used here")
        assert perf.reason
        return
    print("the real perf")
    one = standalone(tmp_path, control=True, target_seconds=0.2, most_iterations=10_000)
    output = tmp_path / "stat"
    command = perf_stat(perf.found, one.argv(one.prepare()), output=output, control=one.fifos)
    ended, tail = run_to_end(command, env=one.environment(), log=tmp_path / "log", limit=60, guardian=guardian)
    assert ended is not None
    assert failure(one.read_reports()) == "", tail
    told = counted(output.read_text(encoding="utf-8"))
    # The whole process takes a multiple of this: interpreter, imports, warm-up.
    assert told.events["task-clock"] / 1000 < 1.2 * one.read_reports()[0].wall_s + 0.05
    two = standalone(tmp_path / "again", control=True, target_seconds=0.2, most_iterations=10_000)
    (tmp_path / "again").mkdir()
    data = tmp_path / "data"
    command = perf_record(perf.found, two.argv(two.prepare()), output=data, control=two.fifos)
    ended, tail = run_to_end(command, env=two.environment(), log=tmp_path / "log", limit=60, guardian=guardian)
    assert ended is not None
    assert (failure(two.read_reports()), data.stat().st_size > 0) == ("", True), tail
    ended, tail = run_to_end(
        perf_report(perf.found, data), env=PLAIN, log=tmp_path / "report", limit=60, guardian=guardian
    )
    assert ended is not None
    assert "%" in tail
