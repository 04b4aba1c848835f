"""Two benchmarks of one file held against each other: Welch over replicates, and never called a verdict."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import scipy
from foreign_files import FOLDER, document, fault_of_changed, take_fixture

from aiperf.analysis.notes import note_sentences
from aiperf.store.importers.keep import ImportOptions, import_files
from aiperf.store.importers.unpaired import Against
from aiperf.store.read import find_runs


def test_the_interval_is_welch_s_of_the_logs_and_above_1_is_better(tmp_path: Path) -> None:
    imported = take_fixture("hyperfine.json", tmp_path, against=Against("sleep 0.02", "sleep-0.01", "halved"))
    record = imported.records[-1]
    slow, fast = ([math.log(t) for t in r["times"]] for r in reversed(document("hyperfine.json")["results"]))
    welch = scipy.stats.ttest_ind(slow, fast, equal_var=False)
    low, high = (math.exp(end) for end in welch.confidence_interval(1 - record.alpha))
    ratio = math.exp(sum(slow) / 6 - sum(fast) / 6)
    assert f"before / after is {ratio:.4g} ({low:.4g} … {high:.4g}, 98.4 %)" in note_sentences(record)[0]
    assert "never interleaved" in note_sentences(record)[0]
    assert (record.case.id, record.status, record.results) == ("halved", "imported", ())


def test_both_sides_keep_their_own_value_and_replicates(tmp_path: Path) -> None:
    imported = take_fixture("pyperf.json", tmp_path, against=Against("sorted", "reversed"))
    old, new, both = imported.records
    assert [s.side for s in both.summaries] == ["before", "after"]
    assert [s.value for s in both.summaries] == [old.summaries[0].value, new.summaries[0].value]
    assert [s.log_sd for s in both.summaries] == [old.summaries[0].log_sd, new.summaries[0].log_sd]
    assert [p.order for p in both.pairs] == [("before",)] * 3 + [("after",)] * 3
    assert [p.index for p in both.pairs] == list(range(6))
    assert both.case.id == "sorted-vs-reversed"


@pytest.mark.parametrize(
    ("against", "said"),
    [
        (Against("sorted", "sortd"), 'no benchmark "sortd" in the file'),
        (Against("sorted", "sorted"), "name the same benchmark"),
        (Against("sorted", "reversed", "sorted"), "is already a case of the file"),
    ],
)
def test_what_cannot_be_held_is_a_fault_and_nothing_is_stored(against: Against, said: str, tmp_path: Path) -> None:
    options = ImportOptions(tmp_path / "results", against=against)
    imported, (fault,) = import_files([FOLDER / "pyperf.json"], options)
    assert said in fault.what
    assert (imported, find_runs(tmp_path / "results")) == ((), ())


def test_a_value_without_spread_gives_no_interval(tmp_path: Path) -> None:
    options = ImportOptions(tmp_path / "results", against=Against("BM_Copy/1024", "BM_StringCreation"))
    _, (fault,) = import_files([FOLDER / "google_benchmark_aggregates.json"], options)
    assert "no spread is known" in fault.what
    changed = document("hyperfine.json")
    for result in changed["results"]:
        result["times"] = [0.5, 0.5, 0.5]
    fault = fault_of_changed("h.json", changed, tmp_path, against=Against("sleep 0.01", "sleep 0.02"))
    assert "no spread is known" in fault.what
