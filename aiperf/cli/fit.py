"""The option --fit, of the commands that measure.

What must not live here: other options (options.py, which loads no rules), judging the host.
"""

from __future__ import annotations

from typing import Annotated

import typer

from aiperf.host.relevance import Fit

FitOption = Annotated[
    Fit, typer.Option("--fit", help="Findings of this host that can bias a case: strict measures no unfit case.")
]
