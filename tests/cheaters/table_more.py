"""The second part of the shelf: cheats that were written later, by somebody who had read the defences.

What must not live here: the sides themselves (sides/), and the first part (table.py).
"""

from __future__ import annotations

from typing import Any

from tests.cheaters.entries import Entry

ACCIDENT: Any = "accident"


def _of(workload: str, group: Any, **common: Any) -> Any:
    def entry(name: str, does: str, cheat: str, **more: Any) -> Entry:
        return Entry(name, group, does, workload, {"cheat": cheat}, **{**common, **more})

    return entry


_m = _of("memos:activate", "watched", twin="honest-compares")
_k = _of("hooks:activate", "elsewhere", twin="honest-two-buffers")
_c = _of("meddling:activate", "clock", twin="honest-reads-frame")
_n = _of("meddling:activate", "harm", twin="honest-lists-neighbours")

MEMOS = (
    _m("memo-kept-all", "keeps every result that it ever had", "kept_all", intent=ACCIDENT),
    _m("memo-ring-of-two", "keeps its last two results by the bytes of the input", "ring_of_two", intent=ACCIDENT),
    _m("memo-by-sum", "keeps results by the sum of the input", "by_sum", intent=ACCIDENT),
    _m("memo-by-shape", "keeps results by shape and type of the input", "by_shape", intent=ACCIDENT),
    _m("memo-dirty-rows", "solves only rows that have changed since the last call", "dirty_rows", intent=ACCIDENT),
    _m("memo-rows-seen", "keeps the result of every row", "rows_seen", intent=ACCIDENT),
    _m("memo-intact-output", "does nothing while input and output are as it left them", "intact_output",
       intent=ACCIDENT),
    _m("memo-warm-flag", "works for the first hundred steps only", "warm_flag", intent=ACCIDENT),
    _m("memo-block-by-block", "refreshes an eighth of its output in each step", "block_by_block", intent=ACCIDENT),
    _m("memo-two-percent", "leaves out one step in fifty", "two_percent"),
    _m("memo-random-tenth", "leaves out a tenth of its steps at random", "random_tenth"),
    _m("memo-quarter-of-rows", "keeps a quarter of its result", "quarter_of_rows", twin="honest-block-and-rest",
       intent=ACCIDENT),
    _m("memo-half-time", "keeps its result and spins for half of the honest time", "half_time"),
    _m("memo-nine-tenths", "keeps its result and spins for nine tenths of the honest time", "nine_tenths"),
    _m("memo-uneven-time", "keeps its result and spins for a share of the honest time that varies", "uneven_time"),
    _m("memo-long-after-change", "does so, and works for fifty steps after its input has changed",
       "long_after_change"),
    _m("memo-long-after-hooks", "does so, and works for fifty steps after inputs() or outputs() was called",
       "long_after_hooks"),
    _m("memo-after-pause", "does so, and works where the last step ended a fifth of a millisecond ago",
       "after_pause"),
    _m("memo-seen-around", "does so, and works where a caller has something to do around the step", "seen_around"),
    _m("memo-settles-late", "does so from its hundredth step on", "settles_late"),
)  # fmt: skip

HOOKS = (
    _k("hooks-lazy-mapping", "shows outputs that are computed when one is taken out", "lazy_mapping",
       intent=ACCIDENT),
    _k("hooks-lazy-iterator", "shows outputs that are computed when they are gone through", "lazy_iterator"),
    _k("hooks-in-values", "works in values()", "in_values"),
    _k("hooks-in-latencies", "works in latencies()", "in_latencies"),
    _k("hooks-in-counters", "works in counters()", "in_counters"),
    _k("hooks-in-reset", "works in reset()", "in_reset"),
    _k("hooks-half-in-prepare", "works half in prepare()", "half_in_prepare", twin="honest-prepares",
       intent=ACCIDENT),
    _k("hooks-pipelined", "hands on the result of the step before", "pipelined", intent=ACCIDENT),
    _k("hooks-half-not-waited", "leaves half of the work to a thread that nobody waits for", "half_not_waited",
       intent=ACCIDENT),
    _k("hooks-dirty-flag", "works when its own redraw has marked the input as written to", "dirty_flag",
       plain={"cheat": "none"}, intent=ACCIDENT),
    _k("hooks-result-view", "works in every second step and shows that result after the other one, too",
       "result_view", intent=ACCIDENT),
    _k("hooks-half-in-outputs", "works half in outputs()", "sleeps_in_outputs"),
)  # fmt: skip

MEDDLING = (
    _c("clock-restores-itself", "puts in a slow clock that takes itself away when it was read", "restores_itself"),
    _c("clock-small-forgery", "does so, and takes off 7 % only", "small_forgery"),
    _c("clock-frame-start", "moves the start of the reading in the frame of its caller", "frame_start"),
    _c("clock-json", "scales readings in what is encoded for the pipe", "os_write"),
    _c("clock-repeat", "has the clock count fewer iterations", "repeat"),
    _c("clock-thread-time", "has the clock read a time that does not count sleep", "thread_clock"),
    _n("harm-neighbour-memory", "copies results out of the memory of the other worker", "neighbour_memory"),
    _n("harm-timer-slack", "gives the other worker a timer slack of 50 ms", "timer_slack"),
    _n("harm-limits", "lowers limits of the other worker", "limits"),
    _n("harm-orphan", "has a process outside of its family compute in the other side's turns", "orphan_hog"),
    _n("harm-batch-class", "puts the other worker into the batch class", "batch_class"),
    _n("harm-evicts-untimed", "writes over the caches in values(), before the other side's turn", "evicts_untimed"),
    _n("harm-dirty-pages", "has a child write to disk in the other side's turns", "dirty_pages"),
)  # fmt: skip


def _a(case: str, does: str, group: Any = "domain", **more: Any) -> Entry:
    sides = {"case": case, "cheat": True}, {"case": case, "cheat": False}
    more = {"intent": ACCIDENT, "twin": "honest-assumed-small", "check": "tolerance", **more}
    return Entry(f"assumed-{case}".replace("_", "-"), group, does, "assumed:activate", *sides, **more)


_t = _of("harm:activate", "harm")
_LARGE = {"items": 1 << 19}

SCHEDULED = (
    _t("harm-thread-slack", "gives threads of the other worker a timer slack of 50 ms", "thread_slack",
       plain={"cheat": "pool_thread"}, twin="honest-pool"),
    _t("harm-own-slack", "has its own timers come early, by which it looks whether its thread is ready", "own_slack",
       plain={"cheat": "polls"}, twin="honest-polls"),
    _t("harm-fifo-child", "has a child help it with a real-time priority", "fifo_child",
       plain={"cheat": "child_helps"}, twin="honest-child-helps"),
    Entry("harm-returns", "harm", "has a thread work outside of the CPUs that both sides share, and return",
          "harm:activate", {"cheat": "leaves_and_returns", **_LARGE}, {"cheat": "pool_thread", **_LARGE}, "purpose",
          "honest-pool"),
)  # fmt: skip

ASSUMED = (
    _a("positive", "leaves out an absolute value, because all numbers are positive", check="bitwise"),
    _a("small", "returns its input as the sine of small numbers"),
    _a("equal_rows", "solves the first of rows that are all the same", check="bitwise"),
    _a("symmetric", "solves half of a matrix that is symmetric", check="bitwise"),
    _a("one_hot", "looks up what a product with unit rows gives"),
    _a("sparse", "solves only the places of a mask, which it looked up in set-up"),
    _a("taylor", "uses three terms of a series"),
    _a("half_precision", "computes in float32 and returns float64", "truth"),
    _a("rounded", "looks its results up in a table of a thousand values", "truth"),
    _a("scaled_sum", "averages every second number under a tolerance of 5 %", "truth",
       check={"kind": "tolerance", "rtol": 0.05}),
    _a("weak_check", "solves a sixteenth, and its own check compares means", "truth",
       check={"kind": "named", "name": "close"}),
    _a("zero_bias", "leaves out a bias of zeros"),
    _a("padding", "writes the answer for padding that is all zeros"),
    _a("all_nan", "does nothing, because the answer is not a number anywhere", "truth", check="bitwise",
       intent="purpose"),
)  # fmt: skip


def _p(name: str, does: str, cheat: str, **more: Any) -> Entry:
    return Entry(f"program-{name}", "programs", does, "", {"cheat": cheat}, **{"twin": "honest-program", **more})


PROGRAMS = (
    _p("by-pad", "knows the answer where its environment is padded", "by_pad"),
    _p("by-pipe", "works only where its output goes to a pipe", "by_pipe"),
    _p("home-memo", "keeps its answer in a folder for temporary files", "home_memo", intent=ACCIDENT),
    _p("stealth-memo", "keeps its answer on disk and spins for 70 % of the honest time", "stealth_memo"),
    _p("random-skip", "prints zeros in three runs of ten", "random_skip"),
    _p("works-later", "closes its output first and works on behind", "works_later", intent=ACCIDENT),
    _p("fifo-child", "has a child do the work with a real-time priority", "fifo_child",
       plain={"cheat": "reaped_child"}, twin="honest-program-helped"),
    _p("linked-output", "opens the standard output of the other side's last run", "linked_output"),
)  # fmt: skip


def _twin(name: str, group: Any, does: str, workload: str, cheat: str, **more: Any) -> Entry:
    return Entry(f"honest-{name}", group, does, workload, {"cheat": cheat}, {"cheat": "none"}, honest=True, **more)


TWINS = (
    _twin("compares", "watched", "compares its input with the last one and works", "memos:activate",
          "compares_and_works"),
    _twin("block-and-rest", "watched", "solves a quarter and then the rest", "memos:activate", "block_and_rest"),
    _twin("two-buffers", "elsewhere", "writes two results in turn and shows the last one", "hooks:activate",
          "two_buffers"),
    _twin("gives-counters", "elsewhere", "has counters and a reset", "hooks:activate", "values_and_works"),
    _twin("reads-frame", "clock", "looks who called it", "meddling:activate", "reads_own_frame"),
    _twin("garbage", "clock", "leaves garbage", "meddling:activate", "gc_collects"),
    _twin("lists-neighbours", "harm", "reads what the kernel says of the other worker", "meddling:activate",
          "lists_neighbours"),
    _twin("polls", "harm", "looks every 50 microseconds whether its thread is ready", "harm:activate", "polls"),
    _twin("child-helps", "harm", "has a child solve half of the problem", "harm:activate", "child_helps"),
    Entry("honest-program-helped", "programs", "has a child do the work", "", {"cheat": "reaped_child"},
          {"cheat": "reaped_child"}, honest=True),
    Entry("honest-assumed-small", "domain", "takes the sine of small numbers", "assumed:activate", {"case": "small"},
          {"case": "small"}, honest=True, check="tolerance"),
    Entry("honest-assumed-narrow", "domain", "sums in 16 bits, which are enough for all of its numbers",
          "assumed:activate", {"case": "narrow", "cheat": True}, {"case": "narrow"}, honest=True),
    Entry("honest-assumed-one-hot", "domain", "multiplies with unit rows", "assumed:activate", {"case": "one_hot"},
          {"case": "one_hot"}, honest=True, check="tolerance"),
)  # fmt: skip

MORE = (*MEMOS, *HOOKS, *MEDDLING, *SCHEDULED, *ASSUMED, *PROGRAMS, *TWINS)
"""All of them."""
