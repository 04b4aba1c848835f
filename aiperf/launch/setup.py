"""What a worker is asked when it sets a side up.

What must not live here: starting workers, and anything after set-up.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import replace
from pathlib import Path

from aiperf.plan.refs import REPOSITORY_VARIABLE
from aiperf.protocol.messages import SetUpRequest, WorkloadCall
from aiperf.records import Case, Side

_PAD_STEP, _PAD_STEPS = 256, 4096
"""Large buffers begin at a random multiple of 256 bytes below 1 MiB: addresses must not be a hidden constant."""


def setup_request(case: Case, side: Side, *, seed: int, delta: float, folder: Path) -> SetUpRequest:
    """The request for one side; ``folder`` holds the scratch folders, ``delta`` is used where the case names none.

    Each request names a new scratch folder.
    """
    own = case.measure.delta
    return SetUpRequest(
        side=side.name,
        call=call_of(side),
        measure=replace(case.measure, delta=own if own is not None else delta),
        check=case.check,
        device=device_of(case),
        seed=seed,
        scratch=str(folder / secrets.token_hex(8)),  # no side can name another's
        shared_scratch=str(folder / "shared"),
        pad=_PAD_STEP * random.Random(f"{seed}-{side.name}-pad").randrange(_PAD_STEPS),
        gpus=case.needs.gpus,
        slowdown=side.slowdown,
        repository=side.env.get(REPOSITORY_VARIABLE, ""),
        pattern=pattern_of(case, side.name, seed=seed),
    )


def pattern_of(case: Case, side: str, *, seed: int) -> int:
    """What the first audit of a side writes over integers: of the first side an even number and of the others an odd
    one, so that what neither writes differs between them.
    """
    even = 2 * random.Random(f"{seed}-pattern").randrange(0x20, 0x40)
    return even if side == case.sides[0].name else even + 1


def call_of(side: Side) -> WorkloadCall:
    """The workload of a side and its parameters."""
    return WorkloadCall(side.workload, side.params, side.plain, side.setup, side.setup_params, arguments=side.arguments)


def device_of(case: Case) -> str:
    """Where the sides of a case compute: cuda or cpu."""
    return "cuda" if case.needs.gpus else "cpu"
