"""The picture of the README: cases of reference runs as the report draws them, as an SVG file that stands alone.

``python -m docs.generate.picture`` writes it again. What must not live here: drawing.
"""

from __future__ import annotations

import re

from aiperf.report.html.speedups import speedup_chart
from aiperf.report.views.run_rows import build_rows
from aiperf.store.read import open_run, read_case
from docs.generate.reference import ROOT

PICTURE = ROOT / "docs" / "pictures" / "one-h200.svg"
_CASES = {
    "2026-11-23T02-52-24-vm": (
        "scalar-vs-float4-copy[n=268435456]", "bank-conflict-vs-padded-transpose[n=16384]",
        "compute-stream-vs-transfer-stream-logits-d2h", "double-buffer-vs-warp-specialised",
    ),
    "2026-11-23T02-52-26-vm": (
        "gemm-fp32-vs-tf32[m=4096]", "gemm-16-bit-vs-fp8[m=4096]", "eager-vs-cuda-graph-elementwise[nodes=3,n=65536]",
        "dataloader-pageable-vs-pinned", "branch-vs-predicated-threshold", "copy-256mb-same",
    ),
    "2026-11-30T04-37-49-vm": ("dense-mask-vs-block-mask[mask=sliding]",),
}  # fmt: skip
_STYLE = ROOT / "aiperf" / "report" / "html" / "style.css"
_TURN = ".turn{fill:currentColor;stroke:none}"
_DRAWN = re.compile(r"^(svg|\.(grid|axis|one|band|v|mark|none|improved|regressed|equivalent|inconclusive)\b)")


def picture() -> str:
    """The SVG, with the report's own colours for light and dark pages."""
    rows = []
    for run, cases in _CASES.items():
        stored = open_run(ROOT / "results" / "reference" / run, results=ROOT / "results" / "reference")
        rows += [row for row in build_rows([read_case(stored, case) for case in cases]).rows if row.primary]
    rows.sort(key=lambda row: -(row.ratio or 0.0))
    return stand_alone(speedup_chart(rows).chart)


def stand_alone(chart: str) -> str:
    """A drawing of the report as a file of its own."""
    opened = chart.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    opened = re.sub(r" class=(\w+)", r' class="\1"', opened)
    return opened.replace(">", f"><style>{_style()}</style>", 1) + "\n"


def _style() -> str:
    """The report's rules for what is drawn, in its colours for light pages and then for dark ones.

    The colours stand in every rule: not every reader of SVG files knows variables.
    """
    text = _STYLE.read_text(encoding="utf-8")
    colours = {name: values for name, *values in re.findall(r"(--[\w-]+): light-dark\(([^,]+), ([^)]+)\);", text)}
    rules = "".join(line for line in text.splitlines() if _DRAWN.match(line) and line.rstrip().endswith("}")) + _TURN
    light, dark = (re.sub(r"var\((--[\w-]+)\)", lambda m, at=at: colours[m[1]][at], rules) for at in (0, 1))
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
