"""What a survey of a fleet read, and which nodes it had.

What must not live here: verdicts (analysis/survey.py), files (store/surveys.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PAIR_METRIC = "all_reduce"
"""The metric of nodes together, over Gloo."""
CARD_PAIR_METRIC = "gpu_all_reduce"
"""The same between their first GPUs, over NCCL."""
Ended = Literal["", "interrupted", "nodes_lost"]
"""Why a survey ended before its last round: a signal (Ctrl-C, a cancelled job, a time limit), or its head was lost or
fewer than two nodes were left; empty for one that was finished."""


@dataclass(frozen=True)
class SurveyReading:
    """One reading: seconds of the same work on a node, or on several together."""

    metric: str
    round: int
    nodes: tuple[int, ...]
    """One node, the two ends of a link, or a batch of more."""
    seconds: float
    launch: int = 0
    """Which start of the processes it is from."""


@dataclass(frozen=True)
class LostNode:
    """A node that was lost in the middle of a survey."""

    node: int
    round: int
    """The first one that it missed, from 1."""
    when: str
    why: str


@dataclass(frozen=True)
class SurveyRecord:
    """A survey as it is stored."""

    nodes: tuple[str, ...]
    seed: int
    threshold: float
    readings: tuple[SurveyReading, ...]
    when: str = ""
    drill: str = ""
    """The node that was slowed on purpose, and by which share; empty for none."""
    absent: tuple[str, ...] = ()
    """Nodes of the job that did not come; they follow on ``nodes`` in the numbers of the verdicts."""
    lost: tuple[LostNode, ...] = ()
    """Nodes that came and were lost before the end; the others went on without them."""
    absent_because: tuple[str, ...] = ()
    """Why each node of ``absent`` did not come; empty in surveys from before this was kept."""

    skipped: tuple[str, ...] = ()
    """What was not measured, with the reason."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What it took, in the middle: ``start`` of the processes, ``joining`` of a round's batches, and a round of
    ``pairs`` and of larger ``batches``, as nodes that measure at the same time take them."""
    ended: Ended = ""
    rounds: int = 0
    """Rounds that were complete, whose readings are kept, of ``planned``; both are 0 in surveys from before this was
    kept."""
    planned: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Every node of the job by its number."""
        return (*self.nodes, *self.absent)

    @property
    def unreachable(self) -> dict[int, str]:
        """Why a node was not there, or not to the end, by its number."""
        lost = {one.node: f"lost in round {one.round}: {one.why}" for one in self.lost}
        because = self.absent_because or ("did not join",) * len(self.absent)
        return lost | dict(enumerate(because, len(self.nodes)))
