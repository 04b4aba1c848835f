"""The options by which numbers are asked of programs: what they print, their GPU time, their ranges.

What must not live here: what the texts mean (scenario/program_metrics.py).
"""

from __future__ import annotations

from typing import Annotated

import typer

from aiperf.cli.options import Command, with_options
from aiperf.recipes.ab import AskedMetrics

_OPTIONS = {
    "metric": (
        Annotated[
            list[str],
            typer.Option(
                "--metric",
                metavar="PATTERN",
                help="A number that the programs print: 'tokens/s: ([0-9.]+)' or json:stats.tokens_per_s; the last "
                "match counts. Repeatable; the first is primary.",
            ),
        ],
        [],
    ),
    "better": (
        Annotated[
            list[str],
            typer.Option(
                "--better", metavar="higher|lower", help="Better direction of --metric: one for all, or one for each."
            ),
        ],
        [],
    ),
    "range_": (
        Annotated[
            list[str],
            typer.Option("--range", metavar="NAME", help="NVTX range whose time is compared too; repeatable."),
        ],
        [],
    ),
    "clock": (
        Annotated[
            str,
            typer.Option("--clock", metavar="wall|gpu", help="gpu: compare GPU kernel time, too."),
        ],
        "wall",
    ),
    "primary": (
        Annotated[str, typer.Option("--primary", metavar="NAME", help="Metric that decides the verdict, e.g. time.")],
        "",
    ),
}


def with_metrics(command: Command) -> Command:
    """Give a command the options; its parameter ``asked`` gets them as ``AskedMetrics``."""
    return with_options(
        command,
        "asked",
        _OPTIONS,
        lambda typed: AskedMetrics(
            tuple(typed["metric"]),
            tuple(typed["better"]),
            tuple(typed["range_"]),
            typed["clock"],
            typed["primary"],
        ),
    )
