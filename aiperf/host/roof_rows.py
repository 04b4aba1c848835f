"""The rows of a checkup that no probe reads: roofs measured on this host that stay far behind the datasheet.

What must not live here: measuring, and what the datasheets say.
"""

from __future__ import annotations

from aiperf.host.checkup import Row
from aiperf.host.datasheets import FAR_BELOW, shortfalls
from aiperf.host.facts import HostFacts
from aiperf.host.findings import ROOF_ADVICE
from aiperf.host.fingerprint import fingerprint
from aiperf.host.peaks import load_peaks
from aiperf.host.probes.sight import Sight


def roof_rows(sight: Sight) -> tuple[Row, ...]:
    """One row a roof that was measured on this host and came out far below its datasheet; none where all is well.

    To be asked after the probes have run.
    """
    # As the checkup's header read them: a host whose facts cannot be read has said so there.
    facts: HostFacts | None = sight.kept.get("facts")
    if facts is None or not facts.gpus:
        return ()
    host_id, _ = fingerprint(facts, root=sight.root)
    return tuple(_row(name, sentence) for name, sentence in shortfalls(facts, load_peaks(host_id)))


def _row(name: str, sentence: str) -> Row:
    return Row(
        id=f"roof-{name}",
        group="GPU",
        title="Measured roof against the datasheet",
        level="warn",
        value=sentence,
        where="aiperf peaks --stored, configs/hardware",
        reason="",
        good=f"at least {FAR_BELOW:.0%} of the datasheet",
        why="A GPU that cannot reach its datasheet is held down by something, and so is what is measured on it",
        fix=f"{ROOF_ADVICE} {name}",
        book="",
        steady=False,
    )
