"""``aiperf import``: results of other tools into the store.

What must not live here: formats, and what becomes of the numbers.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from aiperf.cli.options import DEFAULT_RESULTS, ResultsOption, with_format
from aiperf.errors import UserError, usage
from aiperf.report.layout.formats import OutputFormat, print_in
from aiperf.report.views.import_table import import_view
from aiperf.store.importers.keep import ImportOptions, import_files
from aiperf.store.importers.unpaired import Against


class Tool(StrEnum):
    """Whose file it is."""

    auto = "auto"
    pyperf = "pyperf"
    hyperfine = "hyperfine"
    nvbench = "nvbench"
    pytest_benchmark = "pytest-benchmark"
    google_benchmark = "google-benchmark"
    asv = "asv"
    criterion = "criterion"
    jmh = "jmh"
    benchmarkdotnet = "benchmarkdotnet"
    go_test = "go-test"
    nccl_tests = "nccl-tests"
    vllm_bench = "vllm-bench"
    guidellm = "guidellm"
    nvidia_aiperf = "nvidia-aiperf"
    genai_perf = "genai-perf"


@with_format(OutputFormat.table, OutputFormat.markdown, OutputFormat.json)
def import_(
    form: OutputFormat,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE [FILE ...]", help="Result files of other tools, optionally gzipped; criterion's is a folder."
        ),
    ],
    tool: Annotated[
        Tool, typer.Option("--tool", help="The tool that wrote them; auto detects it from the content.")
    ] = Tool.auto,
    results: ResultsOption = DEFAULT_RESULTS,
    host_id: Annotated[
        str, typer.Option("--host-id", help="Name of the machine they were measured on; default: from the file.")
    ] = "",
    again: Annotated[bool, typer.Option("--again", help="Import even if the same content is already stored.")] = False,
    before: Annotated[
        str, typer.Option("--before", help="Benchmark in the file to compare with --after, as an extra case.")
    ] = "",
    after: Annotated[str, typer.Option("--after", help="Benchmark to compare with --before (unpaired).")] = "",
    name: Annotated[str, typer.Option("--name", help="Name of the extra case.")] = "",
) -> None:
    """Import results of other tools, one run per file.

    It reads the files of pyperf, hyperfine, pytest-benchmark, asv, google/benchmark, nvbench, criterion, JMH and
    BenchmarkDotNet, the text of go test -bench and of nccl-tests, and the requests of vllm bench serve, guidellm,
    NVIDIA's aiperf and genai-perf (profile_export.json). The tool's own mean, median and number of readings are kept
    and shown next to those of aiperf: the geometric mean of the replicates and their spread.
    """
    if bool(before) != bool(after) or (name and not before):
        raise usage(
            "--before and --after must be given together; --name needs both.", "Give both or neither.", where="--before"
        )
    against = Against(before, after, name) if before else None
    options = ImportOptions(results, tool.value, host_id, again=again, argv=tuple(sys.argv), against=against)
    imported, faults = import_files(files, options)
    print_in(form, import_view(imported))
    if faults:
        raise UserError(faults)
