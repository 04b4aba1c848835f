"""torch.profiler: operators and kernels, recorded inside the worker.

What must not live here: what its trace holds (torch_read.py).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiperf.host.facts import HostFacts
from aiperf.profilers.external import Range
from aiperf.profilers.profiler import PassRequest, Profiler, ToolPass, ToolStatus
from aiperf.profilers.reading import Pass, Reading
from aiperf.profilers.tools import FoundTool
from aiperf.profilers.torch_read import read_torch, torch_ranges


def _status(host: HostFacts, env: Mapping[str, str], root: Path) -> ToolStatus:
    version = host.libraries.get("torch", "")
    if importlib.util.find_spec("torch") is None:
        return ToolStatus("torch", False, "torch", "torch is not installed", "pip install torch")
    what = "operators and kernels" if host.gpus else "operators on the CPU"
    return ToolStatus("torch", True, f"torch {version}".strip(), f"torch.profiler records {what}")


def _passes(request: PassRequest) -> list[ToolPass]:
    # A loop of small operators makes a hundred thousand events in a tenth of a second, and each is a line of JSON.
    standalone = request.launch("torch", trace=True, target_seconds=0.1, most_iterations=20)
    return [
        ToolPass(
            standalone,
            lambda argv: argv,
            lambda launched, _: read_torch(standalone.traces, launched),
            lambda: standalone.traces,
        )
    ]


def _import_report(path: Path, ranges: Sequence[Range], tool: FoundTool | None) -> list[Reading]:
    names = [one.name for one in ranges] or torch_ranges(path)
    return [read_torch([path], Pass(name, 1)) for name in names]


TORCH = Profiler("torch", "trace", _status, _passes, endings=(".json", ".json.gz"), import_report=_import_report)
