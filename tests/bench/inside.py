"""Runs aiperf in this process and, as the last thing, writes what the process had loaded and used.

What must not live here: anything that loads modules of its own into the process that is looked at.
"""

import atexit
import os
import runpy
import sys

HEAVY = ("torch", "pandas", "scipy")


def _tell() -> None:
    loaded = [name for name in HEAVY if name in sys.modules]
    with open("/proc/self/status", encoding="ascii") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    heavy = ", ".join(f'"{name}"' for name in loaded)
    with open(os.environ["AIPERF_BENCH_FACTS"], "w", encoding="ascii") as facts:
        facts.write(f'{{"peak_bytes": {peak}, "heavy": [{heavy}]}}')


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    # Registered first, so that it runs after everything that aiperf registers.
    atexit.register(_tell)
    runpy.run_module("aiperf", run_name="__main__", alter_sys=True)
