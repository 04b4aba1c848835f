"""A scraper of metrics: started as a program, it fetches the address given to it at each line of input.

What must not live here: imports of aiperf (the program runs by its path, outside the package), what the metrics mean.
"""

from __future__ import annotations

import json
import sys
from urllib.request import ProxyHandler, build_opener


def main(address: str) -> None:
    """Answer each line with the page at ``address``, as JSON in one line, until the input ends."""
    # a proxy of the host's environment is not asked for an address of loopback
    opener = build_opener(ProxyHandler({}))
    for _ in sys.stdin:
        with opener.open(address, timeout=30) as page:
            print(json.dumps(page.read().decode()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
