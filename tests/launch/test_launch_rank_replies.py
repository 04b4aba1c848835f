"""What the ranks of a side report of it becomes one: the slowest rank's, and the least that any can vouch for."""

from dataclasses import replace

from aiperf.launch.rank_replies import (
    disturbed,
    gang_coverage,
    gang_phases,
    gpu_allocation,
    node_skew,
    refused,
    slowest_rank,
    unequal,
)
from aiperf.protocol.claims import AuditedOutput, UnannouncedAnswer, VariedAnswer
from aiperf.protocol.measuring import Check
from aiperf.protocol.messages import SummaryReply, WideReply
from aiperf.records import Case, Coverage, PhaseTime, Side, SideRun


def reply(phases=None, coverage=None):
    return SummaryReply(
        work={}, counters={}, facts={}, usage={}, phases=phases or {}, coverage=coverage, peak_bytes=1, peak_gpu_bytes=1
    )


def test_of_each_phase_the_rank_counts_that_it_took_longest():
    slow, fast = PhaseTime(2, 3.0, 1.5), PhaseTime(2, 1.0, 0.5)
    ranks = [reply({"prepare": fast, "reset": slow}), reply({"prepare": slow}), reply({})]
    assert gang_phases(ranks) == {"prepare": slow, "reset": slow}


def test_an_input_is_fixed_where_any_rank_met_it_so_and_unknown_where_any_rank_cannot_say():
    none, mask, ids = Coverage(fixed=()), Coverage(fixed=("mask",)), Coverage(fixed=("ids", "mask"))
    assert gang_coverage([reply(coverage=each) for each in (none, mask, ids)]) == Coverage(fixed=("mask", "ids"))
    assert gang_coverage([reply(coverage=mask), reply(coverage=Coverage())]).fixed is None
    assert gang_coverage([reply(coverage=mask), reply()]) is None


def test_what_the_host_did_to_a_client_voids_the_pair_and_only_what_a_side_did_makes_it_invalid():
    codes = ("rate_off", "sent_late", "client_busy", "token_count", "prefix_cache", "cache_unknown")
    replies = [replace(reply(), faults={code: f"{code} it is" for code in codes})]
    assert [(check.code, check.kind, check.detail) for check in refused("after", replies)] == [
        ("token_count", "load", "after: token_count it is"),
        ("prefix_cache", "load", "after: prefix_cache it is"),
    ]
    assert [(found.kind, found.side, found.voids) for found in disturbed("after", replies)] == [
        ("rate_off", "after", True),
        ("sent_late", "after", True),
        ("client_busy", "after", True),
        ("cache_unknown", "after", False),
    ]


def test_what_sides_do_not_share_besides_their_outputs_has_kinds_of_its_own():
    case = Case("s", "s", "", "", (Side("before"), Side("after")), check=Check("tolerance"))
    runs = {side: SideRun(side, (1,), None, 0.0, 0, work={"items": n}) for side, n in (("before", 2), ("after", 3))}
    wide = {
        side: [
            WideReply(
                outputs={"out": AuditedOutput("float32", (), 4, worst=worst)},
                inputs="x",
                other=VariedAnswer(("mask",), "y", {"out": worst}),
            )
        ]
        for side, worst in (("before", "finite"), ("after", "nan"))
    }
    assert [(found.kind, found.sides, found.passed) for found in unequal(case, runs, wide)] == [
        ("wide_inputs", ("after",), False),
        ("varied_inputs", ("after",), False),
        ("work", ("after",), False),
    ]


def test_steps_in_a_row_that_left_an_output_as_it_was_fail_a_check_of_their_side_alone():
    case = Case("s", "s", "", "", (Side("before"), Side("after")), check=Check("named", reason="by design"))
    runs = {side: SideRun(side, (1,), None, 0.0, 0) for side in ("before", "after")}
    wide = {"before": [WideReply(steps=12, left_out=0)], "after": [WideReply(steps=12, left_out=1)]}
    (found,) = unequal(case, runs, wide)
    assert (found.kind, found.sides, found.passed) == ("left_out", ("after",), False)
    assert found.detail == "after: 1 of 12 steps in a row left an output as it was before the step"


def test_steps_that_nothing_announced_and_left_an_output_as_it_was_fail_a_check_of_their_side_alone():
    case = Case("s", "s", "", "", (Side("before"), Side("after")), check=Check("named", reason="by design"))
    runs = {side: SideRun(side, (1,), None, 0.0, 0) for side in ("before", "after")}
    wide = {
        side: [WideReply(unannounced=UnannouncedAnswer("", 12, left={"fine": 0, "out": left}))]
        for side, left in (("before", 0), ("after", 2))
    }
    (found,) = unequal(case, runs, wide)
    assert (found.kind, found.sides, found.passed) == ("left_out", ("after",), False)
    assert found.detail == "after: 2 of 12 unannounced steps left out as it was before the step"
    wide["before"] = [WideReply(unannounced=UnannouncedAnswer("", 12, read=("out",)))]
    wide["after"] = [WideReply(unannounced=UnannouncedAnswer("", 12, left={"out": 0}))]
    (found,) = unequal(case, runs, wide)
    assert (found.kind, found.sides) == ("left_out", ("before",))


def test_the_rank_that_is_slowest_most_often_is_named_the_first_of_equals():
    assert slowest_rank([(1.0, 2.0), (3.0, 2.0), (1.0, 4.0)]) == 1
    assert slowest_rank([(1.0, 2.0), (2.0, 1.0)]) == 0
    assert slowest_rank([]) is None


def test_the_skew_of_a_node_is_its_slowest_rank_against_the_median_of_all():
    times = [(1.0, 1.0, 1.0, 2.0)] * 3
    assert node_skew(times, ("n1", "n2")) == {"n1": 1.0, "n2": 2.0}
    assert node_skew(times, ()) == node_skew([], ("n1", "n2")) == {}


def test_the_average_allocations_of_ranks_add_up_where_each_tells_its_own():
    known = replace(reply(), gpu_allocation=5)
    assert gpu_allocation([known, known]) == {"gpu_allocation_bytes": 10.0}
    assert gpu_allocation([known, reply()]) == {}
