"""host.task: units come out the same wherever they ran, and what was in force is read back from the processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from cpu_pairs import audit, run

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.host import allocators
from aiperf.workloads.host import units_pool as pools
from aiperf.workloads.host import workload as host

CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def side():
    made = []

    def make(**params):
        made.append(host.task(Context(seed=3), **{"workers": 1, "units": 4, **params}))
        return made[-1]

    yield make
    for workload in made:
        workload.close()


@pytest.mark.parametrize(
    "work",
    ["batch_prep", pytest.param("spin", marks=pytest.mark.long), pytest.param("request", marks=pytest.mark.long)],
)
def test_units_do_not_depend_on_who_does_them_where(side, work):
    plain = side(work=work)
    busy = side(work=work, workers=2, hogs=1, collector="frozen")
    threads = side(work=work, workers=2, worker_kind="thread")
    first = audit(plain, seed=5)["results"]
    assert np.array_equal(first, audit(busy, seed=5)["results"])
    assert np.array_equal(first, audit(threads, seed=5)["results"])
    assert not np.array_equal(first, audit(plain, seed=6)["results"])
    assert len(np.unique(first)) > 3, "every unit has an answer of its own"


def test_a_spin_is_the_recurrence_that_it_says(side):
    workload = side(work="spin", units=2)
    run(workload)
    state = int(workload.inputs()["inputs"][1])
    for _ in range(host._TURNS["spin"]):
        state = (state * 1103515245 + 12345) % 2**31
    assert workload.outputs()["results"][1] == state


def test_every_unit_that_processes_share_is_told_once_with_the_time_that_it_took(side):
    workload = side(work="spin", units=6, workers=2)
    began = time.perf_counter()
    run(workload)
    run(workload)
    both = time.perf_counter() - began
    told = list(workload.latencies())
    assert (len(told), list(workload.latencies())) == (12, [])
    assert len(set(told)) > 1, "of a clock"
    assert sum(told) < 2 * both, "two workers at once"
    assert min(told) > 1e-8 * host._TURNS["spin"], "no interpreter takes its turns faster"
    assert host.task(Context(), work="touch", bytes=1 << 20).latencies is None


def test_affinity_and_collector_are_read_back_from_the_workers(side):
    pinned = side(work="spin", worker_cpus="one_each", collector="frozen", hogs=1)
    assert pinned.facts["worker_cpus"] == [[CPUS[0]]]
    assert pinned.facts["hog_cpus"] == [CPUS]
    assert pinned.facts["collecting"] == [False]
    run(pinned)
    assert pinned.counters()["cpu_changes"] == 0
    free = side(work="spin")
    assert (free.facts["worker_cpus"], free.facts["collecting"]) == ([CPUS], [True])


def test_hogs_burn_only_while_a_step_runs(side):
    workload = side(work="spin", hogs=1)
    pool = workload.step.__self__
    run(workload)
    assert pool.area[0] == 0
    pool._settle()
    spent = _cpu_ticks(pool.hogs[0].pid)
    time.sleep(0.1)
    # The kernel counts what it is interrupted in: a tick may still come.
    assert _cpu_ticks(pool.hogs[0].pid) <= spent + 1
    run(workload)


def _cpu_ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_all_processes_end_with_the_side():
    workload = host.task(Context(seed=3), work="spin", workers=1, units=1, hogs=1)
    run(workload)
    pool = workload.step.__self__
    workload.close()
    assert [child.returncode for child in [*pool.workers, *pool.hogs]] == [0, 0]


def test_threads_share_one_process_and_tell_the_time_of_each_unit_once(side):
    workload = side(work="spin", units=6, workers=2, worker_kind="thread")
    (child,) = workload.step.__self__.workers
    run(workload)
    assert len(list(workload.latencies())) == 6
    assert len(os.listdir(f"/proc/{child.pid}/task")) == 3, "two threads beside the one that is told to go"
    assert len(workload.facts["worker_cpus"]) == 1


def test_glibc_told_to_keep_memory_takes_no_page_faults_where_it_gave_temporaries_back(side, monkeypatch):
    faults, units = [], 8
    for tunables in ("", "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=268435456"):
        monkeypatch.setenv("GLIBC_TUNABLES", tunables)
        workload = side(work="batch_prep", units=units, allocator="glibc")
        for _ in range(3):
            run(workload)
        assert workload.facts["malloc"] == ["libc.so.6"]
        assert workload.facts["malloc_settings"]["GLIBC_TUNABLES"] == tunables
        assert workload.counters()["resident_bytes"] > 10 << 20, "an interpreter with numpy"
        faults.append(workload.counters()["page_faults"])
    plain, kept = faults
    assert plain > 100 * units, "each batch faults in a good part of its temporaries"
    assert kept < 10 * units


@pytest.mark.parametrize("allocator", ["jemalloc", "tcmalloc"])
def test_an_allocator_that_is_there_serves_the_workers_and_not_the_hogs(side, allocator):
    try:
        workload = side(work="spin", allocator=allocator, hogs=1)
    except SkipSide as reason:
        pytest.skip(str(reason))
    assert workload.facts["malloc"][0].startswith(allocators._LIBRARIES[allocator].files)
    (hog,) = workload.step.__self__.hogs
    with open(f"/proc/{hog.pid}/maps") as maps:
        assert allocator not in maps.read()


def _library(monkeypatch, *files):
    monkeypatch.setitem(allocators._LIBRARIES, "jemalloc", allocators._Library(files, "the package"))


def test_an_allocator_that_cannot_be_preloaded_skips_the_side_and_names_its_package(side, monkeypatch):
    _library(monkeypatch, "libno-such-malloc.so.9", "libnor-this.so.1")
    with pytest.raises(SkipSide, match=r"libno-such-malloc.so.9 or libnor-this.so.1 cannot .*: install the package"):
        side(work="spin", allocator="jemalloc")


def test_a_library_that_is_loaded_but_does_not_serve_malloc_skips_the_side_and_leaves_no_process(side, monkeypatch):
    _library(monkeypatch, "libno-such-malloc.so.9", "libm.so.6")
    started, plain = [], pools._start

    def watched(spec, env):
        started.append(plain(spec, env))
        return started[-1]

    monkeypatch.setattr(pools, "_start", watched)
    with pytest.raises(SkipSide, match=r"malloc is that of \S*libc.so.6, not of jemalloc"):
        side(work="spin", workers=2, hogs=1, allocator="jemalloc")
    assert [child.returncode for child in started] == [0, 0, 0]


def test_glibc_keeps_other_allocators_out_and_nothing_else(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/opt/libjemalloc.so.2:/opt/libother.so libtcmalloc.so.4")
    assert allocators.environment("glibc")["LD_PRELOAD"] == "/opt/libother.so"
    assert allocators.environment("inherited")["LD_PRELOAD"] == os.environ["LD_PRELOAD"]
    monkeypatch.setenv("LD_PRELOAD", "libjemalloc.so.2")
    assert "LD_PRELOAD" not in allocators.environment("glibc")
    allocators.require("glibc", ["/lib/libc.so.6"])
    allocators.require("inherited", ["/opt/libmimalloc.so.2"])
    with pytest.raises(SkipSide, match="mimalloc"):
        allocators.require("glibc", ["/lib/libc.so.6", "/opt/libmimalloc.so.2"])


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this kernel keeps no schedstat")
def test_a_worker_tells_how_long_it_stood_in_the_queue_of_a_cpu(side):
    beside = side(work="spin", units=20, worker_cpus="one_each", hogs=2)
    began = time.perf_counter()
    run(beside)
    assert 0 < beside.counters()["cpu_wait_s"] < time.perf_counter() - began


@pytest.mark.long
def test_a_real_time_worker_is_read_back_or_refused_with_what_it_needs(side):
    asks = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    granted = subprocess.run([sys.executable, "-c", asks], stderr=subprocess.DEVNULL, check=False).returncode == 0
    try:
        told = side(work="spin", hogs=1, worker_policy="fifo").facts["worker_realtime"]
    except SkipSide as refused:
        told = str(refused)
    refusal = "the kernel refuses SCHED_FIFO: it takes CAP_SYS_NICE or an rtprio limit above 0"
    assert told == ([True] if granted else refusal)
    assert side(work="spin", hogs=1).facts["worker_realtime"] == [False]


def test_nice_levels_are_read_back_or_refused_with_what_they_need(side):
    assert side(work="spin", hogs=1, hog_nice=5).facts["hog_nice"] == [5]
    try:
        told = side(work="spin", worker_nice=-1).facts["worker_nice"]
    except SkipSide as reason:
        told = str(reason)
    assert told in ([-1], "the kernel refuses a nice level of -1: going below one's own takes CAP_SYS_NICE")


def test_a_side_says_that_priorities_are_what_it_is_about_and_no_other_does(side):
    assert "priority" in side(work="spin", hogs=1, hog_nice=5).done_outside
    assert side(work="spin", hogs=1).done_outside == ""


@pytest.fixture
def smt(monkeypatch):
    """Four CPUs on two cores: 0 and 2 are one, 1 and 3 the other."""
    monkeypatch.setattr(pools, "siblings_of", lambda cpu: [cpu % 2, cpu % 2 + 2])


def _places(allowed, **asked):
    return pools.places(allowed, **{"workers": 2, "worker_cpus": "free", "hog_cpus": "free", **asked})


def test_places_follow_the_cores(smt):
    assert _places(range(4)).workers == [[], []]
    assert _places(range(4), worker_cpus="one_each").workers == [[0], [1]]
    assert _places(range(4), worker_cpus="siblings").workers == [[0], [2]]
    reserved = _places(range(4), worker_cpus="reserved", hog_cpus="other")
    assert (reserved.workers, reserved.hogs) == ([[3], [2]], [0, 1])


@pytest.mark.parametrize(
    ("allowed", "asked", "message"),
    [
        ([0, 2], {"worker_cpus": "one_each"}, "2 cores; aiperf may use 1"),
        ([0, 1], {"worker_cpus": "siblings"}, "hardware threads"),
        ([0, 1], {"worker_cpus": "reserved"}, "3 CPUs"),
    ],
)
def test_places_that_these_cpus_cannot_give_skip_the_side(smt, allowed, asked, message):
    with pytest.raises(SkipSide, match=message):
        _places(allowed, **asked)


@pytest.mark.parametrize(
    ("text", "found"), [("0-1\n", [0, 1]), ("0,64\n", [0, 64]), ("0-1,8-9\n", [0, 1, 8, 9]), ("3\n", [3])]
)
def test_siblings_are_read_as_the_kernel_lists_them(tmp_path, monkeypatch, text, found):
    folder = tmp_path / "cpu0" / "topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text(text)
    monkeypatch.setattr(pools, "_CPUS", tmp_path)
    assert pools.siblings_of(0) == found
    assert pools.siblings_of(7) == [7], "a host that does not tell has no siblings"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"units": 3, "workers": 2}, "equally"),
        ({"units": 3, "workers": 2, "worker_kind": "thread"}, "equally"),
        ({"hogs": -1}, "0 or more"),
        ({"units": 0}, "1 or"),
        ({"worker_kind": "thread", "worker_cpus": "one_each"}, "binds processes"),
        ({"hog_nice": 20}, "between"),
        ({"worker_nice": -21}, "between"),
    ],
)
def test_counts_that_cannot_work_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        host.task(Context(), work="spin", **{"workers": 1, **params})
