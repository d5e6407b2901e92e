"""The footers of Parquet files: how many rows they have, and their statistics."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from speck.metrics.dataset.schema import TABLES
from speck.metrics.dataset.storage import Storage, StoredFile

_COLUMNS = frozenset({"composition"}.union(*(table.schema.names for table in TABLES.values())))


def read_footer(storage: Storage, file: StoredFile) -> pq.FileMetaData:
    """The footer of a file. Raises OSError or pyarrow's ArrowException if it is damaged, or has a
    column that no table has: what it would tell of a renamed one would silently be missing."""
    with storage.open(file.path) as source:
        metadata = pq.read_metadata(source)
    strange = sorted({*metadata.schema.to_arrow_schema().names} - _COLUMNS)
    if strange:
        raise pa.ArrowInvalid(
            f"another version of speck wrote it: no table has a column {', '.join(strange)}"
        )
    return metadata
