"""Rounds against gangs whose answers are given: balanced orders, audits that both sides share, samples and skews."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from aiperf.launch.phase_seconds import Spent
from aiperf.launch.probes import own_seeds
from aiperf.launch.rounds import (
    Played,
    WitnessedTurn,
    _slowest,
    plan_audits,
    play_rounds,
    round_count,
    witness,
)
from aiperf.launch.warmup import TurnPlan
from aiperf.protocol.messages import (
    AuditReply,
    AuditRequest,
    FreshReply,
    FreshRequest,
    TurnReply,
    TurnRequest,
    WideReply,
    WideRequest,
)
from aiperf.records import Latencies
from aiperf.settings import Limits, Precision, Settings

SETTINGS = Settings(precision=Precision(rounds=20, side_seconds=1.0), limits=Limits(measure=11.0, check=22.0))


Asked = tuple[TurnRequest | AuditRequest | FreshRequest, float]
"""A request and its limit."""


class Answers:
    """A gang that writes down what it is asked and answers with made-up times."""

    def __init__(
        self,
        log: list[Asked],
        *,
        ranks: int = 1,
        device: bool = False,
        lazy: bool = False,
        latencies: bool = False,
        queues: tuple[float, float] = (0.0, 0.0),
        repeated_s: float = 0.0,
        blocks: tuple[float, ...] = (9.0, 10.0, 11.0),
    ) -> None:
        """``queues``: seconds that it waits for a CPU in each turn, and how many of them in its readings. ``blocks``:
        the wall reading after its device times, by rank."""
        self._log, self._ranks, self._device, self._lazy, self._latencies = log, ranks, device, lazy, latencies
        self._queues, self._repeated_s, self._blocks = queues, repeated_s, blocks
        self.heard: Callable[[str], object] = lambda side: None

    @property
    def plan(self) -> SimpleNamespace:
        return SimpleNamespace(ranks=self._ranks)

    def queued_s(self) -> float:
        return self._queues[0] * len(turns(self._log))

    def find_strayed(self) -> set[int]:
        self.running = True
        return set()

    def suspend(self) -> None:
        self.running = False

    def resume(self) -> None:
        self.running = True

    def command(self, request: Any, *, limit: float, sent: Callable[[], object] = lambda: None) -> list[Any]:
        self._log.append((request, limit))
        sent()
        self.heard(request.side)
        return [self._answer(request, rank) for rank in range(self._ranks)]

    def _answer(self, request: Any, rank: int) -> Any:
        count = request.samples if isinstance(request, TurnRequest) else 0 if self._lazy else 1
        wall = tuple((1.0 + i) * (1 + 2 * rank) for i in range(count))
        device = tuple(w / 2 for w in wall) if self._device else (None,) * count
        if isinstance(request, AuditRequest):
            return AuditReply(wall=wall, device=device, queued_s=0.5)
        if isinstance(request, WideRequest):
            return WideReply()
        if isinstance(request, FreshRequest):
            spent = {"fresh": (0.5 + rank,) * 3} if self._ranks > 1 else {}
            return FreshReply(fresh=(2.0 + rank,) * 3, again=(1.0 + rank,) * 3, spent=spent, steps=11)
        block = self._blocks[rank] if request.wall_too else None
        latencies = {"ttft": (0.25 + rank,) * 2, "queue": (0.125,)} if self._latencies else {}
        return TurnReply(
            wall=wall, device=device, wall_block=block, latencies=latencies, values={"goodput": 5.0 + rank},
            queued_s=self._queues[1], repeated_s=self._repeated_s,
        )  # fmt: skip


def play(
    *, seed: int = 1, order: tuple[str, ...] = ("after", "before"), audits: int = 3, wall_too: bool = False,
    seconds: float = 0.05, on_gpu: bool = False, marks: list[str | None] | None = None, turn: TurnPlan | None = None,
    **kind: Any,
) -> tuple[Played, list[Asked]]:  # fmt: skip
    clock, log = kind.pop("clock", "wall"), list[Asked]()
    fresh = kind.pop("fresh", [(1, 1, 2)])
    gang = Answers(log, **kind)
    turn = turn or TurnPlan(reentry=4, samples=3, iterations=7, seconds=seconds)
    played = play_rounds(
        dict.fromkeys(order, gang), dict.fromkeys(order, turn), order,
        plan_audits(audits, f"{seed}", pair=0, single=False), fresh=fresh,
        seed=seed, settings=SETTINGS, clock=clock, on_gpu=on_gpu, wall_too=wall_too, spent=Spent(),
        mark=(marks if marks is not None else []).append,
    )  # type: ignore[arg-type]  # fmt: skip
    return played, log


def turns(log: list[Asked]) -> list[str]:
    return [request.side for request, _ in log if isinstance(request, TurnRequest)]


def audits(log: list[Asked]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for request, _ in log:
        if isinstance(request, AuditRequest):
            found.setdefault(request.side, []).append((request.seed, request.iterations))
    return found


def test_every_side_has_one_turn_in_every_round_and_the_first_two_hold_the_order_and_its_reverse() -> None:
    _, log = play()
    sequence = turns(log)
    rounds = [tuple(sequence[i : i + 2]) for i in range(0, len(sequence), 2)]
    assert len(rounds) == 20
    assert all(sorted(r) == ["after", "before"] for r in rounds)
    assert rounds[:2] == [("after", "before"), ("before", "after")]


def test_orders_of_the_rounds_are_balanced_and_no_fixed_pattern() -> None:
    patterns = set()
    for seed in range(12):
        _, log = play(seed=seed)
        sequence = turns(log)
        rounds = [tuple(sequence[i : i + 2]) for i in range(0, len(sequence), 2)]
        assert set(Counter(rounds).values()) == {10}
        patterns.add(tuple(rounds))
    assert len(patterns) > 8


def test_nobody_runs_while_another_side_has_its_turn_or_its_audit_and_everybody_does_in_the_end() -> None:
    log: list[Asked] = []
    gangs = {side: Answers(log) for side in ("before", "after")}
    running: list[tuple[str, list[str]]] = []
    for gang in gangs.values():
        gang.heard = lambda side: running.append((side, [name for name, one in gangs.items() if one.running]))
    turn = TurnPlan(reentry=4, samples=3, iterations=7, seconds=0.05)
    play_rounds(
        gangs, dict.fromkeys(gangs, turn), tuple(gangs), plan_audits(2, "1", pair=0, single=False), seed=1,
        settings=SETTINGS, clock="wall", on_gpu=False, wall_too=False, spent=Spent(), mark=lambda _: None,
    )  # type: ignore[arg-type]  # fmt: skip
    assert len(running) == len(log) == 44
    assert all(names == [side] for side, names in running)
    assert all(gang.running for gang in gangs.values())


def test_the_same_seed_gives_the_same_rounds_and_another_seed_others() -> None:
    assert turns(play(seed=5)[1]) == turns(play(seed=5)[1])
    assert play(seed=5, audits=0)[0] == play(seed=5, audits=0)[0]
    assert turns(play(seed=5)[1]) != turns(play(seed=6)[1])


@pytest.mark.parametrize(("disturbed", "hidden"), [(0, 2e-4), (8, 2e-4), (10, 9e-3)])
def test_turns_that_a_busy_host_lengthened_do_not_stand_for_a_side(disturbed: int, hidden: float) -> None:
    turns = [WitnessedTurn(20e-3, 9e-3)] * disturbed + [WitnessedTurn(10e-3, 2e-4)] * (10 - disturbed)
    assert witness(turns)["hidden_s"] == hidden
    assert witness([]) == {}


def test_a_turn_that_hardly_waited_stands_for_a_side_rather_than_one_whose_waits_overlapped() -> None:
    """Seen beside five busy processes: of a clock that tells four fifths, half of the turns hid less than nothing."""
    waited = [WitnessedTurn(15e-3, -4e-3, 8e-3)] * 15
    assert witness([*waited, *[WitnessedTurn(14e-3, 3e-3, 0.2e-3)] * 5])["hidden_s"] == 3e-3
    assert witness([*waited, *[WitnessedTurn(14e-3, 3e-3, 2e-3)] * 5])["hidden_s"] == 3e-3
    assert witness([*[WitnessedTurn(14e-3, 3e-3, 0.2e-3)] * 4, *[WitnessedTurn(14e-3, 2e-4, 0.3e-3)] * 16]) == {
        "turn_s": 14e-3, "hidden_s": 2e-4,
    }  # fmt: skip


def test_what_this_process_waits_while_the_side_works_excuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits 8 s for a CPU once its request is out, and 3 s once the answer has come."""
    waited = iter(float(each) for n in range(1000) for each in (11 * n + 8, 11 * n + 11))
    monkeypatch.setattr("aiperf.launch.rounds.queued_s", lambda pid: next(waited))
    played, _ = play()
    turn = played.turns["after"][3]
    assert turn.hidden_s == pytest.approx(-(1.0 + 2.0 + 3.0) - 3.0, abs=0.1)
    assert turn.waited_s == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize(("queues", "excused"), [((8.0, 8.0), 0.0), ((8.0, 5.0), 3.0), ((8.0, 99.0), 0.0)])
def test_waiting_for_a_cpu_excuses_hidden_time_only_where_it_is_in_no_reading(
    queues: tuple[float, float], excused: float
) -> None:
    played, _ = play(queues=queues)
    readings = 1.0 + 2.0 + 3.0
    assert [turn.hidden_s for turn in played.turns["after"]] == pytest.approx([-readings - excused] * 20, abs=0.1)


def test_both_sides_time_single_iterations_on_the_same_inputs_in_the_same_round() -> None:
    played, log = play()
    asked = [(place, request) for place, (request, _) in enumerate(log) if isinstance(request, FreshRequest)]
    assert {request.side for _, request in asked} == {"before", "after"}
    assert {request.seeds[:2] for _, request in asked} == {(1, 1)}
    assert abs(asked[0][0] - asked[1][0]) <= 4
    assert {side: reply.fresh for side, reply in played.fresh.items()} == dict.fromkeys(("before", "after"), (2.0,) * 3)


def test_several_probes_fall_on_rounds_of_their_own_and_their_readings_are_kept_together() -> None:
    played, log = play(fresh=[(1, 1, 2), (3, 3, 4), (5, 5, 6)], audits=0)
    rounds: dict[str, list[int]] = {"before": [], "after": []}
    done = Counter[str]()
    for request, _ in log:
        done[request.side] += isinstance(request, TurnRequest)
        if isinstance(request, FreshRequest):
            rounds[request.side].append(done[request.side])
    assert rounds["before"] == rounds["after"]
    assert len(set(rounds["after"])) == 3
    seeds = [r.seeds for r, _ in log if isinstance(r, FreshRequest) and r.side == "after"]
    assert {each[0] for each in seeds} == {1, 3, 5}
    assert (len(played.fresh["after"].fresh), len(played.fresh["after"].again), played.fresh["after"].steps) == (
        9,
        9,
        33,
    )


def test_probes_follow_at_most_a_quarter_of_the_rounds_so_that_most_turns_are_on_known_inputs() -> None:
    _, log = play(fresh=[(1, 1, 2)] * 8, audits=0)
    assert len([r for r, _ in log if isinstance(r, FreshRequest)]) == 2 * 5


def test_long_iterations_are_not_timed_one_by_one() -> None:
    played, log = play(seconds=20.0)
    assert not played.fresh
    assert not any(isinstance(request, FreshRequest) for request, _ in log)


@pytest.mark.parametrize(
    ("ranks", "seconds", "timed"),
    [(1, 0.05, True), (1, 0.07, False), (2, 0.07, True), (2, 0.49, True), (2, 0.51, False)],
)
def test_later_pairs_time_short_iterations_alone_and_ask_for_no_large_inputs(
    ranks: int, seconds: float, timed: bool
) -> None:
    """A turn is of 25 iterations: up to 2.5 ms each, of ranks up to 20 ms."""
    turn = TurnPlan(reentry=4, samples=3, iterations=7, seconds=seconds)
    played, _ = play(audits=1, turn=turn, ranks=ranks)
    assert bool(played.fresh) == timed
    assert not played.wide


def test_ranks_that_must_stay_in_step_time_the_same_number_of_single_iterations() -> None:
    alone, together = (play(ranks=ranks)[1] for ranks in (1, 2))
    assert all(r.seconds > 0 for r, _ in alone if isinstance(r, FreshRequest | WideRequest))
    assert all(r.seconds == 0 for r, _ in together if isinstance(r, FreshRequest | WideRequest))


def test_of_ranks_the_last_to_begin_has_the_time_and_all_together_the_cpu_time() -> None:
    alone, ranks = (play(ranks=ranks)[0] for ranks in (1, 2))
    times = {"fresh_s": (2.0,) * 3, "again_s": (1.0,) * 3, "cold_s": ()}
    assert ranks.singles("before") == {**times, "fresh_cpu_s": (1.0,) * 3}
    assert alone.singles("before") == times
    assert alone.singles("unknown") == {}


@pytest.mark.parametrize(("turn_s", "count"), [(0.0025, 12), (0.2, 7), (1.0, 3)])
def test_ranks_time_as_many_single_iterations_as_fit_and_never_fewer_than_three(turn_s: float, count: int) -> None:
    """A turn is of 25 iterations: 0.1, 8 and 40 ms each; 60 ms are for them."""
    asked = {
        ranks: {r.fewest for r, _ in play(ranks=ranks, seconds=turn_s)[1] if isinstance(r, FreshRequest)}
        for ranks in (1, 2)
    }
    assert asked == {1: {3}, 2: {count}}


def test_what_each_audit_waited_for_a_cpu_is_kept_where_one_process_is_audited() -> None:
    alone, ranks = (play(ranks=ranks, audits=3)[0] for ranks in (1, 2))
    assert alone.queued == {"before": [0.5] * 3, "after": [0.5] * 3}
    assert ranks.queued == {}


def test_a_ladder_gives_every_step_its_turns() -> None:
    _, log = play(order=("naive", "tiled", "fused"))
    assert Counter(turns(log)) == {"naive": 20, "tiled": 20, "fused": 20}


def test_both_sides_get_the_same_audits_in_the_same_rounds() -> None:
    played, log = play(seed=3, audits=4)
    found = audits(log)
    assert (
        found["before"] == found["after"] == [(a.seed, a.iterations) for a in plan_audits(4, 3, pair=0, single=False)]
    )
    rounds = {side: [s.round for s in played.samples if s.audit and s.side == side] for side in ("before", "after")}
    assert rounds["before"] == rounds["after"]
    assert len(set(rounds["before"])) == 4


def test_two_audits_in_a_row_have_other_inputs_even_where_a_workload_has_few() -> None:
    """storage.read has seven: that of two audits alike made its inputs look fixed in every seventh launch."""
    for secret in map(str, range(100)):
        first, *others = (audit.seed for audit in plan_audits(4, secret, pair=0, single=False))
        for seed in others:
            assert 0 not in {(seed - first) % number for number in range(2, 17)}
            first = seed


def test_audits_fall_on_other_rounds_in_other_pairs() -> None:
    seen = {tuple(s.round for s in play(seed=seed)[0].samples if s.audit and s.side == "after") for seed in range(10)}
    assert len(seen) > 5


def test_audits_that_find_no_round_of_their_own_share_the_last_one() -> None:
    played, log = play(audits=7, seconds=0.4)
    assert len(turns(log)) == 2 * 4
    assert len(audits(log)["after"]) == len(audits(log)["before"]) == 7
    assert audits(log)["after"] == audits(log)["before"]
    assert sum(s.audit and s.round == 3 for s in played.samples) == 2 * 4


def test_audits_look_at_one_iteration_on_both_parities_and_then_at_two_in_a_row() -> None:
    drawn = plan_audits(5, 1, pair=0, single=False)
    assert [(a.iterations, a.parity) for a in drawn] == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 0)]
    assert len({a.seed for a in plan_audits(200, 1, pair=0, single=False)}) == 200
    assert {a.iterations for a in plan_audits(5, 1, pair=0, single=True)} == {1}
    assert [a.seed for a in plan_audits(5, 1, pair=0, single=True)] == [a.seed for a in drawn]


def test_even_and_odd_steps_before_an_audit_take_turns_from_pair_to_pair() -> None:
    assert [plan_audits(1, "1", pair=pair, single=False)[0].parity for pair in range(4)] == [0, 1, 0, 1]
    assert {a.parity for a in plan_audits(2, "1", pair=1, single=False)} == {0, 1}
    assert plan_audits(0, "1", pair=4, single=False) == ()


@pytest.mark.parametrize("wall_too", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_audits_follow_an_even_and_an_odd_number_of_steps_in_turn(seed: int, wall_too: bool) -> None:
    _, log = play(seed=seed, wall_too=wall_too, audits=4)
    done: dict[str, int] = {"before": 0, "after": 0}
    seen: dict[str, list[int]] = {"before": [], "after": []}
    for asked, _ in log:
        name = asked.side
        if isinstance(asked, AuditRequest):
            done[name] += asked.lead
            seen[name].append(done[name] % 2)
            done[name] += asked.iterations
        elif isinstance(asked, FreshRequest):
            done[name] += 11
        elif isinstance(asked, TurnRequest):
            done[name] += asked.reentry + asked.iterations * (asked.samples + asked.wall_too)
    assert seen == {"before": [0, 1, 0, 1], "after": [0, 1, 0, 1]}


def test_samples_keep_their_side_round_and_iterations_and_audits_are_marked() -> None:
    played, _ = play(audits=1)
    first = [s for s in played.samples if s.round == 0 and s.side == "after" and not s.audit]
    assert [(s.index, s.iterations, s.wall_s, s.device_s) for s in first] == [
        (0, 7, 1.0, None), (1, 7, 2.0, None), (2, 7, 3.0, None),
    ]  # fmt: skip
    (audit,) = [s for s in played.samples if s.audit and s.side == "before"]
    assert (audit.index, audit.wall_s) == (-1, 1.0)
    assert audit.iterations in (1, 2)


def test_inputs_far_from_the_usual_ones_come_once_on_every_side_when_all_else_is_over() -> None:
    played, log = play()
    assert [(type(asked), asked.side) for asked, _ in log[-2:]] == [(WideRequest, "after"), (WideRequest, "before")]
    wide = [asked for asked, _ in log if isinstance(asked, WideRequest)]
    assert [(asked.side, asked.seed) for asked in wide] == [(side, 2) for side in played.wide]
    assert all(asked.seconds > 0 for asked in wide)
    assert sum(isinstance(asked, WideRequest) for asked, _ in play(on_gpu=True)[1]) == 2
    assert not any(isinstance(asked, WideRequest) for asked, _ in play(seconds=60.0)[1])


def test_an_audit_that_a_side_refuses_gives_no_sample() -> None:
    played, log = play(lazy=True)
    assert len(audits(log)["after"]) == 3
    assert not any(s.audit for s in played.samples)


def test_device_times_come_with_a_wall_block_after_them() -> None:
    played, _ = play(device=True, wall_too=True, audits=0)
    first = [s for s in played.samples if s.round == 0 and s.side == "after"]
    assert [(s.index, s.wall_s, s.device_s) for s in first] == [
        (0, 1.0, 0.5), (1, 2.0, 1.0), (2, 3.0, 1.5), (3, 9.0, None),
    ]  # fmt: skip


def test_a_gang_is_as_slow_as_its_slowest_rank_and_its_skew_is_told() -> None:
    played, _ = play(ranks=3, audits=0)
    assert [s.wall_s for s in played.samples[:3]] == [5.0, 10.0, 15.0]
    assert played.skews["after"][:3] == [pytest.approx(5 / 3)] * 3
    assert {s.rank for s in play(ranks=3, audits=2)[0].samples} == {2}
    assert {s.rank for s in play(audits=2)[0].samples} == {None}
    assert play(audits=0)[0].skews == {"after": [], "before": []}


@pytest.mark.parametrize(("timed", "found"), [((1.0, 1.5), (2.0, 1.5, 1)), ((None, None), (2.0, None, 0))])
def test_the_slowest_rank_is_that_of_the_device_clock_where_it_is_read_and_of_the_wall_clock_elsewhere(
    timed: tuple[float | None, float | None], found: tuple[float, float | None, int]
) -> None:
    replies = [AuditReply(wall=(wall,), device=(device,)) for wall, device in zip((2.0, 1.0), timed, strict=True)]
    assert list(_slowest(replies)) == [found]


def test_every_sample_of_a_gang_names_a_rank_the_wall_reading_after_device_times_its_own() -> None:
    samples = play(ranks=3, device=True, wall_too=True, audits=2, blocks=(9.0, 12.0, 10.0))[0].samples
    blocks = [sample for sample in samples if sample.device_s is None]
    assert {(sample.wall_s, sample.rank) for sample in blocks} == {(12.0, 1)}
    assert {sample.rank for sample in samples if sample.device_s is not None} == {2}
    assert {sample.rank for sample in play(device=True, wall_too=True)[0].samples} == {None}


@pytest.mark.parametrize("wall_too", [False, True])
def test_the_last_sample_of_a_turn_holds_the_latencies_of_every_rank_by_series(wall_too: bool) -> None:
    played, _ = play(ranks=2, latencies=True, audits=2, wall_too=wall_too)
    told = [s.latencies for s in played.samples if not s.audit and s.round == 0 and s.side == "after"]
    by_rank = [
        part
        for rank in (0, 1)
        for part in (Latencies((0.25 + rank,) * 2, "ttft", rank), Latencies((0.125,), "queue", rank))
    ]
    assert told == [(), (), *[()] * wall_too, tuple(by_rank)]
    assert not any(s.latencies for s in played.samples if s.audit)
    assert not any(s.latencies for s in play()[0].samples)


def test_telemetry_is_told_whose_turn_it_is_and_audits_belong_to_nobody() -> None:
    marks: list[str | None] = []
    _, log = play(marks=marks, audits=20)
    assert marks[1::2] == [None] * 40
    assert marks[::2] == turns(log)


def test_every_request_has_the_limit_of_its_phase() -> None:
    _, log = play()
    limits = {(TurnRequest, 11.0), (FreshRequest, 11.0), (AuditRequest, 22.0), (WideRequest, 22.0)}
    assert {(type(request), limit) for request, limit in log} == limits


@pytest.mark.parametrize(
    ("seconds", "rounds"), [(0.001, 20), (0.1, 10), (0.09, 12), (0.3, 4), (0.49, 4), (0.51, 2), (60.0, 2)]
)
def test_rounds_fill_the_measured_time_and_are_even(seconds: float, rounds: int) -> None:
    short = TurnPlan(1, 1, 1, 0.0001)
    turns = {"before": short, "after": TurnPlan(1, 1, 1, seconds)}
    assert round_count(turns, SETTINGS, clock="wall", on_gpu=False) == rounds
    on_gpu = replace(SETTINGS, precision=replace(SETTINGS.precision, side_seconds=9.0, gpu_side_seconds=1.0))
    assert round_count(turns, on_gpu, clock="wall", on_gpu=True) == rounds


@pytest.mark.parametrize(("limits", "rounds"), [({}, 12), ({"device_rounds": 6}, 6), ({"rounds": 10}, 10)])
def test_the_device_clock_needs_fewer_rounds(limits: dict[str, int], rounds: int) -> None:
    short = {"before": TurnPlan(1, 1, 1, 0.001), "after": TurnPlan(1, 1, 1, 0.001)}
    settings = replace(SETTINGS, precision=replace(SETTINGS.precision, **{"rounds": 60, **limits}))
    assert round_count(short, settings, clock="device", on_gpu=True) == rounds
    assert round_count(short, settings, clock="wall", on_gpu=True) == settings.precision.rounds


def test_sides_that_follow_a_schedule_have_its_turns_and_no_steps_but_those_of_audits() -> None:
    scheduled = TurnPlan(reentry=0, samples=1, iterations=1, seconds=0.01, rounds=5)
    played, log = play(turn=scheduled, audits=3)
    assert Counter(turns(log)) == {"before": 5, "after": 5}
    assert {type(request) for request, _ in log} == {TurnRequest, AuditRequest}
    assert all(request.lead == 0 for request, _ in log if isinstance(request, AuditRequest))
    assert played.fresh == played.wide == {}


def test_the_values_of_a_workload_are_kept_turn_by_turn_of_the_first_rank() -> None:
    played, log = play(ranks=2)
    assert played.values == {side: {"goodput": (5.0,) * turns(log).count(side)} for side in ("after", "before")}


def test_every_side_is_asked_for_new_inputs_of_its_own() -> None:
    _, log = play()
    asked = {request.side: request.seeds for request, _ in log if isinstance(request, FreshRequest)}
    assert asked == {side: own_seeds((1, 1, 2), side) for side in ("before", "after")}


@pytest.mark.parametrize(("clock", "accounted"), [("wall", 6.0), ("device", 8.0)])
def test_only_a_clock_that_repeats_readings_has_time_of_repeated_ones(clock: str, accounted: float) -> None:
    played, _ = play(clock=clock, repeated_s=2.0)
    assert played.turns["after"][3].hidden_s == pytest.approx(-accounted, abs=0.1)


def test_of_ranks_that_begin_apart_the_last_to_begin_says_how_long_an_iteration_takes() -> None:
    played, _ = play(ranks=3)
    assert played.fresh["after"].fresh == (2.0,) * 3
    assert played.fresh["after"].again == (1.0,) * 3
