"""Metrics of jobs, links and sites: sampled at all sites, stored as Parquet, served as rates.

Imports `speck.sites` and `speck.store`. Begin with `sampler`, then `rows`.
"""
