"""The files that a command leaves for CI systems: one line here for each format, which is a module of its own.

What must not live here: any format, files being written.
"""

from __future__ import annotations

from aiperf.report.ci import dashboard, github, gitlab, junit
from aiperf.report.ci.entries import CiFormat

FORMATS: tuple[CiFormat, ...] = (junit.FORMAT, gitlab.CODE_QUALITY, gitlab.METRICS, dashboard.FORMAT, github.SUMMARY)
"""Each becomes an option of run, ab and gate that names its file."""
