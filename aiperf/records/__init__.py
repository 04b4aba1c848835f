"""The frozen data that travels between the stages: case, sample, pair, comparison, verdict, record.

What must not live here: behaviour beyond small derived properties, and any import of a room.
Times are seconds, sizes bytes, ratios plain numbers; None means "not measured", never zero.
"""

from aiperf.records.asked import (
    Cache,
    Case,
    Check,
    Clock,
    Headline,
    Isolation,
    Measure,
    Needs,
    Side,
    Signature,
    Skip,
    Statistic,
)
from aiperf.records.concluded import Better, Comparison, Limit, Result, Summary, Verdict, Word
from aiperf.records.measured import (
    CheckResult,
    EnergyReading,
    Failure,
    FailureKind,
    Incident,
    Pair,
    Sample,
    SideRun,
    Warmup,
    Watch,
)
from aiperf.records.stored import CUT_SHORT, SCHEMA_VERSION, CaseRecord, RunRecord

__all__ = [
    "CUT_SHORT",
    "SCHEMA_VERSION",
    "Better",
    "Cache",
    "Case",
    "CaseRecord",
    "Check",
    "CheckResult",
    "Clock",
    "Comparison",
    "EnergyReading",
    "Failure",
    "FailureKind",
    "Headline",
    "Incident",
    "Isolation",
    "Limit",
    "Measure",
    "Needs",
    "Pair",
    "Result",
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
]
