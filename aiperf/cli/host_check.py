"""The option --host-check, of the commands that measure.

What must not live here: other options (options.py, which loads no rules), judging the host.
"""

from __future__ import annotations

from typing import Annotated

import typer

from aiperf.host.relevance import HostCheck

HostCheckOption = Annotated[
    HostCheck,
    typer.Option("--host-check", help="What to do about host findings that can bias a case; strict skips unfit cases."),
]
