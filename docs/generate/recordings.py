"""What a terminal shows of a reference run at three widths, as SVG files that need no fonts from elsewhere.

``python -m docs.generate.recordings`` writes them. What must not live here: anything that the terminal does not print.
"""

from __future__ import annotations

import io
import re

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from aiperf.report.layout.page import page_lines
from aiperf.report.views.run_rows import build_rows
from aiperf.report.views.run_table import run_view
from aiperf.store.read import open_run
from docs.generate.reference import ROOT

FOLDER = ROOT / "docs" / "pictures"
RUN = "2026-11-22T15-49-56-vm"
WIDTHS = (80, 100, 160)


def recording(width: int) -> str:
    """``aiperf report RUN`` in a terminal of ``width`` columns."""
    stored = open_run(ROOT / "results" / "reference" / RUN, results=ROOT / "results" / "reference")
    records, _ = stored.read_cases()
    view = run_view(stored.record, build_rows(records, run=stored.record), records=records)
    console = Console(file=io.StringIO(), record=True, width=width, highlight=False, markup=False, emoji=False)
    for line in page_lines(view.page, width=width):
        text = Text(line.text)
        if line.style:
            text.stylize(line.style, line.start)
        console.print(text, soft_wrap=True)
    console.print()
    command = f"aiperf report results/reference/{RUN}"
    drawn = console.export_svg(title=command, theme=DIMMED_MONOKAI, unique_id=f"terminal-{width}")
    # Rich names fonts that a reader would fetch from elsewhere, and says so in a comment.
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"<!--.*?-->", "", drawn, flags=re.DOTALL)
    lines = (line.rstrip() for line in drawn.replace("Fira Code, monospace", "monospace").splitlines())
    return "\n".join(line for line in lines if line) + "\n"


RECORDINGS = {f"terminal-{width}.svg": width for width in WIDTHS}


if __name__ == "__main__":
    for name, columns in RECORDINGS.items():
        (FOLDER / name).write_text(recording(columns), encoding="utf-8")
