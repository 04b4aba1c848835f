"""The shelf of misbehaving sides: scenario file, and the failure that must be recorded for its after side.

What must not live here: running them.
"""

from typing import NamedTuple

from aiperf.records import FailureKind


class Misbehaviour(NamedTuple):
    """One pair whose before side is healthy."""

    scenario: str
    """File in this folder."""
    phase: str
    """Phase of the failure; empty where the case must be measured all the same."""
    kind: FailureKind | None
    message: str
    """Fragment of the failure's message."""
    hangs: bool = False
    """Ends only by the limit of its phase: shorten that before running it."""


SHELF = (
    Misbehaviour("set-up-raises.yaml", "set-up", "error", "RuntimeError: no such model"),
    Misbehaviour("step-raises.yaml", "warm-up", "error", "ValueError: the fifth batch is broken"),
    Misbehaviour("segfaults.yaml", "warm-up", "crash", "SIGSEGV"),
    Misbehaviour("exits.yaml", "warm-up", "crash", "exit status 3"),
    Misbehaviour("killed.yaml", "warm-up", "signal", "SIGKILL"),
    Misbehaviour("hangs-in-step.yaml", "warm-up", "hang", "no answer within", hangs=True),
    Misbehaviour("hangs-in-set-up.yaml", "set-up", "hang", "no answer within", hangs=True),
    Misbehaviour("hangs-in-close.yaml", "close", "hang", "no answer within", hangs=True),
    Misbehaviour("ignores-sigterm.yaml", "warm-up", "hang", "no answer within", hangs=True),
    Misbehaviour("out-of-memory.yaml", "warm-up", "oom_host", "Unable to allocate"),
    Misbehaviour("out-of-device-memory.yaml", "warm-up", "oom_device", "CUDA out of memory"),
    Misbehaviour("prints.yaml", "", None, ""),
    Misbehaviour("writes-to-pipes.yaml", "warm-up", "protocol", "no valid reply"),
    Misbehaviour("dead-rank.yaml", "warm-up", "dead_rank", "rank 1"),
    Misbehaviour("outputs-raise.yaml", "check", "error", "KeyError"),
    Misbehaviour("outputs-differ.yaml", "check", "check", "out differs in 1 of 4096 elements"),
    Misbehaviour("leaves-child.yaml", "", None, ""),
    Misbehaviour("leaves-orphan.yaml", "", None, ""),
    Misbehaviour("no-workload.yaml", "set-up", "error", "returned dict, not an aiperf Workload"),
)
