"""The metrics dataset: Parquet files that the sampler writes and the analyzer reads.

Layout, below one folder: `<table>/day=YYYY-MM-DD/composition=<name>/part-*.parquet`; tables of
places (sites, brokers) have no composition level. docs/metrics.md documents it for users.
"""
