"""The environment a side's processes get: the parent's, the side's own, and what marks and varies the launch.

What must not live here: starting processes, and reading the host.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Mapping
from pathlib import Path
from string import ascii_uppercase

from aiperf.launch.watchdog import LAUNCH_VARIABLE, PARENT_VARIABLE

PAD_VARIABLE = "AIPERF_PAD"
OWN = "AIPERF_"
"""How the names of aiperf's own variables begin."""
_PAD_NAME = 8
"""Letters of the name of a program's padding."""
_PAD_BYTES = 4096
_HASH_SEED = "PYTHONHASHSEED"
INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
STORE_VARIABLE = "AIPERF_STORE"
"""The file at which ranks over several nodes meet; empty for those of one host, which meet at a port of loopback."""
RUN_NOTE_VARIABLE = "AIPERF_RUN_NOTE"
"""A file into which a run writes its name, for the batch job that may have to go on in it."""
EXIT_NOTE_VARIABLE = "AIPERF_EXIT_NOTE"
"""Names the file in which the head of a job notes its exit code."""
TYPED_VARIABLE = "AIPERF_TYPED"
"""The command that submitted the job around this process, as it was typed."""
SCRATCH_VARIABLE = "AIPERF_NODE_SCRATCH"
"""Where a rank of a gang over several nodes keeps what is its own: a folder of its node, and not the shared one."""
_LOGS = {"CUFILE_LOGFILE_PATH": "cufile.log"}
"""Libraries' logs that would otherwise come to lie in the current folder, beside the user's files."""


def side_environment(
    side_env: Mapping[str, str], *, seed: int, gang: bool = False, logs: Path | None = None
) -> dict[str, str]:
    """Return the whole environment of one launch of a side.

    The size of an environment shifts the stack of the program below it and with that its speed (Mytkowicz et al.,
    ASPLOS 2009), so a padding of 0 to 4095 bytes, drawn from ``seed``, makes that shift part of what replication
    averages out. Two more variables mark the processes as this parent's, so that strays can be found and killed.
    ``gang``: several ranks that meet over the loopback interface unless the user named another. ``logs``: folder for
    what libraries log, unless the user named a place; a program of the user's own logs where it always does.
    """
    env = {**os.environ, **side_env}
    if gang:
        for name in INTERFACE_VARIABLES:
            env.setdefault(name, "lo")
    if logs is not None:
        for name, file in _LOGS.items():
            env.setdefault(name, str(logs / file))
    env[PARENT_VARIABLE] = str(os.getpid())
    env[LAUNCH_VARIABLE] = uuid.uuid4().hex
    env[PAD_VARIABLE] = "x" * pad_bytes(seed)
    return env


def program_environment(side_env: Mapping[str, str], *, seed: int) -> dict[str, str]:
    """Return the whole environment of one run of a side's program: the parent's without aiperf's own variables, the
    side's own, the padding of ``side_environment`` under a name that is drawn, and a seed of Python's hashes.

    Sides that run side by side get one ``seed`` (common random numbers): where the stack lies and how dicts collide
    is as random as ever, and no longer different between the two. A program that asks cannot tell its side or its
    launch by it, nor find the padding by its name or by what it holds; that there is one it can see.
    """
    draw = random.Random(f"{seed}-letters")
    name, pad = ("".join(draw.choices(ascii_uppercase, k=size)) for size in (_PAD_NAME, pad_bytes(seed)))
    env = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    drawn = {_HASH_SEED: str(random.Random(f"{seed}-hashes").getrandbits(32))}
    return {**drawn, **env, **side_env, name: pad}


def import_root() -> Path:
    """The folder from which a worker imports this very aiperf, whatever its working folder."""
    return Path(__file__).resolve().parent.parent.parent


def import_path(path: str, *, checkout: bool) -> str:
    """PYTHONPATH of a worker whose own was ``path``: aiperf comes first.

    For a side that runs a ``checkout`` it comes last: the checkout's own packages count before whatever copy of them
    may be installed beside aiperf.
    """
    places = [str(import_root()), path]
    return os.pathsep.join(filter(None, reversed(places) if checkout else places))


def pad_bytes(seed: int) -> int:
    """Size of the padding that ``side_environment`` draws from this seed, for the record."""
    return random.Random(seed).randrange(_PAD_BYTES)
