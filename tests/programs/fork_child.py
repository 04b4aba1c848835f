"""Leaves grandchildren behind: one in its group, one in a session of its own; then ends, or hangs with ``stay``."""

import signal
import subprocess
import sys

NEVER = [sys.executable, "-S", "-c", "import signal; signal.pause()"]

subprocess.Popen(NEVER)
subprocess.Popen(NEVER, start_new_session=True)
print("left", flush=True)
if sys.argv[1:] == ["stay"]:
    signal.pause()
