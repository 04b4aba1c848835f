"""The views that SQL can ask of the stored runs: their names, columns, and what each means.

What must not live here: how a view is filled (view_rows.py, view_profiles.py), running SQL (query.py).
"""

from __future__ import annotations

from dataclasses import dataclass

_TEXT, _REAL, _WHOLE, _FLAG = "VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN"
_TIME, _JSON, _TEXTS = "TIMESTAMP", "JSON", "VARCHAR[]"


@dataclass(frozen=True)
class Column:
    """One column of a view."""

    name: str
    kind: str
    """DuckDB's type."""
    meaning: str


@dataclass(frozen=True)
class View:
    """One view."""

    name: str
    meaning: str
    columns: tuple[Column, ...]


_RUN = Column("run", _TEXT, "name of the run's folder")
_CASE = Column("case", _TEXT, 'id of the case; a word of SQL, so write "case" or c.case')
_SCENARIO = Column("scenario", _TEXT, "name of the scenario")
_SLOT = Column("slot", _WHOLE, "place of the pair in the record, from 0")
_PAIR = Column("pair", _WHOLE, "number of the pair; one that was measured again keeps it")
_OF_A_PAIR = (_RUN, _CASE, _SCENARIO, _SLOT, _PAIR)
"""What every row below the level of a case begins with."""
_SIDE = Column("side", _TEXT, "before, after, or a step of a ladder")
_HOST = Column("host_id", _TEXT, "fingerprint of the class of host")

RUNS = View(
    "runs",
    "one row for each run",
    (
        _RUN,
        Column("started", _TIME, "when it began, UTC"),
        Column("finished", _TIME, "when it ended, UTC"),
        Column("status", _TEXT, "running, finished, interrupted; unknown: its record is damaged"),
        Column("precision", _TEXT, "quick, standard, rigorous, or a file's name"),
        Column("seed", _WHOLE, "seed of orders, inputs and offsets"),
        Column("argv", _TEXT, "the command line"),
        Column("host", _TEXT, "host name"),
        _HOST,
        Column("gpus", _TEXTS, "names of the GPUs"),
        Column("software", _JSON, "name -> version"),
        Column("git", _JSON, "state of the checkout"),
        Column("settings", _JSON, "how it measured"),
        Column("planned", _WHOLE, "cases planned"),
        Column("cases", _WHOLE, "case records that can be read"),
        Column("folder", _TEXT, "path of the run's folder"),
    ),
)
CASES = View(
    "cases",
    "one row for each case of each run",
    (
        _RUN,
        _CASE,
        _SCENARIO,
        Column("title", _TEXT, "title of the scenario"),
        Column("axes", _JSON, "axis -> value, e.g. axes->>'size'"),
        Column("tags", _TEXTS, "tags of the scenario"),
        Column("expect", _TEXT, "verdict that the scenario expects"),
        Column("status", _TEXT, "measured, skipped, failed, interrupted, imported"),
        Column("stop", _TEXT, "rule that ended the case: verdict, precision, budget, ..."),
        Column("skip_reason", _TEXT, "why it was skipped"),
        Column("failure_kind", _TEXT, "crash, hang, oom_device, ..."),
        Column("failure_side", _TEXT, "side that failed"),
        Column("failure_phase", _TEXT, "phase in which it failed"),
        Column("failure_message", _TEXT, "what it said"),
        Column("notes", _TEXTS, "what the run noted on the case"),
        Column("pairs", _WHOLE, "pairs in the record, void ones too"),
        Column("void_pairs", _WHOLE, "pairs that do not count"),
        Column("replicate", _TEXT, "unit of replication"),
        Column("precision", _TEXT, "quick, standard, rigorous, or a file's name"),
        Column("threshold", _REAL, "threshold asked for, as a ratio minus 1"),
        Column("alpha", _REAL, "two-sided error of the intervals"),
        Column("seed", _WHOLE, "seed of the case"),
        Column("seconds", _REAL, "time that the case took"),
        Column("own_seconds", _REAL, "part of it that aiperf added to its workers' own"),
        _HOST,
        Column("started", _TIME, "when the case began, UTC"),
        Column("finished", _TIME, "when it ended, UTC"),
    ),
)
COMPARISONS = View(
    "comparisons",
    "one row for each metric of each two sides compared",
    (
        _RUN,
        _CASE,
        _SCENARIO,
        Column("metric", _TEXT, "time, peak_memory, user, ..."),
        Column("side", _TEXT, "the side that is judged"),
        Column("against", _TEXT, "the side it is held against"),
        Column("headline", _FLAG, "the metric that the case is about"),
        Column("unit", _TEXT, "unit of before and after"),
        Column("better", _TEXT, "lower or higher"),
        Column("before", _REAL, "value of the side held against"),
        Column("after", _REAL, "value of the side judged"),
        Column("ratio", _REAL, "above 1 is better, whatever the metric"),
        Column("low", _REAL, "lower end of the ratio's interval"),
        Column("high", _REAL, "upper end"),
        Column("alpha", _REAL, "the interval covers with 1 - alpha"),
        Column("sd", _REAL, "standard deviation of a pair's log-ratio"),
        Column("pairs", _WHOLE, "pairs that count"),
        Column("pairs_needed", _WHOLE, "pairs that a decision would need"),
        Column("mde", _REAL, "smallest effect that could be found, as a ratio minus 1"),
        Column("second_ratio", _REAL, "the second estimate (Hodges-Lehmann)"),
        Column(
            "verdict",
            _TEXT,
            "improved, regressed, equivalent, inconclusive, invalid; interrupted, failed, unfit: it was cut short",
        ),
        Column("reason", _TEXT, "code of the reason"),
        Column("sentence", _TEXT, "the verdict in words"),
        Column("threshold", _REAL, "threshold it was held against, as a ratio minus 1"),
        Column("provisional", _FLAG, "a quick look, to be confirmed"),
        _HOST,
        Column("started", _TIME, "when the run began, UTC"),
    ),
)
SAMPLES = View(
    "samples",
    "one row for each timed reading; read from the Parquet files as they are asked for",
    (
        *_OF_A_PAIR,
        Column("void", _FLAG, "the pair does not count"),
        Column("position", _WHOLE, "place of the side in the pair's order"),
        Column("started", _REAL, "when the pair began, seconds since the epoch"),
        _SIDE,
        Column("round", _WHOLE, "alternation within the pair"),
        Column("index", _WHOLE, "place of the sample within the side"),
        Column("iterations", _WHOLE, "calls of step in this reading"),
        Column("wall_s", _REAL, "wall time of all iterations, seconds"),
        Column("device_s", _REAL, "device time of all iterations, seconds"),
        Column("user_s", _REAL, "user CPU time, seconds"),
        Column("system_s", _REAL, "system CPU time, seconds"),
        Column("peak_bytes", _WHOLE, "peak memory, bytes"),
        Column("audit", _FLAG, "an audited iteration: never part of the statistics"),
        Column("latencies_s", "DOUBLE[]", "how long each unit of work took that ended in the turn this sample ends"),
    ),
)
COUNTERS = View(
    "counters",
    "one row for each count that a side of a pair told of itself",
    (
        *_OF_A_PAIR,
        _SIDE,
        Column("name", _TEXT, "name of the counter"),
        Column("value", _REAL, "its value"),
    ),
)
FINDINGS = View(
    "findings",
    "one row for each finding of a run's host, each that touches a case, and each incident of a pair",
    (
        *_OF_A_PAIR,
        _SIDE,
        Column("kind", _TEXT, "host (of the run as a whole), thermal, foreign_cpu, ..."),
        Column("voids", _FLAG, "the pair does not count because of it"),
        Column("detail", _TEXT, "the finding in words"),
    ),
)
TELEMETRY = View(
    "telemetry",
    "one row for each reading of clocks, power and counters in a pair, and for each count of what a side used",
    (
        *_OF_A_PAIR,
        Column("void", _FLAG, "the pair does not count"),
        Column("mark", _TEXT, "a side's turns, a phase (warm-up of before, energy of before), or all readings"),
        Column("kind", _TEXT, "median of the readings, sum over the side's turns, start of the pair, share of a core"),
        Column("name", _TEXT, "sm_clock_mhz, power_w, gpu1_temperature_c, minor_faults, iterations, ..."),
        Column("value", _REAL, "its value, in the unit that the name ends in"),
    ),
)
_TOOL = Column("tool", _TEXT, "nsys, ncu, torch, perf; aiperf: the workload's own counts")
_ITERATIONS = Column("iterations", _WHOLE, "profiled iterations, which totals are of")
_OF_AN_ACTIVITY = (
    *(_RUN, _CASE, _SCENARIO, _SIDE),
    Column("rank", _WHOLE, "rank of a gang"),
    Column("device", _WHOLE, "number of the GPU"),
    _TOOL,
    Column("kind", _TEXT, "kernel, graph, memcpy, memset, collective; op, call: on the host; range"),
    Column("name", _TEXT, "the kernel, the direction of the copy, the operator, ..."),
)
PROFILE_ROWS = View(
    "profile_rows",
    "one row for each activity that a profiler saw under a side: all calls of one kernel, all copies of one direction; "
    "null is not read",
    (
        *_OF_AN_ACTIVITY,
        _ITERATIONS,
        Column("count", _WHOLE, "calls in all iterations"),
        Column("time_s", _REAL, "of all calls, seconds: on the device, of an op its own on the host"),
        Column("median_s", _REAL, "median call, seconds"),
        Column("bytes", _REAL, "of all calls: copied, or to and from DRAM"),
        Column("bytes_per_s", _REAL, "bytes each second of that time"),
        Column("dram_pct", _REAL, "DRAM throughput, % of its peak"),
        Column("sm_pct", _REAL, "SM throughput, % of its peak"),
        Column("memory_pct", _REAL, "throughput of the busiest level of memory, % of its peak"),
        Column("tensor_pct", _REAL, "tensor pipe, % of its peak"),
        Column("l2_pct", _REAL, "L2 throughput, % of its peak"),
        Column("l1_pct", _REAL, "L1 throughput, % of its peak"),
        Column("sector_use_pct", _REAL, "bytes asked for of each sector loaded: 100 is coalesced"),
        Column("occupancy_pct", _REAL, "warps active, % of what an SM can hold"),
        Column("occupancy_limit_pct", _REAL, "the most that the launch allows, %"),
        Column("waves", _REAL, "waves of blocks on each SM"),
        Column("grid", _WHOLE, "blocks"),
        Column("block", _WHOLE, "threads of a block"),
        Column("registers", _WHOLE, "registers of a thread"),
        Column("shared_bytes", _WHOLE, "shared memory of a block, bytes"),
        Column("bound", _TEXT, "bottleneck class: memory, compute, latency, balanced, ..."),
        Column("why", _TEXT, "the rule and the numbers that decided it"),
        Column("tool_says", _TEXT, "the tool's own verdict"),
        Column("metrics", _JSON, "further counters, as in profile_metrics"),
        Column("flops", _REAL, "floating-point operations of all calls, counted"),
        Column("flops_per_s", _REAL, "of them each second of that time"),
    ),
)
PROFILE_METRICS = View(
    "profile_metrics",
    "one row for each further counter of a row of profile_rows, by the tool's own name",
    (
        *_OF_AN_ACTIVITY,
        Column("metric", _TEXT, "dram__bytes_read.sum, context-switches, flops, ..."),
        Column("value", _REAL, "mean over the calls; of perf, of each iteration"),
    ),
)
PROFILE_SIDES = View(
    "profile_sides",
    "one row for each side as a whole by each tool, ranks merged: totals of all iterations; null is not read",
    (
        *(_RUN, _CASE, _SCENARIO, _SIDE, _TOOL, _ITERATIONS),
        Column("wall_s", _REAL, "wall time of the range, of the slowest rank"),
        Column("gpu_span_s", _REAL, "first GPU operation to the end of the last; of devices the mean"),
        Column("gpu_busy_s", _REAL, "of it with work on the GPU"),
        Column("host_wait_s", _REAL, "of it idle because the next operation was launched too late"),
        Column("other_wait_s", _REAL, "of it idle otherwise"),
        Column("compute_s", _REAL, "kernels and graphs"),
        Column("copy_s", _REAL, "copies and fills"),
        Column("copy_overlap_pct", _REAL, "of the copies, fills left out, hidden by computation, %"),
        Column("concurrency", _REAL, "GPU operations at a time, while any runs; of devices the mean"),
        Column("launches", _WHOLE, "launches by the host, as are all counts of the slowest rank"),
        Column("launch_interval_s", _REAL, "wall time of a launch"),
        Column("kernels", _WHOLE, "kernels, graphs and collectives that ran"),
        Column("mean_kernel_s", _REAL, "mean time of one of them"),
        Column("syncs", _WHOLE, "waits of the host for the GPU"),
        Column("sync_s", _REAL, "time in them"),
        Column("communication_s", _REAL, "collectives, smallest over the ranks"),
        Column("exposed_s", _REAL, "of it hidden by no computation"),
        Column("overlap_pct", _REAL, "of it hidden by computation, %"),
        Column("skew_s", _REAL, "largest less smallest communication over the ranks"),
        Column("threads", _WHOLE, "host threads that launched GPU work"),
        Column("ranks", _WHOLE, "ranks merged"),
        Column("peak_bytes", _WHOLE, "peak memory of the ranks together, the GPU's or else the host's"),
        Column("hot", _JSON, "where the host spent its time: name and share of each"),
        Column("bound", _TEXT, "bottleneck class: launch, transfer, communication, host, gpu, ..."),
        Column("why", _TEXT, "the rule and the numbers that decided it"),
        Column("lost", _TEXT, "what the tool dropped or could not attribute"),
    ),
)
PROFILE_PASSES = View(
    "profile_passes",
    "one row for each pass of a tool over a case, read or not, and why not",
    (
        *(_RUN, _CASE, _SCENARIO),
        Column("side", _TEXT, "null: one pass over all sides"),
        _TOOL,
        Column("status", _TEXT, "read, empty, failed, skipped"),
        Column("reason", _TEXT, "why it was not read, and what would fix it"),
        Column("version", _TEXT, "version of the tool"),
        Column("seconds", _REAL, "time that the pass took; null: none was made"),
        Column("files", _TEXTS, "kept raw reports, in the run's folder"),
        Column("command", _TEXT, "the command line"),
    ),
)
MECHANISMS = View(
    "mechanisms",
    "one row for each counter that a scenario claims moves, held against what was profiled",
    (
        *(_RUN, _CASE, _SCENARIO),
        Column("counter", _TEXT, "the counter claimed"),
        Column("claimed", _TEXT, "up, down, same"),
        Column("before", _REAL, "value under the first side"),
        Column("after", _REAL, "value under the last side"),
        Column("unit", _TEXT, "unit of both, where the counter has one"),
        Column("state", _TEXT, "moved, did_not_move, opposite, not_readable"),
        Column("tool", _TEXT, "tool that read it"),
        Column("sentence", _TEXT, "the outcome in words"),
    ),
)
PROFILED = (PROFILE_ROWS, PROFILE_METRICS, PROFILE_SIDES, PROFILE_PASSES, MECHANISMS)
"""Views of what profilers told: of them no other record of a run is read, and for the others no profile."""
VIEWS = (RUNS, CASES, COMPARISONS, SAMPLES, COUNTERS, FINDINGS, TELEMETRY, *PROFILED)
