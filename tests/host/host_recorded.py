"""Writes recorded /proc and /sys text under a folder that stands for the root.

What must not live here: tests.
"""

from __future__ import annotations

PROC_STAT = """cpu  4248 0 1889 171102 143 0 19 7 0 0
cpu0 292 0 540 87811 16 0 3 1 0 0
cpu1 3955 0 1349 83291 126 0 15 5 0 0
btime 1700000000
"""
INTERRUPTS = """           CPU0       CPU1
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 36:          0      12612 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 39:       2078          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
LOC:      15732      20995   Local timer interrupts
ERR:          0
"""
CPUINFO = (
    "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor avx2\n\nprocessor\t: 1\nmodel name\t: other\n"
)
MEMINFO = "MemTotal:       24684084 kB\nMemFree:        23000000 kB\nMemAvailable:   23797000 kB\n"
MEMINFO += "SwapTotal:       1048576 kB\nSwapFree:        1048576 kB\n"


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def machine(root, **more):
    base = {
        "proc/stat": PROC_STAT,
        "proc/interrupts": INTERRUPTS,
        "proc/cpuinfo": CPUINFO,
        "proc/meminfo": MEMINFO,
        "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    }
    return write(root, base | more)


def process(root, pid, *, parent=1, state="S", started=500, arguments=(), environ=()):
    fields = [state, str(parent), *["0"] * 17, str(started), "0"]
    files = {
        f"proc/{pid}/stat": f"{pid} (a (b) c) {' '.join(fields)}\n",
        f"proc/{pid}/cmdline": "\0".join(arguments) + "\0" if arguments else "",
        f"proc/{pid}/environ": "\0".join(environ) + "\0" if environ else "",
    }
    return write(root, files)
