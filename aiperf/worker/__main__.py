"""Entry of a worker process: ``python -m aiperf.worker READ_FD WRITE_FD RANK WORLD_SIZE PORT LISTEN_FD``.

What must not live here: anything but the loop from request to reply.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from aiperf.worker.channel import Channel
from aiperf.worker.dispatch import Worker
from aiperf.worker.memory_policy import OwnNode
from aiperf.worker.orphans import adopt_orphans


def main() -> int:
    """Answer requests until one of them is to close, or until the parent is gone."""
    adopt_orphans()
    read_fd, write_fd, rank, world_size, port, listen_fd = (int(a) for a in sys.argv[1:7])
    # What a side prints belongs to its log, whatever it writes to stdout.
    os.dup2(2, 1)
    # Line by line, so that the last words of a side that crashes or hangs are among them.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if listen_fd >= 0:
        os.set_inheritable(listen_fd, False)
    channel = Channel(read_fd, write_fd)
    worker = Worker(rank=rank, world_size=world_size, store_port=port, listen_fd=listen_fd, memory=OwnNode())
    with suppress(BrokenPipeError):  # the parent is gone
        channel.serve(worker.handle)
    return 1


if __name__ == "__main__":
    sys.exit(main())
