"""Where a reading was taken: queries and exports give node and host of the rank whose time a row is."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from factory_of_runs import make_measured, voided, write_run
from store_questions import rows

from aiperf.records import CaseRecord, Latencies, RunRecord
from aiperf.records.machines import later_machines, places, with_machines_of
from aiperf.report.numbers import clean
from aiperf.store.export import export_table
from aiperf.store.read import find_runs, open_run, read_pairs
from aiperf.store.samples import why_unreadable
from aiperf.store.tables import columns
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
    assert rows("SELECT nodes FROM runs", tmp_path) == [(["n1", "n2"],)]
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


def session(*names: str, domain: str = "") -> RunRecord:
    """A run on nodes of these names; their hosts have the same, within a domain."""
    head, *others = names
    nodes = tuple({"node": name, "host_id": "h-1", "host": {"hostname": name + domain}} for name in others)
    return RunRecord("r", (), "", host={"hostname": head + domain}, host_id="h-1", node=head, nodes=nodes)


@pytest.mark.parametrize("domain", ["", ".site"])
@pytest.mark.parametrize(
    ("first", "later", "moved", "more"),
    [
        ("n1 n2 n3", "n1 n3", ["n3"], []),
        ("n1 n2 n3", "n2 n1 n3", ["n2", "n1"], []),
        ("n1 n2", "n2 n1 n3", ["n2", "n1"], []),
        ("n1 n2 n3", "n1 n2", [], []),
        ("n1 n2", "n1 n2 n3", [], []),
        ("n1", "n2 n1", ["n2"], ["n2"]),
        ("n1 n2", "n3 n2", ["n3"], ["n3"]),
    ],
)
def test_a_machine_that_took_the_place_of_another_leaves_no_rank_with_a_node(
    tmp_path: Path, first: str, later: str, moved: list[str], more: list[str], domain: str
) -> None:
    both = with_machines_of(session(*first.split(), domain=domain), session(*later.split(), domain=domain))
    assert [entry["node"] for entry in both.also_on] == moved
    assert with_machines_of(both, session(*later.split(), domain=domain)).also_on == both.also_on, "each is listed once"
    assert [one.name for one in later_machines(both)] == more, "the others are named already"
    write_run(tmp_path, [spread()], host=both.host, node=both.node, nodes=both.nodes, also_on=both.also_on)
    ran = [(None, None)] * 2 if moved else [("n1", f"n1{domain}"), ("n2", f"n2{domain}")]
    assert [found[2:] for found in queried(tmp_path) if found[0] == "after"] == ran
    assert rows("SELECT nodes FROM runs", tmp_path) == [([one["node"] for one in ({"node": "n1"}, *both.nodes)],)]


def test_a_part_that_was_resumed_on_fewer_nodes_leaves_no_rank_of_the_whole_with_a_node() -> None:
    whole, side = session("n1", "n2", "n3"), spread().case.sides[1]
    part = with_machines_of(whole, session("n1", "n3"))
    assert len(places(with_machines_of(whole, whole), side)) == 4
    assert places(with_machines_of(whole, part), side) == {}


def test_the_query_of_the_documentation_counts_how_often_the_slowest_rank_was_on_each_node(tmp_path: Path) -> None:
    record = voided(spread(), 0)
    write_run(tmp_path, [record], **SPREAD)
    text = (Path(__file__).parents[2] / "docs" / "nodes.md").read_text()
    (query,) = re.findall(r'`(SELECT "case", side, node[^`]+)`', text)
    samples = [(sample, pair.index % 2) for pair in record.pairs[1:] for sample in pair.samples if not sample.audit]
    wanted = Counter((s.side, "n2" if s.side == "after" and odd else "n1") for s, odd in samples)
    assert sorted(rows(query, tmp_path)) == sorted(("copy", *names, count) for names, count in wanted.items())
    assert len(samples) < len(record.pairs[1:]) * len(record.pairs[1].samples), "there are audits"
    assert len(wanted) == 3


def test_where_the_ranks_ran_is_looked_up_once_for_each_side_of_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(columns, "places", lambda run, side: asked.append(side.name) or places(run, side))
    write_run(tmp_path, [spread("a"), spread("b")], **SPREAD)
    assert len(exported(tmp_path, "samples")) > len(asked)
    assert asked == ["before", "after"] * 2


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
