"""``aiperf.compare`` inside a process that another comparison started, where a script that it imports calls it again.

What must not live here: imports that take time, since each such process pays for them; measuring.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from aiperf.errors import CalledInWorker
from aiperf.launch.watchdog import LAUNCH_VARIABLE


def in_worker() -> bool:
    """Whether another comparison started this process."""
    return LAUNCH_VARIABLE in os.environ


def compare(*_: Any, **__: Any) -> NoReturn:
    """Raise CalledInWorker: a script imported there ends its import here, with what it defined above."""
    what = "compare() is called when a fresh process imports its file"
    raise CalledInWorker(f'{what}. Put it under if __name__ == "__main__":')
