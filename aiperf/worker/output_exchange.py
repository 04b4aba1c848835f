"""How one worker shows another what its side computed: descriptions always, the arrays where somebody needs them.

What must not live here: what counts as equal (see compare.py), and when anything is handed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aiperf.worker.audit import Snapshot

_SMALL_FILE = 1 << 16

Wanted = Callable[[int, str], bool]
"""(audit, name of an output) -> whether somebody needs the array."""


def describe(snapshots: Sequence[Snapshot], folder: Path) -> None:
    """Write what each snapshot holds, without its arrays: digests, dtypes, and whether the values are finite."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, snapshot in enumerate(snapshots):
        described = {"digests": snapshot.digests, "dtypes": snapshot.dtypes, "values": snapshot.values}
        (folder / f"{index}.json").write_text(json.dumps(described), encoding="utf-8")


def differing(snapshots: Sequence[Snapshot], others: Sequence[Path]) -> Wanted:
    """Outputs that another side, which described its own in one of ``others``, computed differently or not at all."""
    theirs = [load(folder) for folder in others]

    def wanted(audit: int, name: str) -> bool:
        digest = snapshots[audit].digests.get(name)
        return any(audit >= len(side) or side[audit].digests.get(name) != digest for side in theirs)

    return wanted


def hand_over(snapshots: Sequence[Snapshot], folder: Path, *, wanted: Wanted | None = None) -> None:
    """Write the wanted arrays as .npy beside the descriptions; without ``wanted`` all of them, and the references."""
    import numpy as np

    for index, snapshot in enumerate(snapshots):
        held = {("array", name): array for name, array in snapshot.arrays.items() if not wanted or wanted(index, name)}
        if wanted is None:
            held |= {("reference", name): array for name, array in snapshot.reference.items()}
        files: list[tuple[str, str, str]] = []
        for (kind, name), array in held.items():
            files.append((kind, name, f"{index}-{len(files)}.npy"))
            # Not one .npz: its checksums take longer than all else that is done to an array here.
            np.save(folder / files[-1][2], array, allow_pickle=False)
        (folder / f"files-{index}.json").write_text(json.dumps(files), encoding="utf-8")


def load(folder: Path) -> list[Snapshot]:
    """What another worker wrote, in order; arrays are read from their files as they are looked at, and no pickle is
    read."""
    snapshots = []
    for path in sorted(folder.glob("[0-9]*.json"), key=lambda p: int(p.stem)):
        read = json.loads(path.read_text(encoding="utf-8"))
        snapshot = Snapshot(dtypes=read["dtypes"], digests=read["digests"], values=read["values"])
        listed = folder / f"files-{path.stem}.json"
        for kind, name, file in json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else ():
            (snapshot.arrays if kind == "array" else snapshot.reference)[name] = _mapped(folder / file)
        snapshots.append(snapshot)
    return snapshots


def _mapped(path: Path) -> Any:
    import numpy as np

    # Small ones are read at once: one without elements cannot be mapped.
    return np.load(path, allow_pickle=False, mmap_mode="c" if path.stat().st_size > _SMALL_FILE else None)
