"""A run and gates in which every status, verdict and standing occurs, for the formats of CI systems.

What must not live here: tests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from factory_of_records import (
    make_case,
    make_comparison,
    make_pair,
    make_result,
    make_run,
    measured,
    sample_records,
    voided,
)

from aiperf.analysis.gate import Difference, GateOutcome, GateRow
from aiperf.errors import Exit
from aiperf.records import CaseRecord, RunRecord, Side, Verdict
from aiperf.report.ci.entries import CiEntry, entries_of_gate, entries_of_run

NASTY = "q\"uote'<&> %25 a,b:c #1 \x1b[31mred\x1b[0m ```\nsecond\rline | 😀 \ud800\ufffe\x00 ]]> \\ end"
"""Everything that some format must escape, and what none can hold."""
STANDINGS = (
    "passed", "regressed", "inconclusive", "invalid", "failed", "skipped", "unfit", "no_baseline", "not_comparable"
)  # fmt: skip


def every_record() -> list[CaseRecord]:
    """Records of every status and every verdict's word, a ladder among them."""
    slower = make_comparison(1.0e-3, 1.2e-3, interval=(0.82, 0.84))
    faster = make_comparison(2e-3, 1e-3, interval=(1.9, 2.1))
    steps = tuple(Side(name, workload="a.b") for name in ("before", "tiled", "fused"))
    ladder = make_case("naive-vs-tiled", sides=steps, expect="")
    return [
        *sample_records(),
        measured(make_case("slower-now", axes={"n": 1}, expect=""), make_result(slower, "regressed")),
        measured(make_case("hoped-for-more"), make_result(slower, "regressed")),
        measured(make_case("wrong-output", expect=""), make_result(faster, "invalid")),
        measured(
            make_case("hot-host", expect=""),
            make_result(faster),
            stop="unfit",
            pairs=(make_pair(0), voided(1), voided(2)),
        ),
        measured(make_case("cut-short", expect=""), make_result(faster, "inconclusive"), status="interrupted"),
        measured(make_case("nothing-came", expect="")),
        measured(
            ladder,
            make_result(faster, side="tiled"),
            make_result(slower, "regressed", side="fused"),
            make_result(faster, "equivalent", side="fused", against="tiled"),
        ),
    ]


def every_run(records: list[CaseRecord], **changes: Any) -> RunRecord:
    """A run that planned these records and one case more, which it never began."""
    planned = (*(record.case.id for record in records), "never-begun[n=1]")
    return make_run(**{"status": "interrupted", "planned": planned, **changes})


def every_entry() -> tuple[CiEntry, ...]:
    """Entries of all of it, with short texts: what ``aiperf show`` says is tested where it is written."""
    records = every_record()
    return tuple(replace(e, text=f"All of {e.name}.") for e in entries_of_run(every_run(records), records))


def nasty_entry(**changes: Any) -> CiEntry:
    """An entry whose every text holds what is not allowed somewhere."""
    case = replace(make_case("nasty", expect=""), id=NASTY, scenario=NASTY, title=NASTY, why=NASTY, path="a/nasty.yaml")
    verdict = Verdict("regressed", "beyond_threshold", NASTY)
    result = replace(make_result(make_comparison(2e-3, 1e-3, interval=(1.9, 2.1))), verdict=verdict)
    (entry,) = entries_of_run(make_run(planned=(case.id,)), [measured(case, result)])
    return replace(entry, **changes)


def gate_row(status: str, **changes: Any) -> GateRow:
    """A row of the standing."""
    given: dict[str, Any] = {
        "case": f"{status}-case", "scenario": status, "metric": "time", "unit": "s", "status": status,
        "sentence": f"it is {status}", "side": "after", "ratio": 0.9, "low": 0.85, "high": 0.95, "alpha": 0.05,
        "before": 1e-3, "after": 1.1e-3, "pairs": 6, "seconds": 3.0, "path": "scenarios/a.yaml",
        "reproduce": "aiperf gate --against main",
    }  # fmt: skip
    return GateRow(**(given | changes))


def gate_outcome(*rows: GateRow, exit_: Exit = Exit.OK, **changes: Any) -> GateOutcome:
    """A gate with these rows."""
    differences = (Difference("driver", "570", "580"),) if exit_ is Exit.NO_BASELINE else ()
    given: dict[str, Any] = {"level": "rebuild", "sentence": "the gate says so", "differences": differences}
    return GateOutcome(rows=rows, exit=exit_, **(given | changes))


def gate_entries(*rows: GateRow, exit_: Exit = Exit.OK, **changes: Any) -> tuple[CiEntry, ...]:
    """Entries of a gate with these rows."""
    return entries_of_gate(gate_outcome(*rows, exit_=exit_, **changes))
