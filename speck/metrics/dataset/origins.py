"""Fingerprints of the rows of ten minutes, which tell whether sums of these rows are still valid.

A fingerprint is a sum over the files that hold rows of the ten minutes: of a hash of the file's
name. A compacted file keeps the sums of its sources in its metadata, so that compaction changes no
fingerprint. New, late and imported rows come in new files and change it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache

import pyarrow as pa

from speck.metrics.dataset.files import day_of, list_days, list_partitions
from speck.metrics.dataset.footers import read_footer
from speck.metrics.dataset.schema import Table
from speck.metrics.dataset.storage import Storage, StoredFile

UNIT_S = 600
"""The ten minutes, in seconds; units are numbered from 1970."""

UNITS = ".units"
"""The folder of the analyzer's sums of units, beside the tables."""

ORIGINS = "speck.origins"
"""The metadata of a compacted file: unit -> sum, as JSON."""

_MODULUS = 1 << 64
_REMEMBERED = 200_000


def fingerprint_units(
    storage: Storage, table: Table, since: datetime, until: datetime
) -> Mapping[int, str]:
    """Fingerprint the units that have rows in files of the days from `since` to `until`. Damaged
    files have no part in it."""
    sums: Counter[int] = Counter()
    days = [d for d in list_days(storage, table) if day_of(since) <= d <= day_of(until)]
    files = [file for _, files in list_partitions(storage, table, days) for file in files]
    for of_file in storage.map(lambda file: _read_cached(storage, file), files):
        sums.update(of_file)
    return {unit: f"{total % _MODULUS:016x}" for unit, total in sums.items()}


def combine_prints(
    prints: Mapping[int, str], units: Iterable[int], length: int
) -> Mapping[int, str]:
    """The fingerprints of units of a length, in tens of minutes, that have rows."""
    combined = {}
    for unit in units:
        parts = [prints.get(part, "") for part in range(unit, unit + length)]
        if any(parts):
            whole = hashlib.blake2b(" ".join(parts).encode(), digest_size=8).hexdigest()
            combined[unit] = parts[0] if length == 1 else whole
    return combined


def sum_origins(storage: Storage, files: Iterable[StoredFile]) -> str:
    """What the metadata of a file that replaces these files has to hold."""
    sums: Counter[int] = Counter()
    for file in files:
        sums.update(_read_cached(storage, file))
    return json.dumps({str(unit): total % _MODULUS for unit, total in sorted(sums.items())})


def _read_cached(storage: Storage, file: StoredFile) -> Mapping[int, int]:
    try:
        return _read(storage, file)
    except (OSError, pa.ArrowException):
        return {}


@lru_cache(_REMEMBERED)
def _read(storage: Storage, file: StoredFile) -> Mapping[int, int]:
    """The sums of a file, by unit; files never change."""
    metadata = read_footer(storage, file)
    kept = (metadata.metadata or {}).get(ORIGINS.encode())
    if kept is not None:
        return {int(unit): total for unit, total in json.loads(kept).items()}
    own = int.from_bytes(hashlib.blake2b(file.name.encode(), digest_size=8).digest(), "big")
    units: set[int] = set()
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(0).statistics
        if statistics is not None and statistics.has_min_max:
            first, last = (int(at.timestamp()) // UNIT_S for at in (statistics.min, statistics.max))
            units.update(range(first, last + 1))
    return dict.fromkeys(units, own)
