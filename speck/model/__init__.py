"""Nouns as plain data: jobs, sites, links, compositions, plans, changes, incarnations, and what
engines and brokers report.

Pure: no I/O, no clock; imports `speck.errors` only. Begin with `job`, `link` and `plan`.
"""
