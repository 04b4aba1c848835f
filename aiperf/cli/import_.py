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


@with_format(OutputFormat.table, OutputFormat.markdown, OutputFormat.json)
def import_(
    form: OutputFormat,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSON files of other tools; .gz too.")],
    tool: Annotated[
        Tool, typer.Option("--tool", help="The tool that wrote them; auto: told by what they hold.")
    ] = Tool.auto,
    results: ResultsOption = DEFAULT_RESULTS,
    host_id: Annotated[
        str, typer.Option("--host-id", help="Name of the machine they were measured on; else taken from the file.")
    ] = "",
    again: Annotated[bool, typer.Option("--again", help="Import a file though its content is stored already.")] = False,
    before: Annotated[
        str, typer.Option("--before", help="A benchmark of the file: one more case holds AFTER against it.")
    ] = "",
    after: Annotated[str, typer.Option("--after", help="The benchmark that is held against it, unpaired.")] = "",
    name: Annotated[str, typer.Option("--name", help="Name of that case.")] = "",
) -> None:
    """Store results of pyperf, hyperfine, nvbench, pytest-benchmark and google/benchmark, one run a file."""
    if bool(before) != bool(after) or (name and not before):
        raise usage("--before and --after belong together, --name to both.", "Give both or neither.", where="--before")
    against = Against(before, after, name) if before else None
    options = ImportOptions(results, tool.value, host_id, again=again, argv=tuple(sys.argv), against=against)
    imported, faults = import_files(files, options)
    print_in(form, import_view(imported))
    if faults:
        raise UserError(faults)
