"""Ignores SIGTERM and SIGINT and says when it is ready to."""

import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
