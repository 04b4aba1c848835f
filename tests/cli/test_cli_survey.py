"""`aiperf survey` on stored readings: what is said, and the exit code."""

from __future__ import annotations

import json
from dataclasses import asdict

from aiperf.analysis.survey import SurveyReading
from aiperf.recipes.survey import Survey

NAMES = ("n1", "n2", "n3")


def stored(user, *, slow: float = 1.0, absent: tuple[str, ...] = ()) -> str:
    """The readings of three nodes, of which the last takes ``slow`` times as long."""
    readings = tuple(
        SurveyReading("gemm", turn, (node,), (1 + 0.001 * ((turn + node) % 3)) * (slow if node == 2 else 1.0))
        for turn in range(9)
        for node in range(3)
    )
    file = user.folder / "survey.json"
    file.write_text(json.dumps(asdict(Survey(NAMES, 1, 0.03, readings, absent=absent))))
    return str(file)


def verdicts(user, file: str) -> tuple[int, dict[str, str]]:
    done = user.types("survey", "--from", file, "--json")
    rows = json.loads(done.out)
    rows = rows if isinstance(rows, list) else next(value for value in rows.values() if isinstance(value, list))
    return done.code, {row["node"]: row["verdict"] for row in rows}


def test_a_healthy_fleet_is_ok_and_a_slow_node_is_exit_code_6(user):
    assert verdicts(user, stored(user)) == (0, dict.fromkeys(NAMES, "ok"))
    assert verdicts(user, stored(user, slow=1.2)) == (6, {"n1": "ok", "n2": "ok", "n3": "slow"})


def test_a_node_that_did_not_come_is_unreachable_and_the_others_are_judged_without_it(user):
    file = stored(user, absent=("rank 3",))
    assert verdicts(user, file) == (6, {**dict.fromkeys(NAMES, "ok"), "rank 3": "unreachable"})
    assert "4 nodes" in user.types("survey", "--from", file).out
