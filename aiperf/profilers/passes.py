"""The launches that each tool needs for one side: the launch, the command around it, and what reads the outcome.

What must not live here: running them, and joining what they told.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.launch.solo import Solo
from aiperf.profilers.arithmetic import wanted
from aiperf.profilers.claimed import claimed_metrics
from aiperf.profilers.commands import ncu_profile, nsys_profile, perf_record, perf_report, perf_stat
from aiperf.profilers.ncu_read import read_ncu
from aiperf.profilers.nsys_read import read_nsys
from aiperf.profilers.perf_read import read_samples, read_stat
from aiperf.profilers.preflight import Ability
from aiperf.profilers.reading import Pass, Reading, range_name
from aiperf.profilers.recover import NoReport, nsys_sqlite
from aiperf.profilers.tools import Tool, has_ncu_report, offered_counters
from aiperf.profilers.torch_read import read_torch
from aiperf.records import Case, Side
from aiperf.records.profiled import SideProfile

_NCU_LAUNCHES = 50
_REPORT_S = 300.0
_STORAGE = ("storage.", "gds.")
"""Families of workloads whose time goes into calls of the operating system or of GPUDirect Storage."""
_NO_ARITHMETIC = "ncu lists no counters of arithmetic here: FLOPs of kernels are not known"


@dataclass(frozen=True)
class ToolPass:
    """One tool over one side: the launch, the command around it, and what reads the outcome."""

    solo: Solo
    command: Callable[[list[str]], list[str]]
    read: Callable[[Pass, Mapping[str, str]], Reading]
    files: Callable[[], Sequence[Path]]
    """Raw reports worth keeping."""


def passes(case: Case, side: Side, ability: Ability, *, seed: int, scratch: Path) -> list[ToolPass]:
    """The launches that one tool needs for one side, each in a folder of its own below ``scratch``."""

    def solo(name: str, **more: Any) -> Solo:
        return Solo(case, side, scratch / f"{name}-{side.name}", seed, **more)

    tool = ability.found
    if ability.tool == "torch":
        # A loop of small operators makes a hundred thousand events in a tenth of a second, and each is a line of JSON.
        return [_torch(solo("torch", trace=True, target_seconds=0.1, most_iterations=20))]
    assert tool is not None, f"{ability.tool} counts as usable but was not found"
    if ability.tool == "nsys":
        # What warms up is traced as well: a thousand launches an iteration make a report that takes long to export.
        return [
            _nsys(
                tool,
                solo("nsys", warmup_seconds=0.3),
                gpu=bool(case.needs.gpus),
                storage=side.workload.startswith(_STORAGE),
            )
        ]
    if ability.tool == "ncu":
        # One iteration: counters are read per launch, and both sides' sums are then of one iteration.
        return [_ncu(tool, solo("ncu", most_iterations=1, warmup_seconds=0.3), cold=case.measure.cache == "cold")]
    # Two launches: counting and sampling disturb each other.
    more: dict[str, Any] = {"control": True, "target_seconds": 1.0, "most_iterations": 100_000}
    return [_perf(tool, solo("perf", **more)), _perf_samples(tool, solo("perf-samples", **more))]


def _torch(solo: Solo) -> ToolPass:
    return ToolPass(solo, lambda argv: argv, lambda told, _: read_torch(solo.traces, told), lambda: solo.traces)


def _nsys(nsys: Tool, solo: Solo, *, gpu: bool, storage: bool) -> ToolPass:
    output = solo.folder / "nsys"
    return ToolPass(
        solo,
        lambda argv: nsys_profile(nsys, argv, output=output, gpu=gpu, storage=storage),
        lambda told, env: read_nsys(nsys_sqlite(nsys, output, env=env), [told]),
        lambda: [output.with_name("nsys.nsys-rep")],
    )


def _ncu(ncu: Tool, solo: Solo, *, cold: bool) -> ToolPass:
    output = solo.folder / "ncu"
    report = output.with_name("ncu.ncu-rep")
    offered = offered_counters(ncu)
    arithmetic = wanted(offered.__contains__)
    claims = claimed_metrics(solo.case.moves, offered)

    def read(told: Pass, _: Mapping[str, str]) -> Reading:
        if not report.is_file():
            nameless = "" if told.domain else " (ranges can have no domain here, and ncu was asked for one of aiperf's)"
            raise NoReport(f"ncu wrote no report: no kernel ran inside the side's range{nameless}")
        extras = has_ncu_report(ncu)
        found = read_ncu(report, [told], extras=extras if extras and extras.parts else None, claimed=claims.read)
        notes = [*found.notes, *([] if arithmetic else [_NO_ARITHMETIC]), *([claims.note] if claims.note else [])]
        return replace(found, sides=limited(found, told), notes=tuple(notes))

    return ToolPass(
        solo,
        lambda argv: ncu_profile(
            ncu,
            argv,
            output=output,
            side=range_name(solo.side.name),
            ranks=solo.side.ranks,
            launches=_NCU_LAUNCHES,
            cold=cold,
            arithmetic=arithmetic,
            claimed=claims.ask,
        ),
        read,
        lambda: [report],
    )


def limited(found: Reading, told: Pass) -> tuple[SideProfile, ...]:
    """What ncu's rows are of: the side's iterations, and whether its limit of launches was reached."""
    read = sum(row.count or 0 for row in found.rows)
    lost = f"ncu stops at {_NCU_LAUNCHES} launches, and read {read}: there may be more" if read >= _NCU_LAUNCHES else ""
    return (SideProfile(told.side, "ncu", told.iterations, lost=lost),) if found.rows else ()


def _perf(perf: Tool, solo: Solo) -> ToolPass:
    output = solo.folder / "perf.stat"
    return ToolPass(
        solo,
        lambda argv: perf_stat(perf, argv, output=output, control=solo.fifos),
        lambda told, _: read_stat(output.read_text(encoding="utf-8"), told),
        lambda: [],
    )


def _perf_samples(perf: Tool, solo: Solo) -> ToolPass:
    output = solo.folder / "perf.data"

    def read(told: Pass, env: Mapping[str, str]) -> Reading:
        try:
            done = subprocess.run(
                perf_report(perf, output), env=dict(env), capture_output=True, text=True, errors="replace",
                timeout=_REPORT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NoReport(f"perf report had no end within {_REPORT_S:g} s") from None
        if done.returncode:
            raise NoReport(f"perf report failed (exit status {done.returncode}): {done.stderr.strip()[-300:]}")
        return read_samples(done.stdout, told)

    return ToolPass(
        solo, lambda argv: perf_record(perf, argv, output=output, control=solo.fifos), read, lambda: [output]
    )
