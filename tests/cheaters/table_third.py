"""The third part of the shelf: cheats in steps that nobody looks at, and of what both sides share.

What must not live here: the sides themselves (sides/), and the other parts (table.py, table_more.py).
"""

from __future__ import annotations

from typing import Any

from tests.cheaters.entries import Entry

ACCIDENT: Any = "accident"


def _q(name: str, does: str, cheat: str, other: str = "none", **more: Any) -> Entry:
    given = {"twin": "honest-counts-calls", **more}
    return Entry(f"quiet-{name}", "watched", does, "quiet:activate", {"cheat": cheat}, {"cheat": other}, **given)


QUIET = (
    _q("polite", "leaves out one step in eight, but none soon after a call and none that finds poison", "polite"),
    _q("polite-redraws", "does so, and has a redraw of its own", "polite_redraws", "redraws", twin="honest-own-redraw"),
    _q("after-call", "works in two steps after it was called, and idles for 60 % of the time in others", "after_call"),
    _q("on-poison", "works where its output is poisoned, and idles elsewhere", "on_poison"),
    _q("on-redraw", "works in four steps after its redraw, and idles elsewhere", "on_redraw", "redraws",
       twin="honest-own-redraw"),
    _q("long-memo", "keeps its result of a long step, and idles for 60 % of the time", "long_memo", "long_works",
       twin="honest-long"),
    _q("scheduled-memo", "does so in steps of a schedule of its own", "scheduled_memo", "scheduled_works",
       twin="honest-scheduled"),
    _q("slow-admission", "takes a result into its cache once it was asked for forty times", "slow_admission",
       intent=ACCIDENT),
    Entry("quiet-finishes", "elsewhere", "computes half of its output when that is asked for, and a guess before",
          "quiet:activate", {"cheat": "finishes_in_outputs"}, {"cheat": "none"}, ACCIDENT, "honest-fills"),
    Entry("quiet-ranks", "watched", "keeps its result by a checksum on each of two ranks", "shared:ranks",
          {"keeps": True, "ranks": 2}, {"keeps": False, "ranks": 2}, ACCIDENT, "honest-ranks"),
)  # fmt: skip


def _u(case: str, does: str, group: Any = "domain", twin: str = "honest-sorts-keys", **more: Any) -> Entry:
    sides = {"case": case, "cheat": True}, {"case": case, "cheat": False}
    name = f"unseen-{case}".replace("_", "-")
    return Entry(name, group, does, "unseen:activate", *sides, ACCIDENT, twin, **more)


UNSEEN = (
    _u("decoy", "names an input that nothing depends on, and not the one that it knows from set-up"),
    _u("factor", "names the factor of a vector whose functions it knows from set-up"),
    _u("sorted_keys", "copies sorted keys, because redrawn ones have another order only"),
    _u("sum_of_keys", "knows sum, smallest and largest of such keys"),
    _u("checker", "says that all numbers are finite, because they are", twin="honest-bounds"),
    _u("quarter_mean", "averages every fourth number, in float16", "truth", "honest-four-means", check="tolerance"),
    _u("born_layer", "leaves out weights of ones and zeros that are not named as inputs", check="tolerance"),
)

SHARED = (
    Entry("shared-store", "harm", "takes results that the other side has left in a folder of both", "shared:store",
          {"takes": True}, {"takes": False}, ACCIDENT, "honest-store"),
    Entry("shared-store-redraws", "harm", "does so, and both sides redraw their inputs", "shared:store",
          {"takes": True, "own_redraw": True}, {"takes": False, "own_redraw": True}, ACCIDENT, "honest-store"),
    Entry("shared-process", "harm", "takes results that the other side has left in the process of both",
          "shared:one_process", {"takes": True}, {"takes": False}, ACCIDENT, "honest-one-process",
          measure={"isolation": "in_process"}),
    Entry("clock-own-runner", "clock", "gives its runner a slow clock that says it repeated readings", "shared:clock",
          {"cheat": "own_clock"}, {"cheat": "none"}, twin="honest-finds-runner"),
    Entry("metrics-own-rate", "metrics", "reports a rate that is 1.3 times its own", "shared:served", {"cheat": True},
          {"cheat": False}, twin="honest-rate", metric="rate"),
)  # fmt: skip


def _p(name: str, does: str, cheat: str, plain: str = "", **more: Any) -> Entry:
    given = {"intent": ACCIDENT, "twin": "honest-program", **more}
    return Entry(f"program-{name}", "programs", does, "", {"cheat": cheat}, {"cheat": plain} if plain else {}, **given)


PROGRAMS = (
    _p("checkpoint", "begins where its first run has left a checkpoint, after 30 % of the work", "checkpoint"),
    _p("stealth-rewrites", "keeps its answer, writes it anew in every run and idles for 75 % of the honest time",
       "stealth_rewrites", intent="purpose"),
    _p("to-file", "writes zeros into a file that nobody compares", "zeros_to_file", "solves_to_file"),
    _p("to-named-file", "writes zeros into a file that is compared", "zeros_to_file", "solves_to_file",
       twin="honest-to-file", file="result"),
)  # fmt: skip


def _twin(name: str, group: Any, does: str, workload: str, cheat: Any, plain: Any = None, **more: Any) -> Entry:
    chosen = {"cheat": cheat} if isinstance(cheat, str) else cheat
    return Entry(f"honest-{name}", group, does, workload, chosen, plain or chosen, honest=True, **more)


TWINS = (
    _twin("counts-calls", "watched", "counts how often it is called", "quiet:activate", "counts_calls",
          {"cheat": "none"}),
    _twin("own-redraw", "watched", "has a redraw of its own", "quiet:activate", "redraws"),
    _twin("long", "watched", "takes long", "quiet:activate", "long_works"),
    _twin("scheduled", "watched", "follows a schedule of its own", "quiet:activate", "scheduled_works"),
    _twin("fills", "elsewhere", "fills its output before it computes it", "quiet:activate", "fills_and_works",
          {"cheat": "none"}),
    _twin("ranks", "watched", "meets another rank in every step", "shared:ranks", {"keeps": False, "ranks": 2}),
    _twin("sorts-keys", "domain", "sorts keys of which each occurs once", "unseen:activate", {"case": "sorted_keys"}),
    _twin("bounds", "domain", "compares the smallest and the largest number with a bound", "unseen:activate",
          {"case": "bounds", "cheat": True}, {"case": "bounds", "cheat": False}),
    _twin("four-means", "truth", "averages the means of four quarters, in float16", "unseen:activate",
          {"case": "four_means", "cheat": True}, {"case": "four_means", "cheat": False}, check="tolerance"),
    _twin("store", "harm", "leaves its results in a folder of both", "shared:store", {"takes": False}),
    _twin("one-process", "harm", "leaves its results in the process of both", "shared:one_process", {"takes": False},
          measure={"isolation": "in_process"}),
    _twin("finds-runner", "clock", "goes through all objects of its process", "shared:clock", "looks",
          {"cheat": "none"}),
    _twin("to-file", "programs", "writes its result into a file", "", "solves_to_file", file="result"),
    _twin("rate", "metrics", "reports its own rate", "shared:served", {"cheat": False}, metric="rate"),
)  # fmt: skip

THIRD = (*QUIET, *UNSEEN, *SHARED, *PROGRAMS, *TWINS)
"""All of them."""
