"""Raw samples to Parquet and back: one row per sample, joined to its pair again when read.

What must not live here: folders and names of files (write.py, read.py), statistics.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiperf.records import CaseRecord, Pair, Sample
from aiperf.store.codec import CorruptRecord

_MAGIC = b"PAR1"
_SAMPLE = ("side", "round", "index", "iterations", "wall_s", "device_s", "user_s", "system_s", "peak_bytes", "audit")
_TYPES = {
    "case": "string",
    "slot": "int64",
    "pair": "int64",
    "position": "int64",
    "started": "float64",
    "side": "string",
    "round": "int64",
    "index": "int64",
    "iterations": "int64",
    "wall_s": "float64",
    "device_s": "float64",
    "user_s": "float64",
    "system_s": "float64",
    "peak_bytes": "int64",
    "audit": "bool",
}
"""Column -> Parquet type. slot: place of the pair in the record, unique even where a void pair's index is used again;
position: place of the side in the pair's order; started: of the pair, seconds since the epoch."""
_LATENCIES = "latencies_s"
"""A column of lists, in files where a sample has any."""


def strip_samples(record: CaseRecord) -> CaseRecord:
    """Return the record as its JSON holds it: pairs without their samples."""
    return replace(record, pairs=tuple(replace(p, samples=()) for p in record.pairs))


def encode_samples(record: CaseRecord) -> bytes:
    """Parquet file of every sample of every pair, void pairs included, in the order in which they were taken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = {name: [] for name in _TYPES}
    for slot, pair in enumerate(record.pairs):
        places = {side: place for place, side in enumerate(pair.order)}
        for sample in pair.samples:
            columns["case"].append(record.case.id)
            columns["slot"].append(slot)
            columns["pair"].append(pair.index)
            columns["position"].append(places.get(sample.side))
            columns["started"].append(pair.started)
            for name in _SAMPLE:
                columns[name].append(getattr(sample, name))
    schema = _schema()
    if any(sample.latencies_s for pair in record.pairs for sample in pair.samples):
        schema = schema.append(_latencies())
        columns[_LATENCIES] = [list(sample.latencies_s) for pair in record.pairs for sample in pair.samples]
    sink = io.BytesIO()
    pq.write_table(pa.table(columns, schema=schema), sink, compression="zstd")
    return sink.getvalue()


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in _TYPES.items()])


def _latencies() -> Any:
    import pyarrow as pa

    return pa.field(_LATENCIES, pa.list_(pa.float64()))


def join_samples(pairs: Sequence[Pair], data: bytes, *, case: str) -> tuple[Pair, ...]:
    """Join ``pairs`` with the samples of the Parquet file ``data``, equal to what was written.

    ``case`` is the id of the case. Samples of later pairs are left out: a kill between the two files of a case leaves
    more samples than its record knows. Raises CorruptRecord when the file is damaged or belongs to other pairs.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        lists = [_LATENCIES] if _LATENCIES in pq.read_schema(io.BytesIO(data)).names else []
        table = pq.read_table(io.BytesIO(data), columns=["case", "slot", "pair", *_SAMPLE, *lists])
        columns = [table.column(name).to_pylist() for name in ("slot", "pair", *_SAMPLE)]
        latencies = [tuple(row or ()) for row in table.column(_LATENCIES).to_pylist()] if lists else [()] * len(table)
        cases = set(table.column("case").unique().to_pylist())
    except (pa.ArrowException, OSError, KeyError) as error:
        raise CorruptRecord(_no_samples(error)) from None
    if cases - {case}:
        raise CorruptRecord(f"holds samples of another case, {(cases - {case}).pop()}")
    samples: list[list[Sample]] = [[] for _ in pairs]
    for took, slot, index, *values in zip(latencies, *columns, strict=True):
        if slot >= len(pairs):
            continue
        if pairs[slot].index != index:
            raise CorruptRecord(f"holds samples of pair {index} where the record has pair {pairs[slot].index}")
        samples[slot].append(replace(Sample(*values), latencies_s=took))
    return tuple(replace(p, samples=tuple(s)) for p, s in zip(pairs, samples, strict=True))


def has_latencies(path: Path) -> bool:
    """Whether any sample in a file has latencies; also False where that cannot be read. Reads the end of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            return _LATENCIES in pq.read_schema(file).names
    except (OSError, pa.ArrowException):
        return False


def looks_whole(path: Path) -> str:
    """Whether ``path`` begins and ends as a Parquet file does: empty, or why not. Reads sixteen bytes of it."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(handle).st_size
            head, tail = os.pread(handle, 4, 0), os.pread(handle, 8, max(0, size - 8))
        finally:
            os.close(handle)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    footer = int.from_bytes(tail[:4], "little") + len(_MAGIC) + len(tail)
    whole = head == tail[4:] == _MAGIC and footer <= size
    return "" if whole else "is not a Parquet file of samples (cut short, or something else)"


def why_unreadable(path: Path) -> str:
    """What keeps every sample of ``path`` from being read: empty when nothing does. Reads all of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # As bytes: of a path pyarrow takes parts like size=1 for columns.
        found = pq.read_table(io.BytesIO(path.read_bytes()))
    except OSError as error:
        return f"cannot be read ({error.strerror})" if error.strerror else _no_samples(error)
    except pa.ArrowException as error:
        return _no_samples(error)
    if not any(found.schema.equals(schema) for schema in (_schema(), _schema().append(_latencies()))):
        return "holds other columns than samples have"
    return ""


def _no_samples(error: Exception) -> str:
    said = (str(error).splitlines() or [""])[0]
    return f"is not a Parquet file of samples ({said})"
