"""What jobs and links do: sampled at all sites, kept as Parquet files, shown as rates.

Imports `speck.sites` and `speck.store`. Begin with `sampler`, then `rows`.
"""
