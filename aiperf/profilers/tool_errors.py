"""What a profiler said when it left nothing to read: its own words out of its output, and what helps against them.

What must not live here: running anything, and what can be seen before a profile (preflight.py).
"""

from __future__ import annotations

import re

COUNTERS_LOCKED = (
    "As root: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then reload the driver; "
    "in a container: --cap-add=SYS_ADMIN."
)
COUNTERS_TAKEN = (
    "Another program, such as DCGM, uses the GPU's counters: dcgmi profile --pause frees them, "
    "dcgmi profile --resume returns them."
)
_FIXES = {
    "ERR_NVGPUCTRPERM": COUNTERS_LOCKED,
    "driver resource was unavailable": COUNTERS_TAKEN,
    "==ERROR== LibraryNotLoaded": "This container's sandbox keeps profilers from the driver: run it outside.",
    "Failed to connect to process": "Set CUDA_INJECTION64_PATH=none in the side's env: and try again.",
}
"""Part of what a tool prints -> the way out."""
_ERROR = re.compile(r"^\s*(?:==ERROR==|FATAL ERROR:|\[ERROR\]|ERROR:)\s*(.+)$", re.MULTILINE)
_MOST = 400


def complaint(output: str) -> str:
    """The errors that a tool printed, each once, else its last line; with the fix where one is known."""
    errors = list(dict.fromkeys(found.strip() for found in _ERROR.findall(output)))
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = "; ".join(error.rstrip(".") for error in errors[:3]) or (lines[-1] if lines else "it printed nothing")
    fixes = [fix for mark, fix in _FIXES.items() if mark in output]
    return ". ".join([said[:_MOST].rstrip("."), *fixes])
