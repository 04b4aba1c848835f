"""``python -m aiperf``: the command without its script."""

import sys

from aiperf.cli.main import entry

if __name__ == "__main__":
    sys.exit(entry())
