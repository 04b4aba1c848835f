"""Raw samples to Parquet and back: one row per sample, joined to its pair again when read.

What must not live here: folders and names of files (write.py, read.py), statistics.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, starmap
from math import isinf
from operator import itemgetter
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO

from aiperf.records import CaseRecord, Latencies, Pair, Sample
from aiperf.store.codec import CorruptRecord
from aiperf.store.parquet import NotParquet, column_types, encode_columns, open_bytes, read_rows

_MAGIC = b"PAR1"
_SAMPLE = ("side", "round", "index", "iterations", "wall_s", "device_s", "user_s", "system_s", "peak_bytes", "audit")
_TYPES = {
    "case": "VARCHAR",
    "slot": "BIGINT",
    "pair": "BIGINT",
    "position": "BIGINT",
    "started": "DOUBLE",
    "side": "VARCHAR",
    "round": "BIGINT",
    "index": "BIGINT",
    "iterations": "BIGINT",
    "wall_s": "DOUBLE",
    "device_s": "DOUBLE",
    "user_s": "DOUBLE",
    "system_s": "DOUBLE",
    "peak_bytes": "BIGINT",
    "audit": "BOOLEAN",
}
"""Column -> type. slot: place of the pair in the record, unique even where a void pair's index is used again;
position: place of the side in the pair's order; started: of the pair, seconds since the epoch."""
_HELD: dict[str, set[type]] = {"VARCHAR": {str}, "BIGINT": {int}, "DOUBLE": {float}, "BOOLEAN": {bool}}
_OPTIONAL = {"device_s", "user_s", "system_s", "peak_bytes", "rank"}
_SECONDS = {"latencies_s": "DOUBLE[]"}
_NAMED = {**_SECONDS, "latency_series": "VARCHAR[]", "latency_ranks": "BIGINT[]"}
"""Columns of lists, an item each unit of work, in files where a sample has any; series and ranks since they exist."""
_RANK = {"rank": "BIGINT"}
"""The column of the slowest rank, in files where a sample names it."""


def strip_samples(record: CaseRecord) -> CaseRecord:
    """Return the record as its JSON holds it: pairs without their samples."""
    return replace(record, pairs=tuple(replace(p, samples=()) for p in record.pairs))


def encode_samples(record: CaseRecord) -> bytes:
    """Parquet file of every sample of every pair, void pairs included, in the order in which they were taken."""
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
    types, samples = dict(_TYPES), [sample for pair in record.pairs for sample in pair.samples]
    if any(sample.rank is not None for sample in samples):
        types |= _RANK
        columns["rank"] = [sample.rank for sample in samples]
    units = [sample.latencies for sample in samples]
    if not any(units):
        return encode_columns(types, columns)
    columns["latencies_s"] = [[s for part in parts for s in part.seconds] for parts in units]
    columns["latency_series"] = [[part.series for part in parts for _ in part.seconds] for parts in units]
    columns["latency_ranks"] = [[part.rank for part in parts for _ in part.seconds] for parts in units]
    return encode_columns(types | _NAMED, columns)


def join_samples(pairs: Sequence[Pair], data: bytes, *, case: str) -> tuple[Pair, ...]:
    """Join ``pairs`` with the samples of the Parquet file ``data``, equal to what was written.

    ``case`` is the id of the case. Samples of later pairs are left out: a kill between the two files of a case leaves
    more samples than its record knows. Raises CorruptRecord when the file is damaged or belongs to other pairs.
    """
    try:
        with open_bytes(data) as file:
            names, rows = read_rows(file)
    except NotParquet as error:
        raise CorruptRecord(_no_samples(error)) from None
    place = {name: index for index, name in enumerate(names)}
    if missing := next((name for name in ("case", "slot", "pair", *_SAMPLE) if name not in place), None):
        raise CorruptRecord(_no_samples(f"it has no column {missing}"))
    _hold_types(rows, place)
    if others := set(map(itemgetter(place["case"]), rows)) - {case}:
        raise CorruptRecord(f"holds samples of another case, {others.pop()}")
    of_sample, lists = itemgetter(*map(place.__getitem__, _SAMPLE)), [place[name] for name in _NAMED if name in place]
    ranks = place.get("rank")
    samples: list[list[Sample]] = [[] for _ in pairs]
    for (slot, index), of_pair in groupby(rows, itemgetter(place["slot"], place["pair"])):
        if type(slot) is not int or slot < 0:
            raise CorruptRecord(f"holds samples of no pair (slot {slot})")
        if slot >= len(pairs):
            continue
        if pairs[slot].index != index:
            raise CorruptRecord(f"holds samples of pair {index} where the record has pair {pairs[slot].index}")
        if lists or ranks is not None:
            rows_of = ((row, _latencies(*(row[column] for column in lists)) if lists else ()) for row in of_pair)
            whole = ((*of_sample(row), units, None if ranks is None else row[ranks]) for row, units in rows_of)
            samples[slot] += starmap(Sample, whole)
        else:
            samples[slot] += starmap(Sample, map(of_sample, of_pair))
    return tuple(replace(p, samples=tuple(s)) for p, s in zip(pairs, samples, strict=True))


def _hold_types(rows: Sequence[Sequence[Any]], place: Mapping[str, int]) -> None:
    """Raises CorruptRecord for a column of other values than are written: other types, none where there must be one,
    endless times. A wall time that was never read is NaN."""
    for name in ("case", *_SAMPLE, *(_RANK.keys() & place.keys())):
        met = set(map(type, map(itemgetter(place[name]), rows)))
        if other := met - _HELD[(_TYPES | _RANK)[name]] - ({NoneType} if name in _OPTIONAL else set()):
            raise CorruptRecord(_no_samples(f"its column {name} holds {min(each.__name__ for each in other)}"))
    if any(map(isinf, map(itemgetter(place["wall_s"]), rows))):
        raise CorruptRecord(_no_samples("its column wall_s holds an endless time"))


def optional_columns(path: Path) -> tuple[str, ...]:
    """The columns of a file that not every one has; none also where that cannot be read. Reads the end of it."""
    try:
        with path.open("rb") as file:
            return _further(file)
    except (OSError, NotParquet):
        return ()


def _further(file: BinaryIO) -> tuple[str, ...]:
    found = column_types(file)
    return tuple(name for name in _RANK | _NAMED if name in found)


def _latencies(seconds: Sequence[float], *named: Sequence[Any]) -> tuple[Latencies, ...]:
    """Of one sample, from its row of lists: the seconds alone, or also series and ranks."""
    if not named:
        return (Latencies(tuple(seconds)),) if seconds else ()
    parts = groupby(zip(seconds, *named, strict=True), key=lambda unit: unit[1:])
    return tuple(Latencies(tuple(s for s, *_ in units), series, rank) for (series, rank), units in parts)


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
    try:
        with path.open("rb") as file:
            found = column_types(file)
            read_rows(file)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except NotParquet as error:
        return _no_samples(error)
    known = [_TYPES | rank | lists for rank in ({}, _RANK) for lists in ({}, _SECONDS, _NAMED)]
    if list(found.items()) not in [list(types.items()) for types in known]:
        return "holds other columns than samples have"
    return ""


def _no_samples(error: object) -> str:
    return f"is not a Parquet file of samples ({error})"
