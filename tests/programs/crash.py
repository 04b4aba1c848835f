"""Dies by SIGSEGV after a word on stderr."""

import os
import signal
import sys

sys.stderr.write("about to crash\n")
sys.stderr.flush()
signal.signal(signal.SIGSEGV, signal.SIG_DFL)
os.kill(os.getpid(), signal.SIGSEGV)
