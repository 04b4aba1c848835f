"""Leaves a process behind whose parent has ended, in a session of its own and with an empty environment; then ends, or
hangs with ``stay``."""

import os
import signal
import sys
from pathlib import Path

SLEEP = ["/bin/sleep", "1000"]

reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        Path(sys.argv[1]).write_text(str(os.getpid()))
        os.execve(SLEEP[0], SLEEP, {})
    os._exit(0)
os.close(writer)
os.wait()
os.read(reader, 1)  # ends when the program is in its place
print("left", flush=True)
if sys.argv[2:] == ["stay"]:
    signal.pause()
