"""What no audit could check is noted with its reason; strict mode refuses what has none, and only what it is about."""

from dataclasses import replace

import pytest
from analysis_maker import SETTINGS, make_case, make_pair, make_pairs, make_run

from aiperf.analysis.notes import note_sentence
from aiperf.analysis.outside import phase_notes
from aiperf.analysis.recompute import against_sides, conclude, recompute
from aiperf.analysis.unverified import DOUBTS, doubted, doubts, refused, tolerance_notes, unexplained, unverified_notes
from aiperf.protocol.measuring import Check
from aiperf.records import CaseRecord, CheckResult, Coverage, Incident, Latencies, Note, Pair, PhaseTime, Side

SIDES = ("before", "after")
D = [0.051, 0.043, 0.060, 0.048, 0.055, 0.039]


def pairs_of(before=Coverage(fixed=()), after=Coverage(fixed=()), *, last=None, facts=None):  # noqa: B008
    """Six pairs of sides covered so; ``last``: how after was covered in the last of them."""
    runs = [replace(make_run("before"), coverage=before), replace(make_run("after"), coverage=after, facts=facts or {})]
    pairs = make_pairs(D, runs=runs)
    if last is not None:
        pairs[-1] = replace(pairs[-1], runs=(runs[0], replace(runs[1], coverage=last)))
    return pairs


def notes_of(*args, **kwargs):
    return list(unverified_notes(pairs_of(*args, **kwargs), make_case()))


def test_each_thing_that_could_not_be_checked_is_a_note_on_the_sides_that_it_is_about():
    after = Coverage(inputs="undeclared", fixed=(), poisoned=False, latencies=True)
    assert notes_of(after=after) == [
        Note("inputs_undeclared", {"sides": ["after"], "reason": ""}),
        Note("outputs_unpoisoned", {"sides": ["after"], "reason": ""}),
        Note("latencies_reported", {"sides": ["after"], "reason": ""}),
    ]
    assert notes_of(after=after, before=after)[0].values["sides"] == ["before", "after"]
    assert notes_of() == []


def test_inputs_count_as_fixed_where_every_launch_that_can_say_so_found_them_so():
    fixed = Coverage(fixed=("ids", "mask"))
    (note,) = notes_of(after=fixed, last=Coverage(fixed=("mask",)))
    assert note.values == {"sides": ["after"], "reason": "", "inputs": ["mask"]}
    assert notes_of(after=fixed, last=Coverage(fixed=None))[0].values["inputs"] == ["ids", "mask"]
    assert notes_of(after=fixed, last=Coverage(fixed=())) == []
    assert notes_of(after=Coverage(fixed=None)) == []


def test_a_reason_is_carried_to_what_it_is_the_reason_of():
    given = {"fixed_inputs": "a schedule", "kept_outputs": "state", "latency_source": "clock"}
    after = Coverage(fixed=("ids",), poisoned=False, latencies=True, **given)
    reasons = {note.code: note.values["reason"] for note in notes_of(after=after)}
    assert reasons == {"inputs_fixed": "a schedule", "outputs_unpoisoned": "state", "latencies_reported": "clock"}
    redrawn = Coverage(inputs="redrawn", fixed=(), fixed_inputs="is not needed")
    assert notes_of(after=redrawn) == []


def test_programs_that_leave_processes_behind_are_noted():
    assert [note.code for note in notes_of(None, None, facts={"stragglers": 2})] == ["stragglers"]
    assert notes_of(None, None, facts={"stragglers": 0}) == []


def test_sides_with_reasons_of_their_own_have_notes_of_their_own():
    one, two = Coverage(fixed=("x",), fixed_inputs="a"), Coverage(fixed=("x",), fixed_inputs="b")
    assert [note.values["sides"] for note in notes_of(one, two)] == [["before"], ["after"]]


def returning(*facts):
    """Three pairs of sides whose functions returned so."""
    runs = [replace(make_run(n), facts=f) for n, f in zip(("before", "after"), facts, strict=True)]
    return list(unverified_notes(make_pairs(D[:3], runs=runs), make_case()))


def test_functions_that_return_nothing_agree_without_being_checked():
    nothing, something = {"returns": None}, {"returns": "int"}
    (note,) = returning(nothing, nothing)
    assert note == Note("nothing_returned", {"sides": ["before", "after"], "reason": ""})
    assert note_sentence(note) == ("neither side returned anything, so equal work was not checked")
    assert unexplained([note], sides=("before", "after"), metric="time") == [note]
    # One that returns something is compared with the other; without a check no side is asked.
    others = ((nothing, something), (something, something), ({}, {}), (nothing, {}))
    assert [returning(*each) for each in others] == [[]] * 4


def printing(relation, *, reason="", names=("before", "after")):
    """Notes on three pairs of programs of which the second's output relates so to the first one's."""
    runs = [make_run("before"), replace(make_run("after"), facts={"prints": relation} if relation else {})]
    sides = tuple(Side(name, command=(f"/bin/{name}",)) for name in names)
    case = replace(make_case(), sides=sides, check=Check("none", reason=reason))
    return list(unverified_notes(make_pairs(D[:3], runs=runs), case))


def test_programs_that_print_nothing_agree_without_being_checked():
    (note,) = printing("nothing")
    assert note == Note("nothing_printed", {"sides": ["before", "after"], "reason": ""})
    assert note_sentence(note) == "neither program wrote anything to standard output, so equal work was not checked"
    # A program that prints "done" is checked no more than one that prints nothing: strict mode takes both.
    assert refused([note], sides=("before", "after"), metric="time") is None
    (explained,) = printing("nothing", reason="they write files")
    assert note_sentence(explained).endswith("equal work was not checked (they write files)")
    assert [printing(other) for other in ("same", "otherwise", "varies", "unseen", "")] == [[]] * 5
    assert printing("nothing", names=("before",)) == [], "what has nothing beside it is not compared"


@pytest.mark.parametrize(
    ("after", "last", "noted"),
    [
        pytest.param(Coverage("undeclared", fixed=()), Coverage("undeclared", fixed=()), True, id="in every launch"),
        pytest.param(Coverage("undeclared", fixed=()), Coverage("redrawn", fixed=()), False, id="redrawn in one"),
        pytest.param(Coverage("redrawn", fixed=()), Coverage("undeclared", fixed=None), False, id="unknown in one"),
        pytest.param(
            Coverage("undeclared", fixed=()), Coverage("redrawn", fixed=None), True, id="one audit says nothing"
        ),
        pytest.param(
            Coverage("undeclared", fixed=None), Coverage("undeclared", fixed=None), True, id="one audit in all"
        ),
    ],
)
def test_inputs_are_undeclared_where_no_launch_shows_that_they_were_redrawn(after, last, noted) -> None:
    assert [note.code for note in notes_of(after=after, last=last)] == ["inputs_undeclared"] * noted


FIXED = Coverage(fixed=("ids",))


def verdict(pairs, *, strict=True):
    return conclude(make_case(), pairs, strict=strict, **SETTINGS)[0].verdict


def test_strict_mode_refuses_what_has_no_reason_with_the_line_to_write():
    found = verdict(pairs_of(after=FIXED))
    assert (found.word, found.reason) == ("invalid", "unverified")
    assert found.sentence == (
        "not verified (strict): audits of after used the same ids every time: not redrawn; "
        "let setup draw them from its seed, or in a Workload redraw them with redraw=..., or say why not with "
        'fixed_inputs="..."'
    )
    assert verdict(pairs_of(after=FIXED), strict=False).word == "improved"
    assert verdict(pairs_of(before=FIXED)).reason == "unverified"


@pytest.mark.parametrize(
    "covered",
    [
        pytest.param(Coverage(fixed=("ids",), fixed_inputs="the schedule is the question"), id="with a reason"),
        pytest.param(Coverage(fixed=()), id="nothing open"),
        pytest.param(Coverage(fixed=(), latencies=True), id="latencies, where the metric is none"),
        pytest.param(None, id="a record of before it was kept"),
    ],
)
def test_strict_mode_accepts_what_is_checked_or_explained(covered):
    assert verdict(pairs_of(after=covered)).word == "improved"


def test_reported_latencies_are_refused_where_a_comparison_is_about_them():
    note = Note("latencies_reported", {"sides": ["after"], "reason": ""})
    assert unexplained([note], sides=("after", "before"), metric="latency_p50") == [note]
    assert unexplained([note], sides=("after", "before"), metric="time") == []
    assert unexplained([note], sides=("third", "before"), metric="latency_p50") == []


def test_notes_on_other_things_are_never_unexplained():
    assert unexplained([Note("most_pairs", {"pairs": 40, "needed": None})], sides=("after",), metric="time") == []


def test_only_comparisons_of_the_side_in_question_are_refused():
    times = {"before": 4e-3, "tiled": 2e-3, "cluster": 1e-3}
    runs = [replace(make_run(name), coverage=FIXED if name == "tiled" else Coverage(fixed=())) for name in times]
    pairs = [make_pair(i, times, runs=runs) for i in range(6)]
    found = conclude(make_case(*times), pairs, strict=True, **SETTINGS)
    assert {(r.side, r.against): r.verdict.reason == "unverified" for r in found} == {
        ("tiled", "before"): True,
        ("cluster", "before"): False,
        ("cluster", "tiled"): True,
    }


def test_a_stored_case_is_concluded_again_as_strictly_as_it_was():
    pairs = pairs_of(after=FIXED)
    record = CaseRecord(case=make_case(), status="measured", pairs=tuple(pairs), strict=True)
    assert recompute(record, pairs, width=0.01)[0].verdict.reason == "unverified"
    assert recompute(replace(record, strict=False), pairs, width=0.01)[0].verdict.word == "improved"


def test_an_error_that_only_the_stated_tolerance_lets_pass_is_told_unless_the_scenario_says_why():
    loose = CheckResult(True, "after with before", max_error=0.004, sides=("after",), loosened=1e-4)
    pairs = [replace(pair, checks=(loose,)) for pair in pairs_of()]
    case = make_case()
    case = replace(case, check=replace(case.check, kind="tolerance", rtol=0.01))
    (note,) = tolerance_notes(pairs, case)
    assert note_sentence(note) == (
        "outputs of after are off by up to 0.004: within the scenario's tolerance of 0.01, "
        "but beyond the 0.0001 that is usual for their type"
    )
    (note,) = tolerance_notes(pairs, replace(case, check=Check("named", name="near")))
    assert note_sentence(note) == (
        "outputs of after are off by more than the 0.0001 that is usual for their type: they pass only the workload's "
        "own check, and the scenario gives no reason"
    )
    assert not list(tolerance_notes(pairs, replace(case, check=replace(case.check, reason="half precision"))))
    assert not list(tolerance_notes(pairs_of(), case))


def in_prepare(seconds: float, covered: Coverage = Coverage(fixed=())) -> list[Pair]:  # noqa: B008
    """Pairs whose second side is twice as fast and spends so long in ``prepare``."""
    times = {"before": 2e-3, "after": 1e-3}
    phases = {"before": {}, "after": {"prepare": PhaseTime(10, 10 * seconds, seconds)}}
    runs = [replace(make_run(name), phases=phases[name], coverage=covered) for name in times]
    return [make_pair(i, {**times, "before": times["before"] * (1 + i / 100)}, runs=runs) for i in range(6)]


@pytest.mark.parametrize(("phase", "taken"), [("prepare", 1), ("inputs", 1), ("outputs", 1), ("redraw", 0)])
def test_what_takes_a_win_is_work_in_functions_in_which_honest_sides_do_none(phase: str, taken: int) -> None:
    spent = {"before": PhaseTime(10, 1e-5, 1e-6), "after": PhaseTime(10, 50e-3, 5e-3)}
    runs = [replace(make_run(name), phases={phase: spent[name]}) for name in SIDES]
    pairs = [make_pair(i, {"before": 2e-3, "after": 1e-3}, runs=runs) for i in range(6)]
    assert len(list(phase_notes(pairs, make_case()))) == 1
    assert len(doubts(pairs, make_case())) == taken


@pytest.mark.parametrize("strict", [False, True])
def test_no_side_is_called_better_that_works_as_long_where_no_time_holds_it(strict: bool) -> None:
    (moved, *_), (little, *_) = (
        conclude(make_case(), in_prepare(s), strict=strict, **SETTINGS) for s in (1e-3, 0.05e-3)
    )
    assert (moved.verdict.word, moved.verdict.reason) == ("invalid", "doubted")
    assert moved.verdict.sentence == (
        "after spends 1.00 ms a step in prepare(), before 0 ns: not timed; "
        'move it into the step, where it is timed, or say why not with done_outside="..." in a Workload'
    )
    assert little.verdict.word == "improved"


def test_a_side_that_says_why_it_works_outside_of_the_time_is_compared_and_its_reason_told() -> None:
    pairs = in_prepare(1e-3, Coverage(fixed=(), done_outside="restores the table"))
    assert conclude(make_case(), pairs, strict=True, **SETTINGS)[0].verdict.word == "improved"
    (note,) = phase_notes(pairs, make_case())
    assert note_sentence(note).endswith("before 0 ns: not timed (restores the table)")


def scheduled(*apart: int, kind: str = "left_cpus", covered: Coverage = Coverage(fixed=())) -> list[Pair]:  # noqa: B008
    """Pairs whose second side is twice as fast; in these of them its threads left its CPUs."""
    runs = [replace(make_run(name), coverage=covered) for name in SIDES]
    pairs = [make_pair(i, {"before": 2e-3 * (1 + i / 100), "after": 1e-3}, runs=runs) for i in range(6)]
    told = (Incident(kind, "after", "some of its threads may run on CPU 7"),)
    return [replace(pair, incidents=told) if i in apart else pair for i, pair in enumerate(pairs)]


@pytest.mark.parametrize("kind", ["left_cpus", "priority"])
def test_no_side_is_called_faster_on_cpus_or_with_a_priority_of_its_own(kind: str) -> None:
    found = conclude(make_case(), scheduled(0, 1, 2, 3, kind=kind), **SETTINGS)[0].verdict
    assert (found.word, found.reason) == ("invalid", "doubted")
    said = "after is no longer scheduled as it was started: some of its threads may run on CPU 7; leave"
    assert found.sentence.startswith(said)


def test_sides_that_are_both_scheduled_otherwise_are_compared() -> None:
    both = [
        replace(pair, incidents=tuple(Incident("left_cpus", side, "on CPU 7") for side in SIDES))
        for pair in scheduled()
    ]
    assert conclude(make_case(), both, **SETTINGS)[0].verdict.word == "improved"


def test_pairs_that_do_not_count_say_nothing_of_how_a_side_is_scheduled() -> None:
    hot = Incident("thermal", "", "hot", voids=True)
    pairs = [
        replace(pair, incidents=(*pair.incidents, hot)) if i < 3 else pair
        for i, pair in enumerate(scheduled(0, 1, 2, 3))
    ]
    assert [len(doubts(each, make_case())) for each in (scheduled(0, 1, 2, 3), pairs)] == [1, 0]


def test_programs_that_set_their_own_priority_are_told_and_refused_by_strict_mode_alone() -> None:
    case = make_case()
    programs = replace(case, sides=tuple(replace(side, workload="", command=("true",)) for side in case.sides))
    assert [len(doubts(scheduled(*range(6)), programs, strict=strict)) for strict in (False, True)] == [0, 1]


OUTPUTS = {"outputs": PhaseTime(1, 1e-6, 1e-6)}


def with_usage(cpu_s: float, *, cpus: tuple[int, ...] = (0,), phases: dict[str, PhaseTime] | None = None) -> list[Pair]:
    """Pairs whose second side takes 1 ms a step, half of the first, and so many seconds of CPU time."""
    usage = {"before": 2e-3, "after": cpu_s}
    runs = [
        replace(
            make_run(name),
            coverage=Coverage(fixed=()),
            usage={"iterations": 100.0, "user_s": 80 * s, "system_s": 20 * s},
            phases=OUTPUTS if phases is None else phases,
        )
        for name, s in usage.items()
    ]
    pairs = [make_pair(i, {"before": 2e-3 * (1 + i / 100), "after": 1e-3}, runs=runs) for i in range(6)]
    return [replace(pair, cpus=cpus) for pair in pairs]


@pytest.mark.parametrize(
    ("pairs", "word"),
    [
        pytest.param(with_usage(1.3e-3), "invalid", id="more than its CPU has"),
        pytest.param(with_usage(1.2e-3), "improved", id="a little more, as clocks err"),
        pytest.param(with_usage(1.9e-3, cpus=(0, 1)), "improved", id="as much as two have"),
        pytest.param(with_usage(2.6e-3, cpus=(0, 1)), "invalid", id="more than two have"),
        pytest.param(with_usage(9e-3, cpus=()), "improved", id="CPUs are free"),
        pytest.param(with_usage(9e-3, phases={"prepare": PhaseTime(1, 0.0, 0.0)}), "improved", id="prepares"),
        pytest.param(with_usage(9e-3, phases={}), "improved", id="a record that does not say whether it prepares"),
    ],
)
def test_no_side_is_called_faster_that_uses_more_cpu_time_than_its_cpus_have(pairs: list[Pair], word: str) -> None:
    found = conclude(make_case(), pairs, **SETTINGS)[0].verdict
    assert found.word == word
    if word == "invalid":
        assert found.reason == "doubted"
        assert "s of CPU time in each second on" in found.sentence


def test_cpu_time_that_is_not_of_the_timed_steps_says_nothing_of_cpus() -> None:
    cold = make_case(cache="cold")
    spread = replace(make_case(), sides=tuple(replace(side, nodes=2, ranks=2) for side in make_case().sides))
    lacks = [replace(p, runs=tuple(replace(r, usage={}) for r in p.runs)) for p in with_usage(9e-3)]
    assert [len(doubts(with_usage(9e-3), case)) for case in (make_case(), cold, spread)] == [1, 0, 0]
    assert len(doubts(lacks, make_case())) == 0


def test_too_little_cpu_time_says_nothing_of_cpus() -> None:
    """Turns of milliseconds are mostly re-entry, which is in the CPU time and not in the readings."""
    short = [
        replace(p, runs=tuple(replace(r, usage={name: value / 100 for name, value in r.usage.items()}) for r in p.runs))
        for p in with_usage(9e-3)
    ]
    assert [len(doubts(pairs, make_case())) for pairs in (with_usage(9e-3), short)] == [1, 0]


def test_a_few_pairs_another_kind_or_a_reason_take_no_win() -> None:
    explained = Coverage(fixed=(), done_outside="the driver's thread binds itself")
    for pairs in (scheduled(0, 1, 2), scheduled(*range(6), kind="affinity"), scheduled(*range(6), covered=explained)):
        assert conclude(make_case(), pairs, **SETTINGS)[0].verdict.word == "improved"


def with_latencies(**covered: str) -> list[Pair]:
    """Pairs of two sides that report latencies, by which the second one is a third faster."""
    runs = [replace(make_run(name), coverage=Coverage(fixed=(), latencies=True, **covered)) for name in SIDES]
    found = []
    for i in range(6):
        pair = make_pair(i, {"before": 2e-3, "after": 2e-3 * (1 + i / 1000)}, runs=runs)
        units = {"before": (0.03 + i / 10000,) * 40, "after": (0.02,) * 40}
        samples = [replace(s, latencies=(Latencies(units[s.side]),)) for s in pair.samples if not s.audit]
        found.append(replace(pair, samples=tuple(samples)))
    return found


def test_no_side_is_called_better_by_latencies_that_only_its_own_code_knows_and_does_not_explain() -> None:
    case = make_case(metric="latency_p50")
    found = conclude(case, with_latencies(), **SETTINGS)
    primary = next(r for r in found if r.primary)
    assert (primary.verdict.word, primary.verdict.reason) == ("invalid", "doubted")
    assert primary.verdict.sentence.endswith('say how they are taken with latency_source="..." in the Workload')
    explained = conclude(case, with_latencies(latency_source="a clock around each request"), **SETTINGS)
    assert next(r for r in explained if r.primary).verdict.word == "improved"


def test_no_side_is_called_better_whose_outputs_pass_by_an_own_check_that_nobody_explains() -> None:
    loose = CheckResult(True, "after with before", max_error=0.2, sides=("after",), loosened=1e-4)
    pairs = [replace(pair, checks=(loose,)) for pair in pairs_of()]
    case = replace(make_case(), check=Check("named", name="near"))
    found = conclude(case, pairs, **SETTINGS)[0].verdict
    assert (found.word, found.reason) == ("invalid", "doubted")
    assert found.sentence.endswith('say why that is close enough with check: {kind: named, ..., reason: "..."}')
    reason = replace(case, check=replace(case.check, reason="samples differ"))
    stated = replace(case, check=Check("tolerance", rtol=0.5))  # a number is a statement, too
    assert [conclude(each, pairs, **SETTINGS)[0].verdict.word for each in (reason, stated)] == ["improved"] * 2


def test_a_first_run_that_did_more_takes_the_win_in_strict_mode_only() -> None:
    note = Note("first_run_slower", {"side": "after", "kind": "cpu", "first_s": 0.4, "later_s": 0.1})
    assert doubted([note], winner="after", metric="time") == Note("unverified", {"code": note.code, **note.values})


def test_what_a_side_does_elsewhere_takes_no_win_from_the_other_one_nor_another_metric() -> None:
    note = Note("first_elsewhere", {"side": "after", "own_s": 0.1, "base": "before", "base_s": 2.0, "more_s": 3.0})
    assert doubted([note], winner="after", metric="first_iteration")
    assert doubted([note], winner="before", metric="first_iteration") is None
    assert doubted([note], winner="", metric="first_iteration") is None
    assert doubted([note], winner="after", metric="time") is None


LATENCY = ("latency_p50", "latency_p99")
EVERY = ("time", "wall", "first_iteration", "peak_memory", "user", "system", *LATENCY)


@pytest.mark.parametrize(
    ("code", "metrics"),
    [
        ("time_outside", {"time", "wall"}),
        ("first_elsewhere", {"first_iteration"}),
        ("memory_elsewhere", {"peak_memory"}),
        ("latencies_reported", {*LATENCY}),
        ("tolerance_used", {*EVERY}),
        ("scheduled_apart", {"time", "wall", "first_iteration", *LATENCY}),
        ("batches_only", {"time", "wall"}),
        ("first_run_slower", {"time", "user", "system"}),
    ],
)
def test_a_doubt_takes_wins_in_the_metrics_that_it_can_make_better_and_in_no_others(code, metrics) -> None:
    note = Note(code, {"side": "after"})
    assert {metric for metric in EVERY if doubted([note], winner="after", metric=metric)} == metrics
    assert code in DOUBTS


def test_outputs_that_no_input_moves_are_told_where_every_launch_found_them_so_and_refused_without_a_reason():
    same = Coverage(fixed=(), unmoved=("fine",), fixed_inputs="a checker")
    (note,) = notes_of(after=same)
    assert note == Note("outputs_unmoved", {"sides": ["after"], "reason": "a checker", "inputs": ["fine"]})
    assert notes_of(after=same, last=Coverage(fixed=())) == []
    assert notes_of(after=same, last=Coverage(fixed=None)) == [note]
    assert unexplained([note], sides=SIDES, metric="time") == []
    open_note = replace(note, values={**note.values, "reason": ""})
    assert unexplained([open_note], sides=SIDES, metric="time") == [open_note]


def test_unnamed_arrays_are_told_where_every_launch_found_some_and_never_refused():
    two = Coverage(fixed=(), unnamed=2, largest_unnamed="float32 [256]")
    (note,) = notes_of(after=two)
    values = {"sides": ["after"], "reason": "", "count": 2, "largest": "float32 [256]"}
    assert note == Note("inputs_unnamed", values)
    assert unexplained([note], sides=SIDES, metric="time") == []
    assert refused([note], sides=SIDES, metric="time") is None
    assert doubts(pairs_of(after=two), make_case(), strict=True) == ()
    one = replace(two, unnamed=1, largest_unnamed="float32 [8]")
    assert notes_of(after=two, last=one)[0].values == {**values, "count": 1, "largest": "float32 [8]"}
    assert notes_of(after=two, last=replace(two, unnamed=0)) == []
    assert notes_of(after=two, last=replace(two, unnamed=None)) == [note]
    assert notes_of(after=replace(two, unnamed=None)) == []


def test_sides_with_equal_unnamed_arrays_and_reasons_share_a_note():
    two = Coverage(fixed=(), unnamed=2, largest_unnamed="float32 [256]")
    assert [note.values["sides"] for note in notes_of(two, two)] == [["before", "after"]]
    for other in ({"unnamed": 3}, {"largest_unnamed": "float32 [8]"}, {"fixed_inputs": "frozen weights"}):
        notes = notes_of(two, replace(two, **other))
        assert [note.values["sides"] for note in notes] == [["before"], ["after"]]
    assert notes[1].values["reason"] == "frozen weights"


def test_a_metric_that_the_workload_gives_itself_is_told_where_the_case_is_about_it():
    runs = [replace(make_run(side), coverage=Coverage(fixed=()), values={"rate": (3.0,)}) for side in SIDES]
    about, other = (list(unverified_notes(make_pairs(D, runs=runs), make_case(metric=m))) for m in ("rate", "time"))
    assert about == [Note("values_reported", {"sides": ["before", "after"], "reason": "", "inputs": ["rate"]})]
    assert other == []
    assert note_sentence(about[0]) == "rate is as reported by the code of before and after; nothing checks it"


UNUSED = Coverage(fixed=(), unmoved=("out",), unmoved_values=64, unnamed=1)


def unused(before, after, *, last=None):
    """What the records of sides covered so say against them."""
    return [n for n in against_sides(make_case(), pairs_of(before, after, last=last)) if n.code == "inputs_unused"]


def test_outputs_that_no_named_input_has_a_part_in_make_a_comparison_invalid():
    (note,) = unused(UNUSED, UNUSED)
    assert note.values == {"side": "after", "base": "before", "outputs": ["out"]}
    assert "out of before or after: they are computed from something else" in note_sentence(note)
    pairs = pairs_of(UNUSED, UNUSED)
    first = conclude(make_case(), pairs, **SETTINGS)[0]
    assert (first.verdict.word, first.verdict.reason) == ("invalid", "inputs_unused")


@pytest.mark.parametrize(
    "change",
    [
        {"unmoved": ()},
        {"unmoved_values": 15},
        {"fixed_inputs": "a table"},
        {"inputs": "redrawn"},
    ],
)
@pytest.mark.parametrize("side", ["before", "after"])
def test_no_side_is_blamed_for_unused_inputs_where_one_has_its_output_moved_a_few_numbers_or_a_reason(change, side):
    other = replace(UNUSED, **change)
    assert unused(*((other, UNUSED) if side == "before" else (UNUSED, other))) == []


def test_unused_inputs_need_an_array_that_is_not_named_and_every_launch():
    none = replace(UNUSED, unnamed=0)
    assert unused(none, replace(UNUSED, unnamed=None)) == []
    assert len(unused(none, UNUSED)) == len(unused(UNUSED, none)) == 1
    assert unused(UNUSED, UNUSED, last=Coverage(fixed=())) == []
    assert len(unused(UNUSED, UNUSED, last=Coverage(fixed=(), unmoved=("out",)))) == 1
