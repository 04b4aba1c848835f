"""Where a reading was taken: queries and exports give node and host of the rank whose time a row is."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from factory_of_runs import make_measured, write_run
from store_questions import rows

from aiperf.records import CaseRecord, Latencies
from aiperf.report.numbers import clean
from aiperf.store.export import export_table
from aiperf.store.read import find_runs, open_run, read_pairs
from aiperf.store.samples import why_unreadable
from aiperf.store.tables.catalogue import table_named

OTHER = {"node": "n2", "hostname": "gpu-08", "host_id": "h-1", "host": {"hostname": "gpu-08"}}
SPREAD = {"nodes": (OTHER,), "node": "n1"}
ON_BOTH = [("after", 0, "n1", "gpu-07"), ("after", 3, "n2", "gpu-08"), ("before", None, "n1", "gpu-07")]


def spread(case: str = "copy") -> CaseRecord:
    """Four ranks on two nodes after, of which 0 and 3 are the slowest by turns; one process before."""
    record = make_measured(case)
    before, after = record.case.sides
    case_of = replace(record.case, sides=(before, replace(after, ranks=4, nodes=2)))
    pairs = tuple(
        replace(
            pair,
            samples=tuple(
                replace(
                    sample,
                    rank=3 * (pair.index % 2) if sample.side == "after" else None,
                    latencies=(Latencies((1.0,), "ttft", 2),) if sample.side == "after" else (),
                )
                for sample in pair.samples
            ),
        )
        for pair in record.pairs
    )
    return replace(record, case=case_of, pairs=pairs)


def exported(results: Path, table: str) -> list[dict[str, str]]:
    out = io.StringIO()
    runs = [open_run(folder, results=results) for folder in find_runs(results)]
    export_table(runs, table_named(table, where="x"), out, clean=clean)
    return list(csv.DictReader(io.StringIO(out.getvalue())))


def queried(results: Path) -> list[tuple[object, ...]]:
    return rows("SELECT DISTINCT side, rank, node, host FROM samples ORDER BY ALL", results)


def test_a_sample_of_ranks_over_nodes_has_the_node_and_host_of_its_slowest_rank(tmp_path: Path) -> None:
    write_run(tmp_path, [spread()], **SPREAD)
    assert queried(tmp_path) == ON_BOTH
    found = {(row["side"], row["rank"], row["node"], row["host"]) for row in exported(tmp_path, "samples")}
    assert found == {(side, "" if rank is None else str(rank), node, host) for side, rank, node, host in ON_BOTH}
    assert rows("SELECT nodes FROM runs", tmp_path) == [(["gpu-07", "n2"],)]
    assert rows("SELECT count(*) FROM samples", tmp_path) == [(sum(len(p.samples) for p in spread().pairs),)]


def test_a_latency_has_the_node_and_host_of_the_rank_that_reported_it(tmp_path: Path) -> None:
    write_run(tmp_path, [spread()], **SPREAD)
    found = {(row["side"], row["rank"], row["node"], row["host"]) for row in exported(tmp_path, "latencies")}
    assert found == {("after", "2", "n2", "gpu-08")}


def test_runs_of_one_host_and_files_of_before_ranks_were_kept_answer_together_with_it(tmp_path: Path) -> None:
    write_run(tmp_path, [spread()], **SPREAD)
    write_run(tmp_path, [make_measured("alone")], hour=1)
    found = rows('SELECT DISTINCT "case", side, node, host FROM samples ORDER BY ALL', tmp_path)
    assert found[:2] == [("alone", "after", "gpu-07", "gpu-07"), ("alone", "before", "gpu-07", "gpu-07")]
    assert len(found) == 5


@pytest.mark.parametrize("changes", [{"also_on": (OTHER,)}, {"nodes": ()}, {"host": {}}])
def test_what_was_not_recorded_for_sure_is_null_and_no_guess(tmp_path: Path, changes: dict[str, object]) -> None:
    write_run(tmp_path, [spread()], **{**SPREAD, **changes})
    assert [found[2:] for found in queried(tmp_path) if found[0] == "after"] == [(None, None)] * 2
    assert {(row["node"], row["host"]) for row in exported(tmp_path, "samples") if row["side"] == "after"} == {("", "")}


def test_a_sample_of_ranks_over_nodes_that_names_none_has_no_node(tmp_path: Path) -> None:
    record = spread()
    unnamed = [replace(p, samples=tuple(replace(s, rank=None, latencies=()) for s in p.samples)) for p in record.pairs]
    write_run(tmp_path, [replace(record, pairs=tuple(unnamed))], **SPREAD)
    assert queried(tmp_path) == [("after", None, None, None), ("before", None, "n1", "gpu-07")]


def test_the_rank_of_a_sample_is_kept_and_its_file_is_whole(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [spread()], **SPREAD)
    run = open_run(folder, results=tmp_path)
    (kept,) = run.iter_cases()
    assert read_pairs(run, kept) == spread().pairs
    assert [why_unreadable(path) for path in folder.glob("samples/*.parquet")] == [""]
