"""Notes on a case: what a reader should know beside its verdict, as a code and its values.

What must not live here: how a note is worded (analysis/notes.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

NoteCode = Literal[
    "verdict_reached", "narrow_enough", "most_pairs", "budget_spent", "ended_at_look", "voided", "host_unfit",
    "drift", "invariant_moved", "invariant_changed", "temperature", "same_code", "same_sides",
    "latencies_missing", "latencies_few", "latencies_zero", "latency_bounds", "units_missing", "metric_zero",
    "not_launched", "counted_apart", "one_after_another",
    "no_cpu_time", "memory_below",
    "audit_time", "fresh_inputs", "hidden_time", "unequal_gpu_work", "no_verdict_in_reach",
    "sliced", "uneven_runs", "first_run_slower", "prints_otherwise", "first_run_files", "inputs_unused",
    "work_in_outputs", "time_outside", "first_elsewhere", "cpu_time_same", "inputs_undeclared", "inputs_fixed",
    "inputs_unnamed", "outputs_unpoisoned", "outputs_unmoved", "latencies_reported", "values_reported", "stragglers",
    "nothing_returned", "nothing_printed", "files_uncompared", "memory_forgotten", "memory_elsewhere", "tolerance_used",
    "batches_only", "suspected", "scheduled_apart", "doubted", "unverified", "source_figures", "text",
]  # fmt: skip
"""text: words of another tool's file, of its import, or of a record of before notes had codes."""


@dataclass(frozen=True)
class Note:
    """One note; times in seconds, sizes in bytes, shares as plain numbers."""

    code: NoteCode
    values: dict[str, Any] = field(default_factory=dict)
    """What the sentence of ``code`` needs, in types that JSON holds."""


def text_notes(texts: Iterable[str]) -> tuple[Note, ...]:
    """Notes that are sentences already."""
    return tuple(Note("text", {"text": text}) for text in texts)
