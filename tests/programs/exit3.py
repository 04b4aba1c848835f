"""Fails politely: a word on stderr and exit status 3."""

import sys

sys.stderr.write("nothing to do here\n")
sys.exit(3)
