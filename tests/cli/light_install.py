"""An interpreter with what ``pip install aiperf-ab`` brings: everything that is installed here, less the extras.

What must not live here: tests.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
NOT_THERE = re.compile(
    r"(aiohttp|pil(?!\w)|torch|functorch|triton|cupy|kvikio|pandas|pillow|pyarrow|scipy|nvidia(?!_ml))", re.IGNORECASE
)


def light_interpreter(folder: Path) -> Path:
    """Make a virtual environment in ``folder`` whose packages are links; the Python to start."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next((folder / "lib").glob("python3*")) / "site-packages"
    installed = [Path(path) for path in sys.path if path.endswith("site-packages")]
    for entry in (entry for place in installed for entry in place.iterdir()):
        link = packages / entry.name
        if not NOT_THERE.match(entry.name) and entry.suffix != ".pth" and not link.exists():
            link.symlink_to(entry)
    (packages / "checkout.pth").write_text(f"{CHECKOUT}\n")
    return folder / "bin" / "python"
