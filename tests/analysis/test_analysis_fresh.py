"""An advantage on known inputs alone: found whatever side has it, and not in the noise of honest sides."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from analysis_maker import SETTINGS, make_case, make_pair, make_run

from aiperf.analysis import fresh
from aiperf.analysis.fresh import batch_doubts, batch_notes, fresh_note, suspicion
from aiperf.analysis.recompute import conclude
from aiperf.records import Case, Coverage, Pair, Sample, SideRun, Verdict

CASE = make_case()


def pairs(*, before=(1e-3, 1e-3), after=(1e-3, 1e-3), noise=0.05, seed=0, count=2, readings=6) -> list[Pair]:
    """Each side's seconds on (new, known) inputs, with log-normal noise."""
    draw = random.Random(seed)

    def times(seconds: float) -> tuple[float, ...]:
        return tuple(seconds * math.exp(draw.gauss(0, noise)) for _ in range(readings))

    made = []
    for index in range(count):
        runs = tuple(
            replace(make_run(side), fresh_s=times(new), again_s=times(known))
            for side, (new, known) in {"before": before, "after": after}.items()
        )
        made.append(make_pair(index, {"before": before[1], "after": after[1]}, runs=runs))
    return made


def found(**given: object) -> str | None:
    note = fresh_note(pairs(**given), CASE, "after")  # type: ignore[arg-type]
    return None if note is None else str(note.values["side"])


@pytest.mark.parametrize("known", [8e-4, 5e-4, 1e-6])
def test_who_is_fast_on_known_inputs_alone_is_found(known: float) -> None:
    assert [found(after=(1e-3, known), seed=seed, readings=10) for seed in range(20)] == ["after"] * 20


def test_a_base_that_is_fast_on_known_inputs_alone_is_found_too() -> None:
    assert found(before=(1e-3, 6e-4)) == "before"


def test_real_work_may_gain_from_known_inputs_as_long_as_most_of_its_advantage_stays() -> None:
    assert found(after=(3.3e-4, 2e-4)) is None


def test_both_sides_may_gain_alike() -> None:
    assert found(before=(2e-3, 1e-3), after=(1e-3, 5e-4)) is None


def test_a_side_that_new_inputs_cost_next_to_nothing_is_not_accused_of_what_the_other_gained_by_them() -> None:
    assert found(before=(1.2e-3, 2.2e-3), after=(8.2e-4, 8e-4), noise=0.01, count=4) is None


def test_no_advantage_is_no_false_claim() -> None:
    assert found(after=(1.2e-3, 1e-3)) is None


@pytest.mark.parametrize(("timed", "who"), [(1e-3, None), (0.985e-3, None), (0.9e-3, "after")])
def test_an_advantage_that_nothing_timed_shows_is_no_claim(timed: float, who: str | None) -> None:
    """Equal sides that leave a file for each new input were accused on a busy host: what they waited for varied."""
    singles = pairs(before=(1.5e-3, 1e-3), after=(2.5e-3, 0.9e-3), noise=0.01, count=4)
    made = [replace(make_pair(i, {"before": 1e-3, "after": timed}), runs=pair.runs) for i, pair in enumerate(singles)]
    note = fresh_note(made, CASE, "after")
    assert (note and note.values["side"]) == who


def test_a_loss_of_a_few_microseconds_says_nothing() -> None:
    """As much as any short step loses that others ran before, on a slow machine."""
    assert found(before=(4.3e-6, 4.2e-6), after=(4.3e-6, 3.0e-6)) is None
    assert found(before=(4.3e-5, 4.2e-5), after=(4.3e-5, 3.0e-5))


@pytest.mark.parametrize("few", [{"count": 1}, {"readings": 2}, {"readings": 0}])
def test_too_few_readings_say_nothing(few: dict[str, int]) -> None:
    assert found(after=(1e-3, 1e-4), **few) is None


@pytest.mark.parametrize("noise", [0.02, *(pytest.param(noise, marks=pytest.mark.long) for noise in (0.1, 0.3))])
def test_honest_sides_with_a_true_advantage_are_not_found(noise: float) -> None:
    flagged = [found(after=(8e-4, 8e-4), noise=noise, seed=seed, readings=4) for seed in range(1000)]
    assert sum(one is not None for one in flagged) <= 3


@pytest.mark.parametrize(("known", "who"), [(5e-4, "after"), (1e-3, None)])
def test_readings_that_a_neighbour_took_the_cpu_from_hide_nobody_in_six_pairs(known: float, who: str | None) -> None:
    """Beside seven busy processes, a reading or two of three took 13 ms instead of one."""

    def late(seconds: tuple[float, ...], count: int) -> tuple[float, ...]:
        return tuple(each + (13e-3 if i < count else 0) for i, each in enumerate(seconds))

    for seed in range(20):
        made = [
            replace(pair, runs=tuple(replace(run, fresh_s=late(run.fresh_s, 1 + n % 2)) for run in pair.runs))
            for n, pair in enumerate(pairs(after=(1e-3, known), seed=seed, count=6, readings=3))
        ]
        note = fresh_note(made, CASE, "after")
        assert (note and note.values["side"]) == who


def probed(known: float, *, honest: bool, seed: int, often: bool) -> list[Pair]:
    """Four pairs with few readings, and, ``often``, two with many, of a side that is as fast on ``known`` inputs."""
    how = {"after": (known if honest else 1e-3, known), "noise": 0.15}
    early = pairs(**how, seed=seed, count=4, readings=4)  # type: ignore[arg-type]
    return early + (pairs(**how, seed=seed + 1000, readings=32) if often else [])  # type: ignore[arg-type]


def test_a_loss_that_few_readings_make_likely_is_suspected_and_many_more_find_it() -> None:
    few, many = ([probed(8e-4, honest=False, seed=seed, often=often) for seed in range(40)] for often in (False, True))
    at_once = [fresh_note(each, CASE, "after") is not None for each in few]
    in_the_end = [
        found or bool(suspicion(early, CASE) and fresh_note(late, CASE, "after"))
        for found, early, late in zip(at_once, few, many, strict=True)
    ]
    assert sum(at_once) <= 8
    assert sum(in_the_end) >= 24


def of_launches(new: float, known: float, *, seed: int, spread: float = 0.15, often: bool = True) -> list[Pair]:
    """Four pairs with few readings and, ``often``, two with many, in each of which a side's time on new inputs is off
    by a factor of its own."""
    draw = random.Random(seed)

    def off(run: SideRun) -> SideRun:
        factor = math.exp(draw.gauss(0, spread))
        return replace(run, fresh_s=tuple(factor * each for each in run.fresh_s))

    sides: dict[str, Any] = {"after": (new, known), "noise": 0.05}
    made = pairs(**sides, seed=seed, count=4, readings=8)
    made += pairs(**sides, seed=seed + 1000, count=2, readings=45) if often else []
    return [replace(pair, runs=tuple(map(off, pair.runs))) for pair in made]


def test_what_a_launch_has_of_its_own_accuses_nobody_however_many_readings_it_has() -> None:
    honest = [of_launches(9e-4, 9e-4, seed=seed) for seed in range(200)]
    assert sum(fresh_note(each, CASE, "after") is not None for each in honest) <= 2
    memo = [of_launches(1e-3, 4e-4, seed=seed) for seed in range(50)]
    assert sum(fresh_note(each, CASE, "after") is not None for each in memo) >= 40


def test_how_launches_scatter_beyond_their_own_readings_counts_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = [of_launches(9e-4, 9e-4, seed=seed, often=False) for seed in range(200)]
    accused = sum(fresh_note(each, CASE, "after") is not None for each in honest)
    monkeypatch.setattr(fresh, "BETWEEN", 0.0)
    without = sum(fresh_note(each, CASE, "after") is not None for each in honest)
    assert accused < 0.75 * without


def test_a_side_that_is_found_is_not_suspected_and_one_that_is_suspected_has_its_times_told() -> None:
    assert suspicion(pairs(after=(1e-3, 5e-4)), CASE) is None
    note = suspicion(pairs(after=(1e-3, 8.5e-4), noise=0.1, count=4, readings=4), CASE)
    assert note is not None
    assert (note.code, note.values["side"]) == ("suspected", "after")


def test_a_true_advantage_is_seldom_suspected_and_many_more_readings_clear_it() -> None:
    few, many = ([probed(8e-4, honest=True, seed=seed, often=often) for seed in range(200)] for often in (False, True))
    assert sum(suspicion(each, CASE) is not None for each in few) <= 16
    assert not any(fresh_note(each, CASE, "after") for each in many)


def in_rounds(after: list[float], *, audits: tuple[int, ...] = (1,), count: int = 4) -> list[Pair]:
    """Pairs in whose rounds ``after`` takes these milliseconds and ``before`` one; audits follow some of them."""
    made = []
    for index in range(count):
        draw = random.Random(index)
        times = {"before": [1.0] * len(after), "after": after}
        plain = tuple(
            Sample(side, number, i, 10, 0.01 * ms * math.exp(draw.gauss(0, 0.03)))
            for side, rounds in times.items()
            for number, ms in enumerate(rounds)
            for i in range(4)
        )
        audited = tuple(Sample(side, number, -1, 1, 1e-3, audit=True) for side in times for number in audits)
        made.append(Pair(index, ("before", "after"), 0, plain + audited, ()))
    return made


START = [0.1, 0.1, 1.0, 1.0, 1.0, 1.0]
LINGERS = [0.7, 0.7, 1.0, 0.7, 0.7, 1.0, 0.7]


@pytest.mark.parametrize(("rounds", "audits"), [(START, (1,)), (START, (4,)), (LINGERS, (1, 4))])
def test_who_works_only_in_rounds_after_an_audit_or_on_other_inputs_than_those_of_set_up_is_found(rounds, audits):
    note = fresh_note(in_rounds(rounds, audits=audits), CASE, "after")
    assert note is not None
    assert note.values["side"] == "after"
    assert note.values["fresh_s"] == pytest.approx(1e-3, rel=0.1)


@pytest.mark.parametrize("rounds", [[0.1] * 6, [0.7, 0.7, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 3.0, 3.0, 3.0, 3.0]])
def test_rounds_of_a_true_advantage_and_those_that_drift_a_little_are_not(rounds: list[float]) -> None:
    assert fresh_note(in_rounds(rounds, audits=(3,)), CASE, "after") is None


def test_two_pairs_and_rounds_before_every_audit_say_nothing() -> None:
    assert fresh_note(in_rounds(START, count=2), CASE, "after") is None
    assert fresh_note(in_rounds(START[:2]), CASE, "after") is None


def test_one_pair_whose_new_inputs_met_a_slow_host_is_no_finding() -> None:
    """Seen of a page cache that the host took away: 9 and 52 ms on new inputs, 9 and 8 ms on known ones."""
    first, second = pairs(before=(9.4e-3, 9.5e-3), after=(52e-3, 53e-3), count=2, readings=3)
    slow = replace(second.runs[0], fresh_s=(66e-3, 57e-3, 52e-3), again_s=(17e-3, 8.6e-3, 7.9e-3))
    disturbed = replace(second, runs=(slow, second.runs[1]))
    assert fresh_note([first, disturbed], CASE, "after") is None
    assert fresh_note([disturbed, disturbed], CASE, "after") is not None


def test_three_readings_whose_shortest_was_by_chance_on_known_inputs_are_no_finding() -> None:
    """Seen of a side with a thread on a busy host: its shortest of three was on known inputs in both pairs."""
    made = pairs(before=(0.117, 0.117), after=(0.115, 0.115), noise=0.0)
    fresh, again = [(0.127, 0.109, 0.110), (0.123, 0.148, 0.119)], [(0.095, 0.124, 0.099), (0.171, 0.108, 0.117)]
    seen = [
        replace(pair, runs=(pair.runs[0], replace(pair.runs[1], fresh_s=new, again_s=known)))
        for pair, new, known in zip(made, fresh, again, strict=True)
    ]
    assert fresh_note(seen, CASE, "after") is None


def batched(
    before: float, after: float, singles: tuple[float, float], *, count: int = 4, case: Case = CASE, **given: float
) -> list[tuple[str, float]]:
    """Notes on sides whose steps take so long in batches, and ``singles`` each by itself."""
    plain = [make_pair(i, {"before": before, "after": after}) for i in range(count)]
    timed = pairs(before=(singles[0],) * 2, after=(singles[1],) * 2, count=count, **given)  # type: ignore[arg-type]
    both = [replace(pair, runs=single.runs) for pair, single in zip(plain, timed, strict=True)]
    word = "improved" if after < before else "regressed"
    comparison = replace(conclude(CASE, both, **SETTINGS)[0], verdict=Verdict(word, "beyond_threshold", ""))
    noted = list(batch_notes(both, case, [comparison]))
    undecided = replace(comparison, verdict=Verdict("inconclusive", "interval_straddles", ""))
    assert list(batch_notes(both, CASE, [undecided])) == []
    return [(note.values["side"], note.values["batches"]) for note in noted]


def test_an_advantage_that_is_there_in_batches_alone_is_told_of_whoever_has_it() -> None:
    ((side, ratio),) = batched(1e-3, 7e-4, (1e-3, 1e-3))
    assert (side, ratio) == ("after", pytest.approx(1 / 0.7, rel=0.05))
    assert [side for side, _ in batched(7e-4, 1e-3, (1e-3, 1e-3))] == ["before"]


@pytest.mark.parametrize("singles", [(1e-3, 7e-4), (4e-3, 2.8e-3), (1.5e-3, 1.2e-3)])
def test_an_advantage_that_most_single_steps_show_too_is_not_told(singles: tuple[float, float]) -> None:
    assert batched(1e-3, 7e-4, singles) == []


@pytest.mark.parametrize(
    ("times", "singles", "covered", "word"),
    [
        ((1e-3, 7e-4), (1e-3, 1e-3), {}, "invalid"),
        ((7e-4, 1e-3), (1e-3, 1e-3), {}, "invalid"),
        ((1e-3, 7e-4), (1e-3, 1e-3), {"done_outside": "a producer works ahead"}, "improved"),
        ((1e-3, 7e-4), (1e-3, 8.4e-4), {}, "improved"),
        ((1e-3, 7e-4), (1e-3, 9.15e-4), {}, "improved"),
        ((1e-3, 7e-4), (1e-3, 9.48e-4), {}, "invalid"),
        ((1e-3, 7e-4), (1e-3, 9.25e-4), {}, "improved"),
        ((1e-3, 7e-4), (1e-3, 9.35e-4), {}, "invalid"),
    ],
)
def test_strict_mode_refuses_an_advantage_that_hardly_any_single_step_shows_and_nobody_explains(
    times: tuple[float, float], singles: tuple[float, float], covered: dict[str, str], word: str
) -> None:
    plain = [make_pair(i, {"before": times[0] * (1 + i / 500), "after": times[1]}) for i in range(6)]
    timed = pairs(before=(singles[0],) * 2, after=(singles[1],) * 2, count=6, noise=0.0)
    both = [
        replace(pair, runs=tuple(replace(run, coverage=Coverage(fixed=(), **covered)) for run in single.runs))
        for pair, single in zip(plain, timed, strict=True)
    ]
    strict, usual = (conclude(CASE, both, strict=strict, **SETTINGS)[0].verdict for strict in (True, False))
    assert usual.word == ("improved" if times[0] > times[1] else "regressed")
    assert strict.word == word
    if word == "invalid":
        assert strict.reason == "unverified"
        assert "let every step finish its own work" in strict.sentence


def of_ten(first: Sequence[tuple[float, float]], batches: float, *, spread: float) -> list[Pair]:
    """Ten pairs whose base is so many times as fast in batches; of the ``first`` ones the same in batches and, by six
    readings that scatter by a factor of 1 + ``spread``, in single steps."""
    made = []
    for index in range(10):
        ratio, alone = first[index] if index < len(first) else (batches, 0.0)
        own = {
            "before": (1.0, 1.0 + spread, 1.0 + 2 * spread),
            "after": (alone, alone * (1 + spread), alone * (1 + 2 * spread)),
        }
        runs = tuple(
            replace(make_run(side), again_s=tuple(1e-3 * s for s in times) if alone else ())
            for side, times in own.items()
        )
        made.append(make_pair(index, {"before": 1e-3, "after": 1e-3 * ratio * (1 + index / 1000)}, runs=runs))
    return made


@pytest.mark.parametrize(
    ("first", "batches", "spread", "told"),
    [
        pytest.param(
            [(2.274, 1.121), (1.131, 0.442)], 1.18, 0.4, 0, id="two pairs of three readings, seen on a busy host"
        ),
        pytest.param([(2.274, 1.121), (2.0, 0.9)], 1.18, 0.0, 1, id="readings that agree"),
        pytest.param([(2.274, 1.3), (2.0, 1.2)], 1.18, 0.0, 0, id="batches of the other pairs gain no more"),
        pytest.param([(1.5, 1.0), (1.5, 1.0)], 1.5, 0.02, 1, id="readings that scatter little"),
        pytest.param([(1.5, 1.0), (1.5, 1.0)], 1.5, 0.2, 0, id="readings that scatter much"),
    ],
)
def test_an_advantage_is_missed_in_single_steps_only_beyond_what_few_readings_scatter_and_all_pairs_show(
    first: list[tuple[float, float]], batches: float, spread: float, told: int
) -> None:
    assert (
        len([n for n in batch_doubts(of_ten(first, batches, spread=spread), CASE) if n.values["side"] == "before"])
        == told
    )


def test_one_pair_and_steps_that_a_reading_outweighs_show_nothing_of_batches() -> None:
    assert batched(1e-3, 7e-4, (1e-3, 1e-3), count=1) == []
    assert batched(1e-5, 7e-6, (1e-5, 1e-5)) == []
    assert batched(1e-3, 9.7e-4, (1e-3, 1.2e-3)) == []


@pytest.mark.parametrize(
    ("times", "singles", "told"),
    [
        pytest.param((1e-3, 7e-4), (1e-3, 8.3e-4), True, id="less than 55 % is left"),
        pytest.param((1e-3, 7e-4), (1e-3, 8.15e-4), False, id="more is"),
        pytest.param((1e-3, 9.05e-4), (1e-3, 9.7e-4), False, id="a loss below 8 % of the time"),
        pytest.param((1e-3, 9.05e-4), (1e-3, 9.95e-4), True, id="a loss above it"),
        pytest.param((2.1e-5, 1.4e-5), (2.1e-5, 2.1e-5), True, id="the slower side's step is long enough"),
        pytest.param((1.9e-5, 1.4e-5), (1.9e-5, 1.9e-5), False, id="it is not"),
    ],
)
def test_an_advantage_is_there_in_batches_alone_where_single_steps_lose_nearly_half_of_it(
    times: tuple[float, float], singles: tuple[float, float], told: bool
) -> None:
    assert bool(batched(*times, singles, noise=0.0)) is told


def test_two_readings_show_nothing_of_batches_nor_do_those_of_ranks_that_wait_for_each_other() -> None:
    assert batched(1e-3, 7e-4, (1e-3, 1e-3), readings=2) == []
    gang = replace(CASE, sides=tuple(replace(side, ranks=2) for side in CASE.sides))
    assert batched(1e-3, 7e-4, (1e-3, 1e-3), case=gang) == []
    timed = pairs(before=(1e-3, 1e-3), after=(1e-3, 1e-3))
    both = [replace(make_pair(i, {"before": 1e-3, "after": 7e-4}), runs=timed[i].runs) for i in range(2)]
    assert [len(list(batch_doubts(both, case))) for case in (CASE, gang)] == [1, 0]


def test_an_advantage_that_half_of_the_pairs_show_in_single_steps_is_not_told() -> None:
    timed = pairs(before=(1e-3, 1e-3), after=(1e-3, 1e-3), noise=0.0, count=4)
    fast = pairs(before=(1e-3, 1e-3), after=(7e-4, 7e-4), noise=0.0, count=4)

    def doubts(*singles: Pair) -> int:
        plain = [make_pair(i, {"before": 1e-3, "after": 7e-4}) for i in range(4)]
        both = [replace(pair, runs=single.runs) for pair, single in zip(plain, singles, strict=True)]
        conclusion = replace(conclude(CASE, both, **SETTINGS)[0], verdict=Verdict("improved", "beyond_threshold", ""))
        return len(list(batch_notes(both, CASE, [conclusion])))

    assert (doubts(*timed), doubts(*timed[:2], *fast[2:])) == (1, 0)


def long_steps(audit: float, plain: float, *, count: int = 4, step: float = 0.3, noise: float = 0.02) -> list[Pair]:
    """Pairs of a step too long for single iterations: of ``after``, audits and timed steps take these shares of it."""
    made = []
    for index in range(count):
        draw = random.Random(index)
        shares = {"before": (1.0, 1.0), "after": (audit, plain)}
        samples = tuple(
            Sample(side, r, -1 if audited else 0, 1, step * share * math.exp(draw.gauss(0, noise)), audit=audited)
            for side, both in shares.items()
            for audited, share in ((True, both[0]), (False, both[1]))
            for r in range(1 if audited else 3)
        )
        made.append(Pair(index, ("before", "after"), 0, samples, ()))
    return made


@pytest.mark.parametrize("plain", [0.6, 0.3])
def test_audits_of_long_steps_show_who_is_fast_on_known_inputs_alone(plain: float) -> None:
    note = fresh_note(long_steps(1.0, plain), CASE, "after")
    assert note is not None
    assert (note.values["side"], note.values["fresh_s"]) == ("after", pytest.approx(0.3, rel=0.1))


@pytest.mark.parametrize(
    "pairs_",
    [
        pytest.param(long_steps(0.6, 0.6), id="as fast in audits"),
        pytest.param(long_steps(0.74, 0.6), id="a quarter slower, but most of the advantage is left"),
        pytest.param(long_steps(0.99, 0.9, noise=0.001), id="a loss below 15 %"),
        pytest.param(long_steps(1.0, 0.6, count=3), id="three pairs"),
        pytest.param(long_steps(1.0, 0.6, step=0.03), id="a step below 20 ms"),
    ],
)
def test_audits_of_honest_and_of_shorter_steps_and_few_of_them_say_nothing(pairs_: list[Pair]) -> None:
    assert fresh_note(pairs_, CASE, "after") is None


def test_an_audit_of_two_steps_is_no_single_one() -> None:
    double = [
        replace(p, samples=tuple(replace(s, iterations=2, wall_s=2 * s.wall_s) if s.audit else s for s in p.samples))
        for p in long_steps(1.0, 0.6)
    ]
    assert fresh_note(double, CASE, "after") is None


@pytest.mark.parametrize(("first", "who"), [(0.45, "after"), (0.55, None)])
def test_since_the_first_round_of_all_a_side_may_lose_less_than_half_of_its_speed(
    first: float, who: str | None
) -> None:
    """The only audit is late, so that the rounds around it say nothing."""
    note = fresh_note(in_rounds([first, 1.0, 1.0, 1.0, 1.0, 1.0], audits=(4,)), CASE, "after")
    assert (note and note.values["side"]) == who


@pytest.mark.parametrize(("single", "doubted"), [(2.0, 1), (2.000001, 0)])
def test_exactly_the_doubted_share_of_an_advantage_is_doubted(
    single: float, doubted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh, "BATCH_DOUBTED", 0.5)
    ratios = {("after", "before"): {"batches": 4.0, "single": single}}
    monkeypatch.setattr(fresh, "_batches_only", lambda pairs, mine, theirs, field: ratios.get((mine, theirs)))
    assert len(list(batch_doubts(pairs(), CASE))) == doubted


def test_the_base_of_a_ladder_is_held_against_none_of_its_steps() -> None:
    """Of several steps, none is what the base is better than."""
    timed = pairs(before=(1e-3, 1e-3), after=(1e-3, 1e-3), noise=0.0)
    ladder = [
        replace(
            make_pair(i, {"before": 5e-4, "after": 1e-3, "last": 1e-3}),
            runs=(*timed[i].runs, replace(timed[i].runs[1], side="last")),
        )
        for i in range(2)
    ]
    assert [note.values["side"] for note in batch_doubts(ladder, CASE)] == ["before"]
    assert list(batch_doubts(ladder, make_case("before", "after", "last"))) == []


def test_single_iterations_of_ranks_on_cpus_say_who_is_fast_on_known_inputs_and_their_rounds_and_gpus_nothing() -> None:
    gang = replace(CASE, sides=tuple(replace(side, ranks=2) for side in CASE.sides))
    gpus = replace(gang, needs=make_case(gpus=2).needs)
    memo = pairs(after=(1e-3, 5e-4))
    assert [fresh_note(memo, case, "after") is not None for case in (CASE, gang, gpus)] == [True, True, False]
    assert fresh_note(in_rounds(START), gang, "after") is None
    assert fresh_note(long_steps(1.0, 0.6), gang, "after") is None


@pytest.mark.parametrize(("cpu", "side"), [((1e-3, 3e-4), "after"), ((1e-3, 1e-3), None), ((3.3e-4, 3e-4), None)])
def test_ranks_that_wait_for_each_other_on_a_busy_host_are_found_by_their_cpu_time(
    cpu: tuple[float, float], side: str | None
) -> None:
    """Which their times do not show, that scatter by more than the advantage."""
    gang = replace(CASE, sides=tuple(replace(side, ranks=2) for side in CASE.sides))
    busy = pairs(before=(4e-3, 4e-3), after=(4e-3, 3e-3), noise=1.0, count=4)
    assert fresh_note(busy, gang, "after") is None
    spent = pairs(before=(1e-3, 1e-3), after=cpu, count=4)
    both = [
        replace(
            pair,
            runs=tuple(
                replace(run, fresh_cpu_s=of.fresh_s, again_cpu_s=of.again_s)
                for run, of in zip(pair.runs, each.runs, strict=True)
            ),
        )
        for pair, each in zip(busy, spent, strict=True)
    ]
    note = fresh_note(both, gang, "after")
    assert (note and note.values["side"]) == side
