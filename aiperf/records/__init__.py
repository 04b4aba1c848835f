"""The frozen data that travels between the stages: case, sample, pair, comparison, verdict, record.

What must not live here: behaviour beyond small derived properties, and any import of a room.
Times are seconds, sizes bytes, ratios plain numbers; None means "not measured", never zero.
"""

from aiperf.protocol.claims import OutputChange
from aiperf.protocol.measuring import (
    Cache,
    Check,
    Clock,
    Isolation,
    LatencyMetric,
    LatencySeries,
    Measure,
    PrimaryMetric,
    Statistic,
)
from aiperf.protocol.reported import Coverage, PhaseTime
from aiperf.records.asked import Case, Needs, ProgramMetric, Side, Signature, Skip
from aiperf.records.concluded import Better, Comparison, Limit, Result, Summary, Verdict, Word
from aiperf.records.finding import HostFinding
from aiperf.records.measured import (
    CheckKind,
    CheckResult,
    EnergyReading,
    Failure,
    FailureKind,
    Incident,
    Latencies,
    Pair,
    Sample,
    SideRun,
    Warmup,
    Watch,
)
from aiperf.records.noted import Note, NoteCode, text_notes
from aiperf.records.stored import CUT_SHORT, SCHEMA_VERSION, CaseRecord, Invocation, RunCommand, RunRecord

__all__ = [
    "CUT_SHORT",
    "SCHEMA_VERSION",
    "Better",
    "Cache",
    "Case",
    "CaseRecord",
    "Check",
    "CheckKind",
    "CheckResult",
    "Clock",
    "Comparison",
    "Coverage",
    "EnergyReading",
    "Failure",
    "FailureKind",
    "HostFinding",
    "Incident",
    "Invocation",
    "Isolation",
    "Latencies",
    "LatencyMetric",
    "LatencySeries",
    "Limit",
    "Measure",
    "Needs",
    "Note",
    "NoteCode",
    "OutputChange",
    "Pair",
    "PhaseTime",
    "PrimaryMetric",
    "ProgramMetric",
    "Result",
    "RunCommand",
    "RunRecord",
    "Sample",
    "Side",
    "SideRun",
    "Signature",
    "Skip",
    "Statistic",
    "Summary",
    "Verdict",
    "Warmup",
    "Watch",
    "Word",
    "text_notes",
]
