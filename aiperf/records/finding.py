"""What was wrong with the host when something was measured.

What must not live here: reading and judging the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class HostFinding:
    """One fact of the host that can bias a measurement."""

    id: str
    """Of the probe that read it; ``unknown`` for one that an older version stored as a sentence."""
    level: Literal["warn", "unfit"]
    title: str
    """What was looked at: ``CPU quota``."""
    value: str
    """What was read: ``0.5 of 4 CPUs allowed``."""
    reason: str = ""
    """What the level rests on, where the value does not say it."""
    bias: str = ""
    """How it can bias the case that it is stored with; empty in the record of a run."""
    advice: str = ""
    """The command or step that would fix it."""

    @property
    def text(self) -> str:
        """``CPU quota: 0.5 of 4 CPUs allowed; a quota stops a side for the rest of a period.``"""
        said = f"{self.title}: {self.value}" if self.title else self.value
        said += f" ({self.reason})" if self.reason else ""
        return f"{said}; {self.bias}." if self.bias else f"{said.rstrip('.')}."

    @property
    def advised(self) -> str:
        """The text, and what helps: ``CPU quota: 0.5 of 4 CPUs allowed. What helps: raise the quota.``"""
        return f"{self.text} What helps: {self.advice.rstrip('.')}." if self.advice else self.text

    def __str__(self) -> str:
        """The level and the text."""
        return f"{self.level}: {self.text}"
