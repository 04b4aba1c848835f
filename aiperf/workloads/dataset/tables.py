"""A table of numbers on disk as text or as a binary array, and the readers that people use for each.

What must not live here: compressed samples (codecs.py), the page cache, timing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.workloads.shared import page_cache
from aiperf.workloads.shared.seeded import generator

DECIMALS = 4

Parse = Callable[[Path, Any], None]
"""Reads one file into float32 [rows, columns], in place."""


def table(rows: int, columns: int, *, seed: int) -> Any:
    """float64 [rows, columns] of standardised features with four decimals: any reader gets the same float32 of them."""
    drawn = generator(seed, "table").standard_normal((rows, columns))
    return np.rint(drawn * 10**DECIMALS) / 10**DECIMALS


def write_csv(path: Path, values: Any) -> None:
    """Comma-separated decimals, without a header."""
    import pyarrow as pa
    from pyarrow import csv

    held = pa.BufferOutputStream()
    columns = pa.table({str(number): column for number, column in enumerate(values.T)})
    csv.write_csv(columns, held, csv.WriteOptions(include_header=False))
    page_cache.write_synced(path, memoryview(held.getvalue()))


def write_npy(path: Path, values: Any) -> None:
    """The same as a float32 array, row by row."""
    with path.open("wb") as file:
        np.save(file, values.astype(np.float32))
        page_cache.sync(file)


def parser(way: str, columns: int) -> Parse:
    """How a file is read. What a way needs is imported here, before any step."""
    if way == "csv_pandas":
        import pandas as pd

        def by_pandas(path: Path, into: Any) -> None:
            into[...] = pd.read_csv(path, header=None, dtype=np.float32).to_numpy()

        return by_pandas
    return _pyarrow(columns) if way == "csv_pyarrow" else {"npy_load": _load, "npy_mapped": _mapped}[way]


def _pyarrow(columns: int) -> Parse:
    import pyarrow as pa
    from pyarrow import csv

    names = [str(number) for number in range(columns)]
    reading = csv.ReadOptions(column_names=names)
    converting = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.float32()))

    def parse(path: Path, into: Any) -> None:
        found = csv.read_csv(path, read_options=reading, convert_options=converting)
        for number, column in enumerate(found.columns):
            into[:, number] = column.to_numpy()

    return parse


def _load(path: Path, into: Any) -> None:
    into[...] = np.load(path)


def _mapped(path: Path, into: Any) -> None:
    into[...] = np.load(path, mmap_mode="r")
