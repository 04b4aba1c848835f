"""A case over hosts: which results are taken together, and how often a prediction holds on a further host."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from analysis_maker import result_of

from aiperf.analysis.over_hosts import OnHost, over_hosts
from aiperf.records import Case, CaseRecord, RunRecord, Side
from aiperf.records.machines import Machine

RESULT = result_of()
CASE = Case("copy", "copy", "", "", (Side("before"), Side("after")), scenario_hash="a" * 12)


def measured(
    host: str, ratio: float, *, case: Case = CASE, cpu: str = "one", **changes
) -> tuple[RunRecord, CaseRecord]:
    c = replace(RESULT.comparison, ratio=ratio, low=ratio * 0.99, high=ratio * 1.01)
    verdict = replace(RESULT.verdict, **{"word": "improved"} | changes)
    run = RunRecord(f"run-{host}", (), "", host={"hostname": host, "cpu_model": cpu}, host_id=host)
    result = replace(RESULT, comparison=c, primary=True, verdict=verdict)
    return run, CaseRecord(case=case, status="measured", results=(result,))


def test_three_hosts_of_a_kind_predict_a_fourth_and_two_do_not():
    ((case,),) = [
        kind.cases for kind in over_hosts([measured(h, r) for h, r in zip("abc", (2.0, 2.1, 2.2), strict=True)])
    ]
    logs = np.log([2.0, 2.1, 2.2])
    half = 4.302652729696142 * logs.std(ddof=1) * math.sqrt(1 + 1 / 3)
    assert np.allclose(np.log([case.ratio, case.low, case.high]), [logs.mean(), logs.mean() - half, logs.mean() + half])
    assert 0.04 < case.spread < logs.std(ddof=1)
    ((case,),) = [kind.cases for kind in over_hosts([measured("a", 2.0), measured("b", 2.1)])]
    assert (case.low, case.high, len(case.hosts)) == (None, None, 2)


def test_hosts_that_agree_better_than_their_own_errors_promise_no_more_than_these():
    ((case,),) = [kind.cases for kind in over_hosts([measured(host, 2.0) for host in "abc"])]
    assert case.spread == 0.0
    assert case.low < 1.98 < 2.02 < case.high


def test_other_kinds_of_hosts_are_never_taken_together():
    kinds = over_hosts([measured("a", 2.0), measured("b", 2.0, cpu="two"), measured("c", 2.0)])
    assert [[one.run.host_id for one in kind.cases[0].hosts] for kind in kinds] == [["a", "c"], ["b"]]


def test_of_a_host_the_newest_result_that_stands_counts_and_another_question_is_left_out():
    other = replace(CASE, scenario_hash="b" * 12)
    found = [measured("a", 1.5), measured("b", 2.0, case=other), measured("c", 2.0), measured("a", 1.8)]
    found += [measured("a", 9.0, word="invalid"), measured("c", 9.0, provisional=True)]
    ((case,),) = [kind.cases for kind in over_hosts(found)]
    assert [(one.run.host_id, one.result.comparison.ratio) for one in case.hosts] == [("c", 2.0), ("a", 1.8)]
    assert case.otherwise == 1


def recorded(ratio: float, *, uuid: str = "", machine_id: str = "", host_id: str = "class", nodes=()):
    """A result of a machine called vm of one class, and what tells it from others."""
    run, record = measured("vm", ratio)
    only = {"gpu_uuids": [uuid] if uuid else [], "machine_id": machine_id}
    host = {**run.host, "fingerprint": {"record_only": only}}
    return replace(run, host=host, host_id=host_id, nodes=nodes), record


def ratios(found) -> list[float]:
    ((case,),) = [kind.cases for kind in over_hosts(found)]
    return [one.result.comparison.ratio for one in case.hosts]


@pytest.mark.parametrize("name", ["uuid", "machine_id"])
def test_equal_machines_of_one_name_are_hosts_of_their_own(name):
    found = [recorded(ratio, **{name: text}) for ratio, text in ((2.0, "A"), (2.1, "B"), (2.2, "C"), (2.3, "A"))]
    assert ratios(found) == [2.1, 2.2, 2.3]
    assert [kind.count for kind in over_hosts(found)] == [3]


def test_a_machine_whose_software_changed_is_still_one_host():
    assert ratios([recorded(2.0, uuid="A"), recorded(2.1, uuid="A", host_id="newer")]) == [2.1]


def test_machines_that_nothing_tells_apart_are_one_host_and_none_beside_one_that_is_known():
    assert ratios([recorded(2.0), recorded(2.1)]) == [2.1]
    assert ratios([recorded(2.0), recorded(2.1, machine_id="A"), recorded(2.2)]) == [2.1]


def test_a_case_over_nodes_is_measured_by_all_of_them_together():
    sides = tuple(Side(name, ranks=2, nodes=2) for name in ("before", "after"))
    entries = []
    for number, second in enumerate("ABA"):
        node = {"node": "n2", "host_id": "class", "host": {"cpu_model": "one", "gpus": [{"uuid": second}]}}
        run, record = recorded(2.0 + number / 10, machine_id="head", nodes=(node, {"node": "n3"}))
        entries.append((run, replace(record, case=replace(CASE, sides=sides))))
    assert ratios(entries) == [2.1, 2.2]
    alone = [(run, replace(record, case=CASE)) for run, record in entries]
    assert ratios(alone) == [2.2], "its second node measured nothing"


@pytest.mark.long
def test_a_prediction_holds_on_as_many_further_hosts_as_it_says():
    draw, held, rounds = np.random.default_rng(3), 0, 1500
    for _ in range(rounds):
        *known, further = np.exp(0.7 + 0.05 * draw.standard_normal(5))
        ((case,),) = [kind.cases for kind in over_hosts([measured(h, r) for h, r in zip("abcd", known, strict=True)])]
        held += case.low <= further <= case.high
    assert 0.935 < held / rounds < 0.97


def test_the_same_nodes_in_another_order_are_one_host() -> None:
    one, other = (Machine(name, "class", {"hostname": name}) for name in ("n1", "n2"))
    run, _ = measured("n1", 1.0)
    keys = {OnHost(run, RESULT, nodes).key for nodes in ((one, other), (other, one))}
    assert len(keys) == 1
