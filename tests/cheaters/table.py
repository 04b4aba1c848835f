"""The entries of the shelf that need no GPU: the cheats by class, and honest twins beside them.

What must not live here: the sides themselves (sides/), and the entries for GPUs (table_gpu.py).
"""

from __future__ import annotations

from typing import Any

from tests.cheaters.entries import Entry
from tests.cheaters.table_gpu import GPU
from tests.cheaters.table_more import MORE
from tests.cheaters.table_third import THIRD

ACCIDENT: Any = "accident"
OUTPUTS_CLOSE = {"kind": "named", "name": "close"}
TOLERANCE = "tolerance"


def _of(workload: str, group: Any, **common: Any) -> Any:
    """A short way to write entries of one workload."""

    def entry(name: str, does: str, cheat: dict[str, Any] | str, **more: Any) -> Entry:
        chosen = {"cheat": cheat} if isinstance(cheat, str) else cheat
        return Entry(name, group, does, workload, chosen, **{**common, **more})

    return entry


_w = _of("watched:activate", "watched", twin="honest-keeps")
_e = _of("elsewhere:activate", "elsewhere", twin="honest-thread")
_f = _of("forged:activate", "clock", twin="honest-clock")
_j = _of("judged:activate", "judged", twin="honest-judged")
_h = _of("harm:activate", "harm", twin="honest-child")
_LOGS = {"redraw": {"cheat": "resets_and_works"}, "redraws": {"cheat": "redraws_itself"}}

WATCHED = (
    _w("watched-identity", "keeps its result by the identity of the input array", "identity", intent=ACCIDENT),
    _w("watched-elements", "keeps its result by eight elements of the input", "elements", intent=ACCIDENT),
    _w("watched-checksum", "keeps its result by a checksum of the whole input", "checksum", intent=ACCIDENT,
       fast=True),
    _w("watched-tensor-version", "keeps its result by a tensor's address and version", "tensor_version",
       plain={"cheat": "tensor"}, intent=ACCIDENT),
    Entry("watched-lru-cache", "watched", "puts functools.lru_cache over the bytes of the input", "watched:deep",
          {"cached": True}, {"cached": False}, ACCIDENT, "honest-deep"),
    _w("watched-first-cheats", "keeps its result by a checksum, on the side that is called before", "checksum",
       intent=ACCIDENT, cheater="before"),
    _w("watched-poison", "works when it finds NaN in its output", "poison"),
    _w("watched-since-last-call", "works when a millisecond has gone by since its last call", "since_last_call"),
    _w("watched-outputs-called", "works for some steps after outputs() was called", "outputs_called"),
    _w("watched-inputs-called", "works for some steps after inputs() was called", "inputs_called"),
    _w("watched-reset-called", "works for some steps after reset() was called", "reset_called", twin="honest-resets"),
    _w("watched-redraw-called", "works for some steps after redraw() was called", "redraw_called",
       plain=_LOGS["redraw"], twin="honest-resets"),
    _w("watched-stack-name", "works when a caller's function or file is named after audits", "stack_name"),
    _w("watched-stack-locals", "works when a caller has something to run around the step", "stack_locals"),
    _w("watched-one-in-ten", "leaves out one step in ten", "one_in_ten", intent=ACCIDENT),
    _w("watched-one-in-two", "leaves out every second step", "one_in_two", intent=ACCIDENT),
    _w("watched-stealth-spin", "keeps its result and spins for four fifths of the honest time", "stealth_spin",
       twin="honest-reads-clock"),
    _w("watched-stealth-sleep", "keeps its result and sleeps for four fifths of the honest time", "stealth_sleep",
       twin="honest-reads-clock"),
)  # fmt: skip

ELSEWHERE = (
    _e("elsewhere-prepare", "works in prepare(), which is not timed", "prepare", twin="honest-prepares",
       intent=ACCIDENT),
    _e("elsewhere-outputs", "works in outputs()", "outputs", intent=ACCIDENT),
    _e("elsewhere-outputs-once", "works in outputs(), once after each step", "outputs_once", intent=ACCIDENT),
    _e("elsewhere-lazy-array", "returns an object that computes when numpy reads it", "lazy_array", intent=ACCIDENT),
    _e("elsewhere-lazy-tensor", "returns a tensor subclass that computes when it is read", "lazy_tensor",
       intent=ACCIDENT),
    _e("elsewhere-redraw", "works in redraw()", "in_redraw", plain=_LOGS["redraws"], twin="honest-redraws"),
    _e("elsewhere-inputs", "works in inputs()", "in_inputs"),
    _e("elsewhere-thread", "hands the work to a thread that nobody waits for", "thread", intent=ACCIDENT, fast=True),
    _e("elsewhere-thread-joined", "hands the work to a thread that outputs() waits for", "thread_joined",
       intent=ACCIDENT),
    _e("elsewhere-process-joined", "hands the work to a process that outputs() waits for", "process_joined",
       intent=ACCIDENT, twin="honest-process"),
    _e("elsewhere-child-ahead", "has a child compute results ahead during the other side's turns", "child_ahead",
       twin="honest-process"),
    _e("elsewhere-thread-ahead", "has a thread compute whenever the input has changed", "thread_ahead"),
    _e("elsewhere-from-seeds", "computes in set-up what every audit will ask, from the seed of the pair", "from_seeds",
       plain=_LOGS["redraws"], twin="honest-redraws"),
)  # fmt: skip


def _d(case: str, does: str, **more: Any) -> Entry:
    params = {"case": case, "cheat": True}, {"case": case, "cheat": False}
    more = {"intent": ACCIDENT, "twin": f"honest-domain-{case}", **more}
    return Entry(f"domain-{case}".replace("_", "-"), "domain", does, "domain:activate", *params, **more)


def _d_twin(case: str, does: str, **more: Any) -> Entry:
    params = {"case": case, "cheat": False}, {"case": case, "cheat": False}
    return Entry(f"honest-domain-{case}", "domain", does, "domain:activate", *params, honest=True, **more)


DOMAIN = (
    _d("no_inputs", "declares no inputs and computes once, in set-up", twin="honest-domain-integers"),
    _d("integers", "keeps the counts of integers by the identity of their array"),
    _d("mask", "leaves out a mask that is true everywhere", twin="honest-domain-masks"),
    _d("affine", "leaves out a factor of 1 and an offset of 0"),
    _d("own_redraw", "has a redraw that ignores its seed, and a result from set-up", twin="honest-redraws"),
    _d("softmax", "leaves out the maximum of a softmax", check=TOLERANCE),
    _d("zeros", "writes the answer for zeros, because its input is all zeros", twin="honest-domain-affine", fast=True),
    _d("clip", "leaves out a bound that no drawn value reaches", twin="honest-domain-scores"),
    _d("sorted", "does not sort keys that are sorted already", twin="honest-domain-sorts"),
    _d("gather", "copies instead of gathering, because the indices count up", twin="honest-domain-takes"),
    _d("lengths", "leaves out the cut at a length that all rows have", twin="honest-domain-integers"),
)

_s = _of("truth:series", "truth", plain={}, twin="honest-series", check=TOLERANCE, intent=ACCIDENT)
TRUTH = (
    _s("truth-float16", "sums 3 of 12 terms and returns float16", {"terms": 3, "dtype": "float16"}),
    _s("truth-bfloat16", "sums 3 of 12 terms and returns bfloat16", {"terms": 3, "dtype": "bfloat16"}),
    _s("truth-float8", "sums 2 of 12 terms and returns float8", {"terms": 2, "dtype": "float8_e4m3fn"}),
    _s("truth-tolerance", "sums 3 of 12 terms under a tolerance of 1 %", {"terms": 3},
       check={"kind": "tolerance", "rtol": 0.01}),
    _s("truth-own-check", "has a check of its own that always passes", {"terms": 2, "own_check": True},
       check=OUTPUTS_CLOSE, intent="purpose"),
    _s("truth-own-reference", "gives what it has as its own reference, in float16",
       {"terms": 3, "dtype": "float16", "own_reference": True}, check={"kind": "tolerance", "reference": True},
       plain={"own_reference": True}, intent="purpose"),
    Entry("truth-second-output", "truth", "leaves out the second of two outputs", "truth:several",
          {"leave_out": "second"}, {}, ACCIDENT, "honest-several", fast=True),
    Entry("truth-fewer-rows", "truth", "computes and returns half of both", "truth:several",
          {"leave_out": "rows"}, {}, ACCIDENT, "honest-several"),
    Entry("truth-stale-part", "truth", "leaves the last tenth of its outputs as set-up wrote it", "truth:several",
          {"leave_out": "stale"}, {}, ACCIDENT, "honest-several"),
    Entry("truth-no-elements", "truth", "shows outputs without elements, as the other side does, and does nothing",
          "truth:no_elements", {"works": False}, {"works": True}, ACCIDENT, "honest-several"),
    Entry("truth-no-outputs", "truth", "shows no outputs, as the other side does, and does nothing",
          "truth:no_outputs", {"works": False}, {"works": True}, ACCIDENT, "honest-several"),
    Entry("truth-poison-answer", "truth", "does nothing, because the answer is what poison writes", "truth:quantised",
          {"works": False}, {"works": True}, "purpose", "honest-quantised"),
    Entry("truth-fewer-samples", "truth", "averages half of the samples and declares all", "truth:mean",
          {"used": 32768}, {}, ACCIDENT, "honest-series", check={"kind": "tolerance", "rtol": 1e-6, "atol": 1e-9}),
    Entry("truth-fewer-passes", "truth", "does and declares half of the passes", "truth:less_work",
          {"passes": 5}, {}, ACCIDENT, "honest-several"),
    Entry("truth-in-place", "truth", "works in place on its input, which is spoilt ever after", "truth:in_place",
          {"spoils": True}, {}, ACCIDENT, "honest-in-place"),
)  # fmt: skip

CLOCK = (
    _f("clock-perf-counter", "replaces perf_counter in the modules of the worker", "perf_counter", fast=True),
    _f("clock-restored", "replaces perf_counter during its steps and puts it back before it is asked", "restored"),
    _f("clock-time-module", "replaces the clocks of the module time", "time_module"),
    _f("clock-c-method", "puts another C function behind the built-in perf_counter", "c_method"),
    _f("clock-range", "replaces the built-in range, so that fewer steps are made", "range"),
    _f("clock-read", "replaces the method that reads the clock", "clock_read"),
    _f("clock-reading", "replaces the class of a reading", "clock_reading"),
    _f("clock-side-read", "replaces the method that asks the clock", "side_read"),
    _f("clock-preload", "runs under a library whose clocks are slow", "none", preload=True),
    _f("channel-send", "replaces the method that sends answers", "channel_send"),
    _f("channel-line", "writes one answer too many into the pipe", "pipe_line"),
    _f("channel-process", "puts a process between the worker and the parent that rewrites answers", "pipe_rewrite"),
    _f("channel-balanced", "does so and adds what is taken off to the other times of the answer", "pipe_balanced"),
)

JUDGED = (
    Entry("judged-array-equal", "judged", "replaces numpy's comparisons and does nothing", "judged:counted",
          {"patched": True}, {"patched": False}, "purpose", "honest-judged", check=TOLERANCE),
    _j("judged-within", "replaces the function that says what is close", "within", check=TOLERANCE, fast=True),
    _j("judged-compare", "replaces the function that compares", "compare"),
    _j("judged-auditor", "works while the auditor does", "auditor"),
    _j("judged-clone", "has the copy of its output computed by whoever copies it", "clone"),
    _j("judged-digest", "replaces the function that digests outputs", "digest"),
    _j("judged-loaded", "has its own outputs read as the other side's", "loaded"),
    _j("judged-faults", "spoils its input and has the auditor find nothing", "faults", other="judged:sorts"),
)  # fmt: skip

HARM = (
    _h("harm-stop", "stops the other worker for moments of its turns", "stop_sibling", twin="honest-idle-thread"),
    _h("harm-renice", "lowers the other worker's priority, and computes a little beside it", "renice_sibling"),
    _h("harm-child", "has a child compute during the other side's turns", "hog_child"),
    _h("harm-children", "has three children compute during the other side's turns", "hog_children"),
    _h("harm-thread", "has a thread compute during the other side's turns", "hog_thread", twin="honest-idle-thread"),
    _h("harm-caches", "has a child write over the caches during the other side's turns", "evict_caches"),
    _h("harm-cpus", "has a thread leave the CPUs that both sides share", "other_cpus", twin="honest-pool"),
    _h("harm-bind", "binds the other worker to a CPU that is busy with something else", "bind_sibling",
       twin="honest-reads-sibling"),
    _h("harm-idle-class", "has the other worker run only where nobody else wants the CPU", "idle_class",
       twin="honest-reads-sibling"),
    _h("harm-own-fifo", "takes a real-time priority", "own_fifo", twin="honest-binds-itself"),
    _h("harm-own-nice", "takes a higher priority", "own_nice", twin="honest-binds-itself"),
    Entry("harm-result", "harm", "copies the other side's result from its scratch folder", "harm:published",
          {"takes": True}, {"takes": False}, "purpose", "honest-published"),
    Entry("harm-data", "harm", "lengthens the data set that both sides share", "harm:data_set",
          {"meddles": True}, {"meddles": False}, "purpose", "honest-data"),
)  # fmt: skip

METRICS = (
    Entry("metrics-clear-refs", "metrics", "has the kernel forget its peak of memory", "reports:memory",
          {"cheat": "clear_refs"}, {}, "purpose", "honest-less-memory", metric="peak_memory"),
    Entry("metrics-child-memory", "metrics", "keeps its memory in a child", "reports:memory",
          {"cheat": "child"}, {}, ACCIDENT, "honest-memory-helper", metric="peak_memory"),
    Entry("metrics-file-memory", "metrics", "keeps its memory in a file that no process maps", "reports:memory",
          {"cheat": "file"}, {}, ACCIDENT, "honest-memory-helper", metric="peak_memory"),
    Entry("metrics-first", "metrics", "builds in set-up what its first iteration should", "reports:first",
          {"built": "in_set_up"}, {}, ACCIDENT, "honest-first", metric="first_iteration"),
    Entry("metrics-first-prepare", "metrics", "builds in prepare() what its first iteration should", "reports:first",
          {"built": "in_prepare"}, {}, ACCIDENT, "honest-first", metric="first_iteration"),
    Entry("metrics-latency-scaled", "metrics", "reports three quarters of its latencies", "reports:requests",
          {"cheat": "scaled"}, {}, "purpose", "honest-requests", metric="latency_p50"),
    Entry("metrics-latency-fastest", "metrics", "reports its fastest unit for all", "reports:requests",
          {"cheat": "fastest"}, {}, "purpose", "honest-requests", metric="latency_p90"),
    Entry("metrics-latency-dropped", "metrics", "cuts its slow units off", "reports:requests",
          {"cheat": "dropped"}, {}, "purpose", "honest-requests", metric="latency_p90"),
)  # fmt: skip


def _p(name: str, does: str, cheat: str, **more: Any) -> Entry:
    return Entry(f"program-{name}", "programs", does, "", {"cheat": cheat}, **{"twin": "honest-program", **more})


PROGRAMS = (
    _p("environment", "knows the answer where aiperf's variables are set", "by_environment"),
    _p("parent", "knows the answer where its parent is aiperf", "by_parent"),
    _p("disk-memo", "keeps the answer of its first run on disk", "disk_memo", intent=ACCIDENT),
    _p("first-run", "works only in the run whose output is compared", "first_run"),
    _p("every-third", "works in one run of three", "every_third", fast=True),
    _p("copies", "copies what the other side has printed", "copies_output"),
    _p("daemon", "asks a daemon that outlives it", "daemon"),
    _p("outlived", "leaves the work to a grandchild that prints later", "outlived", intent=ACCIDENT),
    _p("unreaped-time", "has a child work that it does not wait for: user time", "unreaped_child",
       metric="user", twin="honest-program-child"),
    _p("unreaped-memory", "has a child work that it does not wait for: memory", "unreaped_child",
       plain={"cheat": "large"}, metric="peak_memory", twin="honest-program-memory"),
)  # fmt: skip


def _twin(name: str, group: Any, does: str, workload: str, cheat: Any, plain: Any = None, **more: Any) -> Entry:
    chosen = {"cheat": cheat} if isinstance(cheat, str) else cheat
    return Entry(f"honest-{name}", group, does, workload, chosen, plain or {}, honest=True, **more)


TWINS = (
    _twin("keeps", "watched", "keeps its result and works all the same", "watched:activate", "keeps_and_works",
          fast=True),
    _twin("deep", "watched", "solves the problem four times over", "watched:deep", {"cached": False}),
    _twin("resets", "watched", "has a reset and a redraw of its own", "watched:activate", "resets_and_works",
          _LOGS["redraw"]),
    _twin("reads-clock", "watched", "reads the clock in its step", "watched:activate", "reads_clock_and_works"),
    _twin("faster", "watched", "works in parts that fit the cache", "watched:activate", "faster"),
    _twin("prepares", "elsewhere", "prepares something that it does not need", "elsewhere:activate",
          "prepares_and_works"),
    _twin("thread", "elsewhere", "hands the work to a thread and waits for it", "elsewhere:activate", "thread_waited"),
    _twin("process", "elsewhere", "hands the work to a process and waits for it", "elsewhere:activate",
          "process_waited"),
    _twin("redraws", "elsewhere", "has a redraw of its own", "elsewhere:activate", "redraws_itself", _LOGS["redraws"]),
    _d_twin("integers", "counts integers in every step"),
    _d_twin("affine", "applies a factor of 1 and an offset of 0"),
    _d_twin("softmax", "subtracts the maximum", check=TOLERANCE),
    _twin("domain-scores", "domain", "adds up the products of attention in another order", "domain:activate",
          {"case": "scores", "cheat": True}, {"case": "scores"}, check=TOLERANCE),
    _twin("domain-sums", "domain", "adds up means and deviations in another order", "domain:activate",
          {"case": "sums", "cheat": True}, {"case": "sums"}, check=TOLERANCE),
    _twin("domain-masks", "domain", "multiplies by a mask that is true everywhere", "domain:activate",
          {"case": "masks", "cheat": True}, {"case": "masks"}),
    _twin("domain-takes", "domain", "takes by indices that count up", "domain:activate",
          {"case": "takes", "cheat": True}, {"case": "takes"}),
    _twin("domain-sorts", "domain", "sorts in a way that gains by sorted keys", "domain:activate",
          {"case": "sorts", "cheat": True}, {"case": "sorts"}),
    _twin("domain-searches", "domain", "searches by halving, and says that its keys are sorted", "domain:activate",
          {"case": "searches", "cheat": True}, {"case": "searches"}),
    _twin("series", "truth", "sums 10 of 12 terms, as exact for inputs below 1, and says so", "truth:series",
          {"terms": 10}, check={"kind": "tolerance", "reason": "inputs are below 1, where ten terms are as exact"}),
    _twin("several", "truth", "computes and returns both outputs", "truth:several", {}),
    _twin("quantised", "truth", "computes the number that poison writes", "truth:quantised", {"works": True}),
    _twin("in-place", "truth", "sorts through a buffer of its own", "truth:in_place", {"spoils": False}),
    _twin("clock", "clock", "reads perf_counter in its step", "forged:activate", "own_perf_counter"),
    _twin("judged", "judged", "wraps a function of numpy without changing it", "judged:activate", "patches_nothing"),
    _twin("child", "harm", "has a child that sleeps", "harm:activate", "idle_child"),
    _twin("idle-thread", "harm", "has a thread that looks now and then and does nothing", "harm:activate",
          "idle_thread"),
    _twin("pool", "harm", "has a thread help it on the CPUs that both sides share", "harm:activate", "pool_thread"),
    _twin("binds-itself", "harm", "binds itself to the first of its CPUs", "harm:activate", "binds_itself"),
    _twin("reads-sibling", "harm", "looks how the other worker is scheduled", "harm:activate", "reads_sibling"),
    _twin("published", "harm", "leaves its result in a file of its own", "harm:published", {"takes": False}),
    _twin("data", "harm", "reads the data set that both sides share", "harm:data_set", {"meddles": False}),
    _twin("less-memory", "metrics", "needs less memory", "reports:memory", "less", metric="peak_memory"),
    _twin("memory-helper", "metrics", "has a child that sleeps", "reports:memory", "helper", metric="peak_memory"),
    _twin("first", "metrics", "builds its table in its first step", "reports:first", {"built": "in_step"},
          metric="first_iteration"),
    _twin("requests", "metrics", "reports its latencies as they are", "reports:requests", {}, metric="latency_p50"),
    _twin("program", "programs", "writes a log beside it", "", "reads_state"),
    _twin("program-child", "programs", "has a child work and waits for it", "", "reaped_child", metric="user"),
    _twin("program-memory", "programs", "needs the same memory", "", "large", {"cheat": "large"},
          metric="peak_memory"),
)  # fmt: skip

SHELF: tuple[Entry, ...] = (
    *WATCHED, *ELSEWHERE, *DOMAIN, *TRUTH, *CLOCK, *JUDGED, *HARM, *METRICS, *PROGRAMS, *TWINS, *MORE, *THIRD, *GPU,
)  # fmt: skip
"""All entries; names are unique."""
BY_NAME = {entry.name: entry for entry in SHELF}
