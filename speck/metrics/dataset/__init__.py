"""The metrics dataset: Parquet files that the sampler writes and the analyzer reads.

Layout, below one folder: `<table>/day=YYYY-MM-DD/composition=<name>/part-*.parquet`; tables of
places (sites, brokers) have no composition level. docs/metrics.md documents it for users.
"""

import os

# Before pyarrow is imported, which reads it once. Its own allocator keeps what it has for each of
# the threads that ever used it: a service kept 100 MB after some exports.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
