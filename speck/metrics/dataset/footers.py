"""The footers of Parquet files: how many rows they have, and their statistics."""

from __future__ import annotations

import pyarrow.parquet as pq

from speck.metrics.dataset.storage import Storage, StoredFile


def read_footer(storage: Storage, file: StoredFile) -> pq.FileMetaData:
    """The footer of a file. Raises OSError or pyarrow's ArrowException if it is damaged."""
    with storage.open(file.path) as source:
        return pq.read_metadata(source)
