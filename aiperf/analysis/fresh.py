"""Iterations on new inputs against those on known ones: an advantage that repetition alone gives is none.

What must not live here: taking readings, wording.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.pairs import counted, done_outside, per_iteration, reading, side_run, valid
from aiperf.records import Case, Note, Pair, Result

FEWEST_PAIRS, FEWEST_READINGS = 2, 3
ONE_PROBE = 12
"""Single iterations of a kind in a pair, at most, that was probed once. Two pairs with more, because a side was
suspected, say more than those before them."""
LEAST_ADVANTAGE = 0.05
"""Of one side over the other on known inputs, as a log ratio: a smaller one is no claim that could be false."""
LEAST_TIMED = LEAST_ADVANTAGE / 2
"""Of the same in what is timed: the advantage that single iterations show must be seen there as well."""
LEAST_LOSS = 0.08
LOST_SHARE = 0.5
"""Of the advantage. Real work may gain from inputs that it has met - branches that a CPU has learnt - but not most of
its advantage."""
IN_MOST = 0.5
"""Of the loss, that all but a quarter of the pairs show; of three, all of them."""
STANDARD_ERRORS = 4.0
SUSPECTED = 0.25
"""Of what a loss must come to, in its share and its standard errors, to be a finding: from there on it is a reason to
look more closely."""
LEAST_ERROR = 0.01
FEW = 2.0
"""A spread from so many readings is taken as twice as large."""
SCATTERING_PAIRS, NORMAL, MEDIAN = 6, 1.4826, 1.2533
"""Pairs from which on their scatter says how far off the median may be; and, in normal noise, the standard deviation in
median deviations, and the standard error of a median in that of a mean."""
QUARTILE = 1.86
"""Variance of a lower quartile in that of a mean, in normal noise."""
BETWEEN = 2.0 / STANDARD_ERRORS
"""Of the standard error by what launches have of their own, which no number of readings of one launch shows: an honest
step of 144 to 185 µs lost -0.29 to 0.10 of its time on new inputs in six launches that each gave a standard error of
0.02 to 0.06, and was accused once in 13 sessions."""
LEAST_SECONDS = 3e-6
"""A difference in time below this says nothing: on one machine, an honest step of 2 µs took 1.1 to 1.3 µs longer after
its inputs had been swapped than in a row, and was accused for it in 5 of 45 quiet sessions."""
BATCH_SHARE, BATCH_LEAST_S = 0.45, 20e-6
"""Of an advantage in timed batches that single iterations on known inputs lose, and the shortest step of which that is
said: a reading of one costs something itself."""


BATCH_DOUBTED = 0.8
"""Of the advantage, that strict mode refuses without a reason. Four cases of the reference runs have the note; none of
them would be refused."""

LONG_S, FEWEST_AUDITED, LEAST_AUDITED = 20e-3, 4, 0.15
"""Steps so long that caches which are cold after a redraw hardly lengthen them, pairs that must hold an audit of one
step, and the loss in it that says something: there single iterations on new inputs are few, or none."""
FEWEST_ROUNDS, LEAST_SINCE_START = 3, math.log(2)
"""Pairs whose rounds say something, and the loss from the first round on that does. Honest sides whose schedules are
drawn anew lost 0.31 of an advantage at most, looked at 1,552 times in the reference runs."""


@dataclass(frozen=True)
class _Both:
    """One side's iterations, natural logarithms of seconds, medians over the pairs: on a busy host, those of one pair
    may be of no use."""

    fresh: float
    again: float
    error: float
    """Standard error of fresh - again."""

    penalty: float
    """fresh - again by the lower quartiles of each pair or by its medians, whichever is less: of a few readings both
    scatter, by chance seldom to the same side."""

    in_most: float
    """fresh - again that nearly every pair shows: what the host does to all readings of one pair, as where it takes the
    page cache away, another pair does not repeat."""

    @property
    def penalty_s(self) -> float:
        return math.exp(self.fresh) - math.exp(self.again)


def suspicion(pairs: Sequence[Pair], case: Case) -> Note | None:
    """The first side that loses so much of its advantage on new inputs that it may be a finding with more readings, but
    is none yet."""
    for side in (side.name for side in case.sides):
        note = fresh_note(pairs, case, side, bound=SUSPECTED)
        if note is not None and fresh_note(pairs, case, side) is None:
            return Note("suspected", note.values)
    return None


def fresh_note(pairs: Sequence[Pair], case: Case, side: str, *, bound: float = 1.0) -> Note | None:
    """The finding that ``side`` or the base loses at least half of its advantage over the other on inputs that it has
    not met before, be it in single iterations or in the rounds after an audit; None where neither does, or where too
    little was timed to say so. Of ranks only single iterations say something, and on GPUs they do not. ``bound``: share
    of what a loss must come to, in its share of the advantage and its standard errors."""
    gang = any(each.ranks > 1 for each in case.sides)
    base, used = case.sides[0].name, valid(pairs)
    if base == side or not used or case.is_command or (gang and case.needs.gpus):
        return None
    # The last of each: whether the advantage must be in all that is timed, too; that of the first round cannot be.
    looks: list[tuple[_Look, int, float, bool]] = [
        (_singles, FEWEST_PAIRS, LEAST_LOSS, True),
        (_cpu, FEWEST_PAIRS, LEAST_LOSS, True),
    ]
    field = "" if gang else reading(used, case, metric=DEFAULT_METRIC).field
    if field:
        looks += [
            (partial(_around_audits, field), FEWEST_ROUNDS, LEAST_LOSS, True),
            (partial(_since_start, field), FEWEST_ROUNDS, LEAST_SINCE_START, False),
        ]
    for look, fewest, least, everywhere in looks:
        shown = _probed_often(used, base, side) if look in (_singles, _cpu) else used
        theirs, mine = (_side(shown, name, look, fewest, among=used) for name in (base, side))
        if not (mine and theirs):
            continue
        for one, name, other, against in ((mine, side, theirs, base), (theirs, base, mine, side)):
            note = _loss(one, other, name, least, bound)
            if note and (not everywhere or _is_faster(used, name, against, field)):
                return note
    mine, theirs = (_audited_steps(used, name, field) for name in (side, base)) if field else (None, None)
    if not mine or not theirs:
        return None
    return _loss(mine, theirs, side, LEAST_AUDITED, bound) or _loss(theirs, mine, base, LEAST_AUDITED, bound)


def _probed_often(pairs: Sequence[Pair], *sides: str) -> Sequence[Pair]:
    """The pairs that were probed more than once, if there are enough of them; else all."""
    often = [
        pair for pair in pairs if all(min(map(len, _singles(pair, side)), default=0) > ONE_PROBE for side in sides)
    ]
    return often if len(often) >= FEWEST_PAIRS else pairs


def _is_faster(pairs: Sequence[Pair], mine: str, theirs: str, field: str) -> bool:
    """Whether ``mine`` has an advantage in what is timed, too: a few readings of equal sides, on a busy host, may show
    one that nobody claims. True where nothing is timed that says so, as of ranks."""
    logs = []
    for pair in pairs if field else ():
        own, other = (_logs(per_iteration(counted(pair, side, field), field)) for side in (mine, theirs))
        if own and other:
            logs.append(statistics.median(other) - statistics.median(own))
    return not logs or statistics.median(logs) >= LEAST_TIMED


_Look = Callable[[Pair, str], tuple[Sequence[float], Sequence[float]]]
"""Seconds of an iteration of a side in a pair, on new inputs and on known ones."""


def _singles(pair: Pair, side: str) -> tuple[Sequence[float], Sequence[float]]:
    run = side_run(pair, side)
    return (run.fresh_s, run.again_s) if run else ((), ())


def _cpu(pair: Pair, side: str) -> tuple[Sequence[float], Sequence[float]]:
    """CPU time of the same iterations; it does not include the time in which ranks wait for each other."""
    run = side_run(pair, side)
    return (run.fresh_cpu_s, run.again_cpu_s) if run else ((), ())


def _around_audits(field: str, pair: Pair, side: str) -> tuple[Sequence[float], Sequence[float]]:
    """In the rounds that follow an audit's, which has redrawn the inputs, and in those that an audit ends: so shows who
    works for a while after anything has changed."""
    audited = _audited(pair, side)
    after = [s for s in counted(pair, side, field) if s.round - 1 in audited]
    until = [s for s in counted(pair, side, field) if s.round in audited and s.round - 1 not in audited]
    return per_iteration(after, field), per_iteration(until, field)


def _since_start(field: str, pair: Pair, side: str) -> tuple[Sequence[float], Sequence[float]]:
    """In the rounds after the first audit, and in the first round of all, before anybody has redrawn the inputs: so
    shows who has made ready in set-up for those of set-up."""
    first = min(_audited(pair, side), default=math.inf)
    later = [s for s in counted(pair, side, field) if s.round > first]
    return per_iteration(later, field), per_iteration([s for s in counted(pair, side, field) if s.round == 0], field)


def _audited_steps(pairs: Sequence[Pair], name: str, field: str) -> _Both | None:
    """Audits of one long step, which each meet new inputs, as single iterations, against those that are timed. None of
    short steps, and where few pairs have such."""
    logs = []
    for pair in pairs:
        audits = [s for s in pair.samples if s.side == name and s.audit and s.iterations == 1 and getattr(s, field)]
        plain = _logs(per_iteration(counted(pair, name, field), field))
        if (single := _logs(per_iteration(audits, field))) and plain:
            logs.append((min(single), statistics.median(plain)))
    if len(logs) < FEWEST_AUDITED:
        return None
    fresh, again = (statistics.median(column) for column in zip(*logs, strict=True))
    by_pair = [single - plain for single, plain in logs]
    if again < math.log(LONG_S):
        return None
    return _Both(fresh, again, _scatter(by_pair), statistics.median(by_pair), _typical(by_pair))


def _audited(pair: Pair, side: str) -> set[int]:
    return {s.round for s in pair.samples if s.side == side and s.audit}


def batch_notes(pairs: Sequence[Pair], case: Case, results: Sequence[Result]) -> Iterator[Note]:
    """A note on each side that is better in time by its verdict, and hardly so when steps are timed one by one: it may
    be that it works only where it thinks that somebody looks, or that the clock of long readings is not to be trusted.
    Honest steps that overlap with the next one are like that as well."""
    used = valid(pairs)
    if case.is_command or not used or any(side.ranks > 1 for side in case.sides):
        return
    field = reading(used, case, metric=DEFAULT_METRIC).field
    for result in (r for r in results if r.comparison.metric == DEFAULT_METRIC):
        sides = {"improved": (result.side, result.against), "regressed": (result.against, result.side)}
        if (ratios := _batches_only(used, *sides.get(result.verdict.word, ("", "")), field)) is not None:
            side, against = sides[result.verdict.word]
            yield Note("batches_only", {"side": side, "against": against, **ratios})


def batch_doubts(pairs: Sequence[Pair], case: Case) -> Iterator[Note]:
    """The same of each side against the base, and of the base against an only other side, whatever the verdict; where
    hardly anything of the advantage is left."""
    used, base = valid(pairs), case.sides[0].name
    if case.is_command or not used or any(side.ranks > 1 for side in case.sides):
        return
    others, field = [side.name for side in case.sides[1:]], reading(used, case, metric=DEFAULT_METRIC).field
    for mine, theirs in [(side, base) for side in others] + [(base, side) for side in others[:1] if len(others) == 1]:
        ratios = _batches_only(used, mine, theirs, field)
        if ratios and math.log(ratios["single"]) <= (1 - BATCH_DOUBTED) * math.log(ratios["batches"]):
            yield Note("batches_only", {"side": mine, "against": theirs, **ratios, **done_outside(used, mine)})


def _batches_only(pairs: Sequence[Pair], mine: str, theirs: str, field: str) -> dict[str, float] | None:
    gains = [gain for pair in pairs if (gain := _gain(pair, mine, theirs, field)) is not None]
    if len(gains) < FEWEST_PAIRS:
        return None
    everywhere = [_in_batches(pair, mine, theirs, field) for pair in pairs]
    in_all = statistics.median(each for each in everywhere if each is not None)
    # Not more than what all pairs show, of which only some were timed step by step.
    batches = min(statistics.median(gain.batches for gain in gains), in_all)
    losses = [gain.batches - gain.single for gain in gains]
    loss = min(statistics.median(losses), batches - statistics.median(gain.single for gain in gains))
    error = _few(min(gain.readings for gain in gains)) * math.sqrt(sum(gain.square for gain in gains)) / len(gains)
    least = max(LEAST_LOSS, BATCH_SHARE * batches, STANDARD_ERRORS * error)
    if loss <= least or _typical(losses) <= IN_MOST * loss or batches < LEAST_ADVANTAGE:
        return None
    return {"batches": math.exp(batches), "single": math.exp(batches - loss)}


@dataclass(frozen=True)
class _Gain:
    """By how much a side is faster in a pair, as log ratios: in timed batches, and in single iterations on known
    inputs."""

    batches: float
    single: float
    square: float
    """Of the standard error of ``single``."""
    readings: int


def _gain(pair: Pair, mine: str, theirs: str, field: str) -> _Gain | None:
    """Of ``mine`` over ``theirs``; None where too few iterations were timed."""
    runs = [side_run(pair, side) for side in (mine, theirs)]
    singles = [_logs(run.again_s) for run in runs if run is not None]
    batches = _in_batches(pair, mine, theirs, field)
    if batches is None or len(singles) < 2 or min(map(len, singles)) < FEWEST_READINGS:
        return None
    square = sum(_spread(each) ** 2 / len(each) for each in singles)
    return _Gain(batches, _typical(singles[1]) - _typical(singles[0]), square, min(map(len, singles)))


def _in_batches(pair: Pair, mine: str, theirs: str, field: str) -> float | None:
    plain = [per_iteration(counted(pair, side, field), field) for side in (mine, theirs)]
    if not all(plain):
        return None
    own, other = (statistics.median(each) for each in plain)
    return math.log(other / own) if own > 0 and other >= BATCH_LEAST_S else None


def _few(readings: int) -> float:
    """Times a spread from so many readings, which may as well be too small."""
    return 1 + FEW / readings


def _loss(mine: _Both, theirs: _Both, name: str, least: float, bound: float) -> Note | None:
    # What new inputs cost the other side as well is no loss; that they cost it nothing, or less, accuses nobody.
    advantage, loss = theirs.again - mine.again, mine.penalty - max(theirs.penalty, 0.0)
    error = max(LEAST_ERROR, math.hypot(mine.error, theirs.error))
    least = bound * max(least, LOST_SHARE * advantage, STANDARD_ERRORS * error)
    rare = mine.in_most < bound * IN_MOST * mine.penalty
    if rare or advantage < LEAST_ADVANTAGE or loss < least or mine.penalty_s < LEAST_SECONDS:
        return None
    return Note("fresh_inputs", {"side": name, "fresh_s": math.exp(mine.fresh), "repeated_s": math.exp(mine.again)})


def _read(pairs: Sequence[Pair], name: str, look: _Look) -> list[tuple[list[float], list[float]]]:
    read = [look(pair, name) for pair in pairs]
    logs = [(_logs(fresh), _logs(again)) for fresh, again in read]
    return [both for both in logs if min(map(len, both)) >= FEWEST_READINGS]


def _side(pairs: Sequence[Pair], name: str, look: _Look, fewest: int, *, among: Sequence[Pair]) -> _Both | None:
    """``among``: all pairs, of which ``pairs`` are those that say most."""
    logs = _read(pairs, name, look)
    if len(logs) < fewest:
        return None
    squares = sum(map(_square, logs))
    fresh, again = (statistics.median(_typical(both[i]) for both in logs) for i in (0, 1))
    by_pair = [_typical(both[0]) - _typical(both[1]) for both in logs]
    by_medians = [statistics.median(both[0]) - statistics.median(both[1]) for both in logs]
    penalty = min(statistics.median(by_pair), statistics.median(by_medians))
    few = _few(min(sum(len(both[i]) for both in logs) for i in (0, 1)))
    error, in_most = min(few * math.sqrt(squares) / len(logs), _error(by_pair)), _typical(by_pair)
    all_logs = _read(among, name, look)
    every = [_typical(fresh) - _typical(again) for fresh, again in all_logs]
    between = BETWEEN * _few(len(every)) * _launch_deviation(every, [_square(both) for both in all_logs])
    error, in_most = max(error, between / math.sqrt(len(logs))), min(in_most, _typical(every))
    return _Both(fresh, again, error, penalty, in_most)


def _square(both: tuple[list[float], list[float]]) -> float:
    """Of the standard error of what a pair shows, by how its own readings scatter."""
    return sum(_spread(values) ** 2 / len(values) for values in both)


def _launch_deviation(by_pair: Sequence[float], squares: Sequence[float]) -> float:
    """Standard deviation of what a launch has of its own: how pairs scatter beyond their own readings."""
    return math.sqrt(max(0.0, _deviation(by_pair) ** 2 - QUARTILE * statistics.fmean(squares)))


def _error(by_pair: Sequence[float]) -> float:
    """Standard error of the median of pairs by how they scatter; unknown of few. One of a pair's own readings counts
    in it no more than another, however late it came."""
    if len(by_pair) < SCATTERING_PAIRS:
        return math.inf
    return _scatter(by_pair)


def _scatter(by_pair: Sequence[float]) -> float:
    return (1 + 2 * FEW / len(by_pair)) * MEDIAN * _deviation(by_pair) / math.sqrt(len(by_pair))


def _deviation(by_pair: Sequence[float]) -> float:
    """Standard deviation of pairs by the median of their distances."""
    middle = statistics.median(by_pair)
    return NORMAL * statistics.median(abs(each - middle) for each in by_pair)


def _typical(values: Sequence[float]) -> float:
    """The lower quartile: what keeps a host busy lengthens some iterations, and shortens none."""
    return sorted(values)[len(values) // 4]


def _spread(values: Sequence[float]) -> float:
    """Standard deviation by the distances of the lower half, likewise."""
    middle = statistics.median(values)
    below = [middle - value for value in values if value <= middle]
    return math.sqrt(sum(d * d for d in below) / len(below))


def _logs(seconds: Sequence[float]) -> list[float]:
    return [math.log(each) for each in seconds if each > 0]
