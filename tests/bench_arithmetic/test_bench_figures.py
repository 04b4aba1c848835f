"""The bench's own arithmetic: known ratios, counting of verdicts, rows that cannot pass by being few.

What must not live here: running the bench.
"""

import json
import random
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from aiperf.analysis.calibration import SessionEstimate, calibrate, power
from aiperf.workloads.serve.client import Request
from aiperf.workloads.serve.trace import Arrival
from tests.bench import clients, knee, serving, shell, survey
from tests.bench.figures import (
    Figure,
    aiperf_figures,
    at_least,
    calibration_figures,
    holds,
    is_false,
    peer_figures,
    power_figure,
    seconds,
    sessions_figure,
    table,
    true_ratio,
    turns_for,
    under,
)
from tests.bench.tools import welch_ratio
from tests.patience import until


def row(kind="equal", word="equivalent", *, tool="aiperf", truth=1.0, ratio=1.0, low=0.99, high=1.01, spent=60.0):
    said = {"tool": tool, "kind": kind, "word": word, "seconds": spent}
    return {**said, "truth": truth, "ratio": ratio, "low": low, "high": high}


def full(sessions=12):
    rows = [row() for _ in range(sessions)]
    rows += [row("plus2", "inconclusive", truth=1.02, ratio=1.02, low=1.0, high=1.04) for _ in range(sessions)]
    return rows + [row("plus5", "improved", truth=1.05, ratio=1.05, low=1.03, high=1.07) for _ in range(sessions)]


def answers(rows):
    return [f.ok for f in aiperf_figures(rows, sessions=12)]


@pytest.mark.parametrize("ratio", [1.0, 1.02, 1.05])
def test_the_turns_give_the_whole_program_the_ratio_not_only_its_loop(ratio):
    slow = turns_for(ratio, base=20_000_000, start_s=0.05, turn_s=25e-9)
    assert true_ratio(slow, 20_000_000, start_s=0.05, turn_s=25e-9) == pytest.approx(ratio, abs=1e-6)
    assert slow / 20_000_000 == pytest.approx(ratio + (ratio - 1) * 0.1, abs=1e-6)


def test_a_verdict_is_false_only_when_the_truth_forbids_it():
    false = {(kind, word) for kind in ("equal", "plus2", "plus5") for word in WORDS if is_false(kind, word)}
    assert false == {
        *(("equal", word) for word in ("improved", "regressed", "invalid")),
        *(("plus2", word) for word in ("regressed", "invalid")),
        *(("plus5", word) for word in ("equivalent", "regressed", "invalid")),
    }


WORDS = ("improved", "regressed", "equivalent", "inconclusive", "invalid")


def test_a_full_table_of_right_sessions_is_ok_throughout():
    assert answers(full()) == [True, True, True, True]


def test_too_few_sessions_are_never_ok():
    assert answers(full()[:-1]) == [False, False, False, False]


def test_one_false_verdict_misses_the_first_figure_only():
    rows = full()
    rows[0] = row(word="regressed")
    found = aiperf_figures(rows, sessions=12)
    assert [f.ok for f in found] == [False, True, True, True]
    assert found[0].measured == "1 of 36 (equal regressed)"


def test_two_intervals_may_miss_the_truth_and_a_third_may_not():
    rows = full()
    rows[0] = row(low=1.001)
    rows[1] = row(low=1.001)
    assert answers(rows) == [True, True, True, True]
    rows[2] = row(high=0.999)
    assert answers(rows) == [True, False, True, True]


def test_nine_of_twelve_found_are_enough_and_eight_are_not():
    rows = full()
    for place in (24, 25, 26):
        rows[place] = {**rows[place], "word": "inconclusive"}
    assert answers(rows) == [True, True, True, True]
    rows[27] = {**rows[27], "word": "inconclusive"}
    assert answers(rows) == [True, True, False, True]


def test_a_failed_session_is_no_false_verdict_and_still_not_ok():
    rows = full()
    rows[0] = row(word="failed", ratio=None, low=None, high=None)
    assert answers(rows) == [False, True, True, False]


def test_a_long_session_misses_the_time():
    rows = full()
    rows[5] = row(spent=90.0)
    assert answers(rows) == [True, True, True, False]


def test_sessions_of_other_tools_do_not_count_for_aiperf():
    rows = full() + [row(word="different", tool="pyperf", low=None, high=None, spent=200) for _ in range(12)]
    assert answers(rows) == [True, True, True, True]


def test_an_interval_that_is_missing_holds_nothing():
    assert not holds(row(low=None, high=None))
    assert holds(row(low=1.0, high=1.0))
    assert not holds(row(low=1.0001, high=1.1))


def test_each_tool_is_shown_with_its_extremes_and_its_words():
    rows = [row(tool="pyperf", word=word, ratio=r, low=None, high=None) for word, r in SEEN]
    assert peer_figures(rows) == [
        Figure("equal, pyperf", "true 1.000", "0.900 to 1.200; 2 different, 1 same; 60 s each", None)
    ]


SEEN = (("different", 1.2), ("same", 1.0), ("different", 0.9))


def test_welch_gives_the_ratio_of_the_means_and_covers_about_as_often_as_it_says():
    draw = random.Random(7)
    covered = 0
    for _ in range(400):
        before, after = ([draw.gauss(mean, 0.02) for _ in range(10)] for mean in (1.02, 1.0))
        ratio, low, high = welch_ratio(before, after)
        assert low < ratio < high
        covered += low <= 1.02 <= high
    assert 0.92 <= covered / 400 <= 0.98


def session(estimate, *, half=0.01, word="equivalent"):
    return SessionEstimate(estimate, half / 2, 10, estimate - half, estimate + half, word)


def test_one_false_verdict_in_forty_misses_and_says_the_bound():
    sessions = [session(0.001 * (-1) ** n) for n in range(39)]
    right = calibration_figures("x", calibrate([*sessions, session(0.0)], delta=0.02))
    wrong = calibration_figures("x", calibrate([*sessions, session(0.05, word="improved")], delta=0.02))
    assert (right[0].ok, right[1].ok) == (True, True)
    assert (wrong[0].ok, wrong[1].ok) == (False, True)
    assert (right[0].measured, wrong[0].measured) == ("0 of 40 (at most 7.22 %)", "1 of 40 (at most 11.3 %)")


def test_five_percent_must_always_be_found_and_two_percent_in_four_of_five():
    nine = [session(-0.05, word="regressed")] * 9 + [session(0.0)]
    assert power_figure("x", power(nine, slowdown=0.05)).ok is False
    assert power_figure("x", power(nine, slowdown=0.02)).ok is True
    assert power_figure("x", power([*nine[2:], session(0.0), session(0.0)], slowdown=0.02)).ok is False


def test_fifty_nine_sessions_without_a_flag_are_needed():
    assert [sessions_figure(*given).ok for given in ((58, 0), (59, 0), (59, 1), (0, 0))] == [False, True, False, None]


def test_a_limit_reached_is_a_miss():
    assert under("x", 0.35, 0.35, seconds).ok is False
    assert under("x", 0.349, 0.35, seconds) == Figure("x", "< 350 ms", "349 ms", True)
    assert at_least("x", 8, 12, 9) == Figure("x", ">= 9 of 12", "8 of 12", False)


def test_times_are_shown_in_the_unit_that_fits():
    assert [seconds(s) for s in (12.0, 0.0123, 1.5e-5, 1.16e-7)] == ["12 s", "12.3 ms", "15 us", "116 ns"]


def test_the_table_has_one_aligned_line_for_each_figure():
    text = table(
        [Figure("a figure", "< 1", "0.5", True), Figure("b", "shown", "7", None), Figure("c", "0", "1", False)]
    )
    assert text.splitlines() == [
        "figure    target  measured",
        "a figure  < 1     0.5       ok",
        "b         shown   7         -",
        "c         0       1         MISS",
    ]


def test_what_is_kept_can_be_read_again_and_leaves_no_part_behind(tmp_path):
    path = tmp_path / "folder" / "x.json"
    assert shell.kept(path) is None
    shell.keep(path, {"ratio": 1.02})
    assert shell.kept(path) == {"ratio": 1.02}
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def sat(kind: str, words: list[str], *, took: float = 60.0) -> list[dict[str, object]]:
    metric = serving.KINDS[kind].metric
    return [
        {"kind": kind, "server": "engine", "seed": seed, "verdict": word, "seconds": took}
        | {"metrics": {metric: {"word": word}}}
        for seed, word in enumerate(words)
    ]  # fmt: skip


def rows_of(*lines: list[dict[str, object]]) -> list[tuple[str, str, bool | None]]:
    rows = serving.figures([line for each in lines for line in each])
    return [(row.target, row.measured, row.ok) for row in rows if "ttft" not in row.name and "time of" not in row.name]


def test_sittings_of_servers_are_judged_from_twenty_on_and_only_what_says_a_direction_is_a_flag():
    equal = ["equivalent"] * 17 + ["inconclusive"] * 2
    slow = ["regressed"] * 16 + ["inconclusive"] * 3
    assert rows_of(sat("equal", [*equal, "improved"]), sat("decode10", [*slow, "improved"])) == [
        ("<= 1 of 20", "1 of 20, 17 equivalent, 2 inconclusive", True), (">= 16 of 20", "16 of 20", True),
    ]  # fmt: skip
    assert rows_of(
        sat("equal", [*equal[1:], "regressed", "improved"]), sat("decode10", [*slow[1:], "improved", "improved"])
    ) == [
        ("<= 1 of 20", "2 of 20, 16 equivalent, 2 inconclusive", False), (">= 16 of 20", "15 of 20", False),
    ]  # fmt: skip
    assert rows_of(sat("equal", ["invalid"]), sat("decode10", ["regressed"] * 2)) == [
        ("20 sittings", "0 of 1, 1 invalid", None), ("20 sittings", "2 of 2", None),
    ]  # fmt: skip


def test_sittings_of_several_processes_are_read_together_and_a_line_cut_off_is_none(tmp_path):
    lines = [json.dumps(line) for line in sat("equal", ["equivalent"] * 3, took=90.0)]
    (tmp_path / "sittings-0.jsonl").write_text("\n".join(lines[:2]) + "\n", encoding="utf-8")
    (tmp_path / "sittings-1.jsonl").write_text(lines[2] + '\n{"kind": "eq', encoding="utf-8")
    rows = serving.figures(serving.read_lines(tmp_path))
    assert [row.measured for row in rows] == [
        "0 of 3, 3 equivalent",
        "0 of 3, 3 none",
        "90 s in the middle, 90 s at most",
    ]


def test_each_process_sits_what_is_its_own_and_not_kept_yet(tmp_path, monkeypatch):
    sat_down = []

    def sit(folder, kind, seed, plan, state):
        sat_down.append((kind, seed))
        return sat(kind, ["equivalent"])[0] | {"seed": seed}

    monkeypatch.setattr(serving, "_sit", sit)
    (tmp_path / "serving" / "engine").mkdir(parents=True)
    kept = json.dumps(sat("equal", ["equivalent"])[0] | {"seed": 1000})
    (tmp_path / "serving" / "engine" / "sittings-5.jsonl").write_text(kept + "\n", encoding="utf-8")
    for shard in range(2):
        serving.measure(tmp_path, serving.Plan(3, 4, "engine", ("equal", "decode10", "ttft20"), shard, 2))
    assert len(sat_down) == 8
    assert {*sat_down} == {(k, 1000 + n) for k in ("equal", "decode10", "ttft20") for n in range(3)} - {("equal", 1000)}


def test_a_sitting_that_was_cut_off_counts_for_nothing_is_named_and_is_sat_again(tmp_path, monkeypatch):
    cut = sat("decode10", ["inconclusive"])[0] | {"seed": 1000, "cut": "signal"}
    whole = sat("decode10", ["regressed"] * 2)
    rows = serving.figures([*whole, cut])
    assert [row.measured for row in rows] == ["2 of 2", "60 s in the middle, 60 s at most", "1 of 3"]
    sides = {"sides": [[50.0, 54.0, 58.0], [None, None, None]], "ratio": [0.9, 1.0, 1.1], "seed": 1000}
    short = [line | {"limit": 300.0} for line in sat("decode10", ["regressed"] * 14 + ["inconclusive"] * 6)]
    assert serving.figures(short)[0] == Figure(
        "serving, engine, decode +10 %: found", ">= 16 of 20", "14 of 20; 6 others had less time", None
    )
    assert serving.figures([line | {"limit": 600.0} for line in short])[0].ok is False
    assert [row.measured for row in knee.figures([sides, sides | {"cut": "limit"}])] == ["1 of 2", "1 of 1"]

    plan = serving.Plan(1, 4, "engine", ("decode10",))
    monkeypatch.setattr(serving, "_sit", lambda *_, **__: cut)
    folder = tmp_path / "serving" / "engine"
    for lines in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            serving.measure(tmp_path, plan)
        assert len(serving.read_lines(folder)) == lines


def test_a_program_beyond_its_limit_is_asked_to_end_and_what_it_started_goes_with_it():
    script = "sleep 600 & trap 'echo saved; kill $!; exit 7' TERM; echo $!; wait"
    done = shell.run_within(0.5, "bash", "-c", script)
    child, said = done.out.split()
    assert (done.code, said, done.cut) == (7, "saved", "limit")
    state = Path(f"/proc/{child}/stat")
    assert until(lambda: not state.exists() or ") Z" in state.read_text())
    assert shell.run_within(60.0, "bash", "-c", "exit 3").cut == ""


@pytest.mark.parametrize("server", serving.SERVERS)
@pytest.mark.parametrize(
    ("kind", "engine", "transformers"),
    [
        ("decode5", "--decode-delay 0.05 --first-delay 0", "py 0.05 0 serve"),
        ("ttft20", "--decode-delay 0 --first-delay 0.2", "py 0 0.2 serve"),
    ],
)
def test_a_delayed_server_is_measured_against_the_same_program_without_the_delay(server, kind, engine, transformers):
    text = serving.scenario(serving.KINDS[kind], serving.Plan(1, 4, server))
    before, after = (line for line in text.splitlines() if line.startswith(("before", "after")))
    delayed = engine if server == "engine" else transformers
    assert delayed in after
    plain = re.sub(r"0\.\d+", "0", delayed)
    assert after.replace("after", "before").replace(delayed, plain) == before
    equal = serving.scenario(serving.KINDS["equal"], serving.Plan(1, 4, server))
    plain = before.replace("--preset small", "--preset tiny")
    assert plain in equal
    assert plain.replace("before", "after") in equal


def test_rounds_that_are_kept_are_not_measured_again_though_other_files_lie_beside_them(tmp_path) -> None:
    folder = tmp_path / "clients"
    folder.mkdir()
    (folder / "server-times.jsonl").write_text("[0.1, 0.2]\n")
    (folder / "client-trace.jsonl").write_text('{"timestamp": 0.0}\n')
    (folder / "rounds.jsonl").write_text('{"model": "late-token", "round": 0}\n')
    assert clients.measure(tmp_path, guidellm=sys.executable, rounds=1, loads=("late-token",)) == []


def test_two_clients_agree_only_where_the_whole_interval_lies_within_five_percent():
    used = {"server_cpu_s": 3.0, "server_waited_s": 0.2, "client_cpu_s": 1.0}

    def rounds(*ratios: float, model: str = "small") -> list[dict[str, object]]:
        truth = clients.TRUTH.get(model, clients.TRUTH["known"])
        ours = {name: truth[name.partition(" ")[0]] for name in clients.TIMES} | {"late": [0.001, 0.004]} | used
        return [
            {"model": model, "ours": ours, "at its times": ours, "lost": 1}
            | {"guidellm": {name: ours[name] * ratio for name in clients.TIMES} | {"late": [0.003, 0.2]} | used}
            for ratio in ratios
        ]

    near, wide, off = (clients.figures(rounds(*r)) for r in ((1.01, 1.03, 1.02), (0.9, 1.02, 1.1), (1.06, 1.07, 1.08)))
    assert [row.ok for row in near] == [True] * 6 + [None] * 6
    assert near[0].measured == "1.020 [0.995, 1.045] of 50 ms"
    assert near[7].measured == "3 ms, at most 200 ms"
    assert near[8].measured == "3 s of CPU, 200 ms waiting for it"
    assert near[-1].measured == "3"
    assert [row.ok for row in wide[:6]] == [row.ok for row in off[:6]] == [False] * 6
    known = {row.name: row.ok for row in clients.figures(rounds(1.06, 1.07, 1.08, model="known"))}
    assert known["ours over the truth: ttft, p50"] is True
    assert known["guidellm over the truth: ttft, p50"] is False
    slow = {row.name: row for row in clients.figures(rounds(1.01, 1.02, 1.03, model="late-token"))}
    assert slow["guidellm over ours, late-token: ttft, p50"].measured.endswith("of 250 ms")
    assert slow["guidellm over the truth, late-token: end_to_end, p50"].measured.endswith("of 1 s")
    assert [row.ok for row in slow.values() if row.ok is not None] == [True] * 14
    assert clients.figures(rounds(1.0)) == []
    told = rounds(1.06, 1.07, 1.08)
    for line in told:
        for who in ("ours", "guidellm", "at its times"):
            line[who] = line[who] | {"server ttft": line[who]["ttft"], "server end_to_end": 0.9}
    own = {row.name: row.ok for row in clients.figures(told)}
    assert own["guidellm over the server's own, small: ttft from sending, p50"] is True
    assert own["ours over the server's own, small: end_to_end from sending, p50"] is False


def test_a_survey_session_is_right_only_where_it_names_what_was_slowed_and_nothing_else():
    def session(*named, code=6):
        rows = [
            {"node": node, "metric": "gemm", "part": "", "deficit": 0.1, "low": 0.05, "high": 0.15, "verdict": word}
            for node, word in [*((node, "slow") for node in named), ("group7", "ok")]
        ]
        return shell.Done(code, json.dumps(rows), "", 60.0, {})

    slowed = survey.drawn(survey.KINDS["one"], 3, 8)
    assert survey.told(session(*slowed), {}, slowed)["right"]
    assert not survey.told(session(*slowed, "group9"), {}, slowed)["right"]
    assert not survey.told(session(code=0), {}, slowed)["right"]
    assert survey.told(session(code=0), {}, [])["right"]
    assert not survey.told(shell.Done(2, "", "a node failed", 1.0, {}), {}, [])["right"]
    (link,) = survey.drawn(survey.KINDS["link"], 3, 8)
    assert len(link.split(" – ")) == 2


def test_a_limited_link_is_left_out_with_the_reason_where_it_cannot_be_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(survey.networks, "missing", lambda: "no tc")
    assert survey.measure(tmp_path, seeds=[0], kinds=["limited"], groups=6) == []
    assert "survey limited: left out, no tc" in capsys.readouterr().err
    line = {"kind": "limited", "groups": 6, "right": True, "seconds": 99.0, "verdicts": {"slow": 1}}
    rows = survey.figures([line])
    assert rows[0].name == "survey of 6 groups, a link limited to 200 Mbit/s: told"
    assert rows[0].measured == "1 of 1"


def test_few_survey_sessions_are_shown_and_twenty_judged():
    lines = [{"kind": "one", "groups": 8, "right": number > 0, "seconds": 60.0} for number in range(20)]
    assert [row.ok for row in survey.figures(lines)] == [True, None]
    assert [row.ok for row in survey.figures([*lines[:18], *lines[:1], *lines[:1]])] == [False, None]
    assert [row.ok for row in survey.figures(lines[:19])] == [None, None]
    healthy = [{**line, "kind": "healthy", "verdicts": {"ok": 3, "undecided": 1}} for line in lines]
    assert [row.measured for row in survey.figures(healthy)][:2] == ["19 of 20", "60 of 80"]


def test_our_client_sends_again_what_another_one_answered_when_that_one_had_sent_it():
    trace = [Arrival(0.5, "a", 3), Arrival(0.7, "b", 4), Arrival(1.5, "c", 5)]
    sent = [Request(1.0, 0, sent=1.02), Request(0.0, 0, sent=0.9)]
    assert clients._at_its_times(trace, sent) == [Arrival(0.9, "a", 3), Arrival(1.02, "c", 5)]
